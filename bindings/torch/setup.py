"""Builds tutti_torch, and the package tutti that it needs, for the torch of this Python:

    python3 -m pip install --no-build-isolation ./bindings/torch

CMake and ninja do the work, on the repository that this folder is in. Nothing is downloaded. scripts/package sets
TUTTI_WITHOUT_TORCH to leave tutti_torch out, and TUTTI_WHEEL_FROM to a build tree that is packed as it is.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# One level below the repository, as other build trees are: ccache then knows what they compiled.
BUILD = ROOT / "build-wheel"
GIVEN = os.environ.get("TUTTI_WHEEL_FROM")
WITH_TORCH = not os.environ.get("TUTTI_WITHOUT_TORCH")


def version():
    header = (ROOT / "include/tutti/version.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"^#define TUTTI_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header, re.M))


class CMakeBuild(build_ext):
    def run(self):
        if not GIVEN:
            self.build()
        self.collect(Path(GIVEN or BUILD))

    def build(self):
        for program in ("cmake", "ninja"):
            if shutil.which(program) is None:
                sys.exit(f"{program} is missing (Debian: apt-get install cmake ninja-build)")
        shutil.rmtree(BUILD / "python", ignore_errors=True)  # files that are gone since the last build
        off = [f"-DTUTTI_{part}=OFF" for part in ("TESTS", "TOOL", "EXAMPLES", "BENCH", "LIBTORCH")]
        subprocess.run(["cmake", "--preset", "release", "-B", BUILD, f"-DTUTTI_PYTHON={sys.executable}", *off],
                       cwd=ROOT, check=True)
        subprocess.run(["cmake", "--build", BUILD, "--target", "python_modules"], check=True)

    def collect(self, build):
        shutil.rmtree(self.build_lib, ignore_errors=True)  # what an earlier wheel held
        # The build tree's Python files are links into the sources: copies go into the wheel.
        for package in ("tutti", "tutti_torch") if WITH_TORCH else ("tutti",):
            source = build / "python" / package
            if not list(source.glob("_*.so")):
                sys.exit(f"{package} was not built: {sys.executable} lacks what it is built against")
            shutil.copytree(source, Path(self.build_lib) / package, ignore=shutil.ignore_patterns("__pycache__"))
        if WITH_TORCH:
            shutil.copy(HERE / "tutti_torch_autoload.py", self.build_lib)
        # Both modules look for the library in the package tutti.
        library = next((build / "lib").glob("libtutti.so.?"))
        shutil.copy(os.path.realpath(library), Path(self.build_lib) / "tutti" / library.name)
        shutil.copy(ROOT / "LICENSE", Path(self.build_lib) / "tutti")


(BUILD / "setuptools").mkdir(parents=True, exist_ok=True)
setup(name="tutti", version=version(),
      description="Collectives for numpy arrays, a backend of torch.distributed, and training that hides its communication",
      license="Apache-2.0", python_requires=">=3.8", install_requires=["numpy"], packages=[], zip_safe=False,
      entry_points={"torch.backends": ["tutti = tutti_torch_autoload:register"]} if WITH_TORCH else {},
      ext_modules=[Extension("tutti._tutti", sources=[])],
      options={"build": {"build_base": str(BUILD / "setuptools")},
               "egg_info": {"egg_base": str(BUILD / "setuptools")}},
      cmdclass={"build_ext": CMakeBuild})
