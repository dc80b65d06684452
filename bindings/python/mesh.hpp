// mesh.hpp - a mesh as Python sees it: calls wait without the interpreter's lock.
#pragma once

#include <pybind11/pybind11.h>

namespace tutti_python {

void bind_mesh(pybind11::module_& module);

}  // namespace tutti_python
