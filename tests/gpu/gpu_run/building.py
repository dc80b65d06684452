"""tests/gpu/run build: what tests and benchmarks need, on one machine or on two.

Programs are linked to tutti's rooms and run wherever libraries of the system have the same names: they may be built on
a machine without a GPU and carried to one with. The Python modules fit one torch, so they are built where it is.
"""
import lzma
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from .machine import MODULES, PACKED, PROGRAMS, ROOT, TREE, Problem, python

TESTS = ("gpu_kernels", "world_collectives", "world_messages", "world_random", "world_groups", "world_device",
         "fault_world", "train_hand_over", "capi_program")
BENCHES = ("bench_hand_over",)
# Each program has the library in it: seen at once, all of them are little more than one.
PACKING = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 128 << 20}]
OFF = ("LIBTORCH", "PYTHON_MODULES", "TOKENIZERS")


def run(command, **options):
    done = subprocess.run([str(word) for word in command], cwd=ROOT, check=False, **options)
    if done.returncode:
        raise Problem(f"failed: {' '.join(str(word) for word in command)}")


def device_examples():
    """Those that speak of device memory."""
    return [path.stem for path in sorted((ROOT / "examples").glob("*.cpp"))
            if "Device::cuda" in path.read_text(encoding="utf-8")]


def common_flags():
    return ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=16",
            "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON"]


def rapidjson_flags():
    given = os.environ.get("RAPIDJSON_INCLUDE_DIR")
    if given:
        if not Path(given, "rapidjson/reader.h").is_file():
            raise Problem(f"RAPIDJSON_INCLUDE_DIR={given} has no rapidjson/reader.h")
        return [f"-DRAPIDJSON_INCLUDE_DIR={given}"]
    if not any(Path(folder, "rapidjson/reader.h").is_file() for folder in ("/usr/include", "/usr/local/include")):
        raise Problem("RapidJSON's headers are missing: set RAPIDJSON_INCLUDE_DIR to the folder that rapidjson/ is in, "
                      "or build with --without-torch elsewhere, carry build-gpu here, and build with --torch-only")
    return []


def build_programs(jobs):
    run(["cmake", "-S", ROOT, "-B", TREE, *common_flags(), "-DTUTTI_CUDA=ON", "-DTUTTI_BENCH=ON",
         *(f"-DTUTTI_{part}=OFF" for part in OFF),
         *rapidjson_flags()], stdout=subprocess.DEVNULL)
    examples = device_examples()
    run(["ninja", "-C", TREE, *(["-j", jobs] if jobs else []), "tutti", "tutti_tool", *TESTS, *BENCHES,
         *(f"example_{name}" for name in examples)])
    collect(examples)


def collect(examples):
    """Stripped copies, in folders as the build tree has them: what is carried."""
    shutil.rmtree(PROGRAMS, ignore_errors=True)
    wanted = ["bin/tutti", *(f"tests/{name}" for name in TESTS), *(f"bin/{name}" for name in BENCHES),
              *(f"bin/examples/{name}" for name in examples)]
    for name in wanted:
        target = PROGRAMS / name
        target.parent.mkdir(parents=True, exist_ok=True)
        run(["strip", "-o", target, TREE / name])
    (PROGRAMS / "lib").mkdir(exist_ok=True)
    library = (TREE / "lib/libtutti.so").resolve()
    run(["strip", "--strip-unneeded", "-o", PROGRAMS / "lib" / library.name, library])
    # Links may not travel: programs look for the second name, who links them for the first.
    soname = next(path.name for path in (TREE / "lib").glob("libtutti.so.?"))
    for name in {soname, "libtutti.so"} - {library.name}:
        (PROGRAMS / "lib" / name).symlink_to(library.name)
    with lzma.open(PACKED, "wb", filters=PACKING) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(PROGRAMS, PROGRAMS.name)
    print(f"{PACKED.name}: {PACKED.stat().st_size / (1 << 20):.1f} MiB to be carried")


def unpack():
    """What was carried here as one file."""
    if PACKED.is_file() and not PROGRAMS.exists() and not TREE.exists():
        with tarfile.open(PACKED) as archive:
            archive.extractall(PROGRAMS.parent)


def find_library():
    """By the name that the modules will ask for; made anew where links did not survive the journey."""
    found = sorted((PROGRAMS / "lib").glob("libtutti.so.?"))
    if found:
        return found[0]
    whole = sorted((PROGRAMS / "lib").glob("libtutti.so.?.*"))
    if not whole:
        raise Problem(f"there is no libtutti in {PROGRAMS / 'lib'}: build it (--without-torch) and carry it here")
    soname = whole[0].with_name(".".join(whole[0].name.split(".")[:3]))
    soname.symlink_to(whole[0].name)
    return soname


def build_modules(jobs):
    library = find_library()
    asked = subprocess.run([python(), "-c", "import torch; print(torch.version.cuda or '')"], capture_output=True,
                           text=True, check=False)
    if asked.returncode:
        raise Problem(f"{python()} has no torch (TUTTI_GPU_PYTHON says which Python)")
    if not asked.stdout.strip():
        print(f"the torch of {python()} knows no CUDA: its modules are built for CPU tensors")
    where = shutil.which(python()) or python()
    run(["cmake", "-S", ROOT, "-B", MODULES, *common_flags(), f"-DTUTTI_PREBUILT={library}", f"-DTUTTI_PYTHON={where}"],
        stdout=subprocess.DEVNULL)
    trainer = ["pretrain_gpt"] if (MODULES / "apps/pretrain_gpt").is_dir() else []
    run(["ninja", "-C", MODULES, *(["-j", jobs] if jobs else []), "python_modules", *trainer])
    # Where the modules look for it, relative to themselves.
    beside = MODULES / "lib" / library.name
    beside.parent.mkdir(exist_ok=True)
    if not beside.exists():
        beside.symlink_to(os.path.relpath(library, beside.parent))
    environment = {**os.environ, "PYTHONPATH": str(MODULES / "python")}
    run([python(), "-c", "import tutti_torch; print('tutti_torch', tutti_torch.__version__, 'can be imported')"],
        env=environment)


def was_carried():
    """All programs are here, and were not made here."""
    names = ["bin/tutti", *(f"tests/{name}" for name in TESTS)]
    return not TREE.exists() and all((PROGRAMS / name).is_file() for name in names)


def build(options):
    unpack()
    if not options.torch_only and not options.without_torch and was_carried():
        print(f"{PROGRAMS.name} was built elsewhere: only the Python modules are missing")
    elif not options.torch_only:
        build_programs(options.jobs)
    if not options.without_torch:
        build_modules(options.jobs)
    return 0
