"""Builds tutti_torch, and the package tutti that it needs, for the torch of this Python:

    python3 -m pip install --no-build-isolation ./bindings/torch

CMake and ninja do the work, on the repository that this folder is in. Nothing is downloaded.
"""

import os
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


def version():
    for line in (ROOT / "CMakeLists.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("project(tutti VERSION "):
            return line.split()[2]
    sys.exit("CMakeLists.txt of the repository names no version")


class CMakeBuild(build_ext):
    def run(self):
        for program in ("cmake", "ninja"):
            if shutil.which(program) is None:
                sys.exit(f"{program} is missing (Debian: apt-get install cmake ninja-build)")
        shutil.rmtree(BUILD / "python", ignore_errors=True)  # files that are gone since the last build
        off = [f"-DTUTTI_{part}=OFF" for part in ("TESTS", "TOOL", "EXAMPLES", "BENCH", "LIBTORCH")]
        subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                        f"-DTUTTI_PYTHON={sys.executable}", *off], check=True)
        subprocess.run(["cmake", "--build", BUILD, "--target", "python_modules"], check=True)
        self.collect()

    def collect(self):
        # The build tree's Python files are links into the sources: copies go into the wheel.
        for package in ("tutti", "tutti_torch"):
            target = Path(self.build_lib) / package
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(BUILD / "python" / package, target,
                            ignore=shutil.ignore_patterns("__pycache__"))
        if not list((Path(self.build_lib) / "tutti_torch").glob("_C*.so")):
            sys.exit(f"tutti_torch was not built: {sys.executable} has no torch that can be built against")
        shutil.copy(HERE / "tutti_torch_autoload.py", self.build_lib)
        # Both modules look for the library in the package tutti.
        library = BUILD / "lib" / "libtutti.so.0"
        shutil.copy(os.path.realpath(library), Path(self.build_lib) / "tutti" / library.name)


(BUILD / "setuptools").mkdir(parents=True, exist_ok=True)
setup(name="tutti_torch", version=version(),
      description="tutti as a backend of torch.distributed, and its collectives for numpy arrays",
      python_requires=">=3.8", packages=[], zip_safe=False,
      entry_points={"torch.backends": ["tutti = tutti_torch_autoload:register"]},
      ext_modules=[Extension("tutti_torch._C", sources=[])],
      options={"build": {"build_base": str(BUILD / "setuptools")},
               "egg_info": {"egg_base": str(BUILD / "setuptools")}},
      cmdclass={"build_ext": CMakeBuild})
