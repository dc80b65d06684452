"""Prints where this Python's torch is and how it was built, as CMake's set() commands; exit 1 without."""

import glob
import os
import shutil
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



def cuda_headers():
    """The folder of CUDA's headers, which those of torch include: beside torch's wheel, or a toolkit's."""
    tools = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"),
             os.path.dirname(os.path.dirname(shutil.which("nvcc") or "")), "/usr/local/cuda"]
    folders = glob.glob(os.path.join(os.path.dirname(root), "nvidia", "*", "include"))
    for folder in sorted(folders) + [os.path.join(tool, "include") for tool in tools if tool]:
        if all(os.path.exists(os.path.join(folder, name)) for name in ("cuda_runtime_api.h", "crt/host_defines.h")):
            return folder
    return None


# Extension modules see each other's types only where pybind11 was compiled alike.
definitions = [f"_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
# What torch's allocator tells of memory on a GPU needs a part of torch that not every torch has.
cuda_library = os.path.join(root, "lib", "libc10_cuda.so")
allocator = os.path.join(include, "c10", "cuda", "CUDACachingAllocator.h")
if torch.version.cuda and os.path.exists(cuda_library) and os.path.exists(allocator) and cuda_headers():
    definitions.append("TUTTI_TORCH_CUDA=1")
    libraries.append(cuda_library)
    includes.append(cuda_headers())
for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
    value = getattr(torch._C, f"_PYBIND11_{name}", None)
    if value is not None:
        definitions.append(f'PYBIND11_{name}=\\"{value}\\"')

print(f'set(TORCH_PYTHON_ROOT "{root}")')
print(f'set(TORCH_PYTHON_VERSION "{torch.__version__}")')
print(f'set(TORCH_PYTHON_INCLUDES "{";".join(includes)}")')
print(f'set(TORCH_PYTHON_LIBRARIES "{";".join(libraries)}")')
print(f'set(TORCH_PYTHON_DEFINITIONS "{";".join(definitions)}")')
print(f'set(TORCH_PYTHON_PYBIND11 "{pybind11}")')
print(f'set(TORCH_PYTHON_SUFFIX "{sysconfig.get_config_var("EXT_SUFFIX")}")')
