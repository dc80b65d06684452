"""Prints where this Python's torch is and how it was built, as CMake's set() commands; exit 1 without."""

import os
import sys
import sysconfig

try:
    import torch
except ImportError as error:
    sys.exit(f"{sys.executable} has no torch: {error}")

root = os.path.dirname(torch.__file__)
include = os.path.join(root, "include")
includes = [include, os.path.join(include, "torch", "csrc", "api", "include"),
            sysconfig.get_paths()["include"]]
if not os.path.exists(os.path.join(include, "torch", "csrc", "distributed", "c10d", "Types.hpp")):
    sys.exit(f"torch in {root} comes without c10d's headers (Debian: libtorch-dev)")
pybind11 = include if os.path.exists(os.path.join(include, "pybind11", "pybind11.h")) else ""
if not os.path.exists(os.path.join(includes[2], "Python.h")):
    sys.exit(f"Python.h is missing in {includes[2]} (Debian: python3-dev)")
libraries = [os.path.join(root, "lib", f"lib{name}.so") for name in ("c10", "torch_cpu", "torch_python")]

# Extension modules see each other's types only where pybind11 was compiled alike.
definitions = [f"_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
    value = getattr(torch._C, f"_PYBIND11_{name}", None)
    if value is not None:
        definitions.append(f'PYBIND11_{name}=\\"{value}\\"')

print(f'set(TORCH_PYTHON_VERSION "{torch.__version__}")')
print(f'set(TORCH_PYTHON_INCLUDES "{";".join(includes)}")')
print(f'set(TORCH_PYTHON_LIBRARIES "{";".join(libraries)}")')
print(f'set(TORCH_PYTHON_DEFINITIONS "{";".join(definitions)}")')
print(f'set(TORCH_PYTHON_PYBIND11 "{pybind11}")')
print(f'set(TORCH_PYTHON_SUFFIX "{sysconfig.get_config_var("EXT_SUFFIX")}")')
