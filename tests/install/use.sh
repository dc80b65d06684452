# What the tests of this folder share; to be sourced.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE TUTTI_RANK TUTTI_SIZE LD_LIBRARY_PATH PYTHONPATH

fail() { echo "install test: $*" >&2; exit 1; }
expect() { # expect TEXT COMMAND...
  local text=$1 answer; shift
  answer=$("$@") || fail "'$*' failed: $answer"
  [ "$answer" = "$text" ] || fail "'$*' said '$answer' instead of '$text'"
}

# use_modules PYTHON FOLDER MODULE...: they come from there, with the library of the same tree, and work.
use_modules() {
  local python=$1 folder=$2; shift 2
  (cd "$work" && PYTHONPATH=$folder "$python" - "$folder" "$@") <<'EOF' || fail "$* cannot be used from $folder"
import importlib, os, sys
import numpy
folder = os.path.realpath(sys.argv[1])
versions = set()
for name in sys.argv[2:]:
    module = importlib.import_module(name)
    versions.add(module.__version__)
    assert os.path.realpath(module.__file__).startswith(folder), f"{name} was found in {module.__file__}"
assert len(versions) == 1, f"the modules are of different versions: {versions}"
import tutti
tutti.init()
assert tutti.all_reduce(numpy.arange(3.0)).tolist() == [0, 1, 2]
if "tutti_torch" in sys.argv:
    import torch
    import tutti_torch
    model = tutti_torch.DataParallel(torch.nn.Linear(2, 1), clip=1.0)
    model.backward(model(torch.ones(3, 2)).sum())
    assert model.step().outcome == "updated"
library = {line.split()[-1] for line in open("/proc/self/maps") if "/libtutti.so" in line}
assert len(library) == 1, f"several libraries are in use: {library}"
tree = folder if "/lib/python" not in folder else folder[:folder.index("/lib/python")]
assert library.pop().startswith(tree), f"the library is not the one of {tree}"
EOF
}
