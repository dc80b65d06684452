// The extension module tutti._tutti: what the Python package is built on, and nothing to call
// directly.
#include <pybind11/pybind11.h>

#include <string>

#include "device_memory.hpp"
#include "dlpack.hpp"
#include "group.hpp"
#include "mesh.hpp"
#include "store.hpp"
#include "symmetric.hpp"
#include "tutti/dtypes.hpp"
#include "tutti/version.h"
#include "work.hpp"

namespace py = pybind11;

namespace {

// word -> number, for every enumerator: the words are tutti's own.
template <class Enum>
py::dict words(int count) {
  py::dict table;
  for (int i = 0; i < count; ++i) table[py::str(std::string(to_string(static_cast<Enum>(i))))] = i;
  return table;
}

// numpy's name of each element type -> its number.
py::dict numpy_names() {
  py::dict table;
  for (int i = 0; i < tutti::kDtypes; ++i)
    table[py::str(std::string(info_of(static_cast<tutti::Dtype>(i)).numpy))] = i;
  return table;
}

// Of types that are not folded in themselves: the number of the one that they are folded in.
py::dict accumulation_codes() {
  py::dict table;
  for (int i = 0; i < tutti::kDtypes; ++i)
    if (const auto dtype = static_cast<tutti::Dtype>(i); accumulation_of(dtype) != dtype)
      table[py::int_(i)] = static_cast<int>(accumulation_of(dtype));
  return table;
}

// Older pybind11 reads the arrays of numpy 2 wrongly.
void check_numpy() {
  const auto version = py::module_::import("numpy").attr("__version__").cast<std::string>();
  if (PYBIND11_VERSION_MAJOR * 100 + PYBIND11_VERSION_MINOR < 212 && version.substr(0, 2) != "1.")
    throw py::import_error(
        "tutti was built with a pybind11 before 2.12, which does not know numpy " + version +
        ": build it again with a newer one");
}

}  // namespace

PYBIND11_MODULE(_tutti, module) {
  using namespace tutti_python;
  check_numpy();
  module.attr("__version__") = TUTTI_VERSION;
  module.attr("DTYPES") = words<tutti::Dtype>(tutti::kDtypes);
  module.attr("ACCUMULATION") = accumulation_codes();
  module.attr("NUMPY_NAMES") = numpy_names();
  module.attr("OPS") = words<tutti::ReduceOp>(tutti::kReduceOps);
  module.attr("COLLECTIVES") = words<tutti::Collective>(tutti::kCollectives);
  module.attr("ALGORITHMS") = words<tutti::Algorithm>(tutti::kAlgorithms);
  bind_store(module);
  bind_work(module);
  GroupClass group(module, "Group");
  bind_group(group);
  bind_calls(group);
  bind_symmetric_calls(group);
  bind_device_calls(group);
  bind_pool(module);
  bind_device_memory(module);
  bind_mesh(module);
  module.def("from_dlpack", &from_dlpack);
  module.def("from_dlpack_on_gpu", &from_dlpack_on_gpu);
  module.def("to_dlpack", &to_dlpack);
}
