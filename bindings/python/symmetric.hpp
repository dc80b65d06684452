// symmetric.hpp - symmetric memory as Python holds it, and pools of it.
#pragma once

#include <pybind11/pybind11.h>

#include "group.hpp"

namespace tutti_python {

// group.allocate and group.pool.
void bind_symmetric_calls(GroupClass& group);
void bind_pool(pybind11::module_& module);

}  // namespace tutti_python
