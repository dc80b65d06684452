// The extension module tutti._tutti: what the Python package is built on, and nothing to call
// directly.
#include <pybind11/pybind11.h>

#include <string>

#include "dlpack.hpp"
#include "group.hpp"
#include "plain.hpp"
#include "store.hpp"
#include "work.hpp"

namespace py = pybind11;

namespace {

// word -> number, for every enumerator: the words are tutti's own.
template <class Enum>
py::dict words(int count) {
  py::dict table;
  for (int i = 0; i < count; ++i)
    table[py::str(std::string(to_string(static_cast<Enum>(i))))] = i;
  return table;
}

}  // namespace

PYBIND11_MODULE(_tutti, module) {
  using namespace tutti_python;
  module.attr("DTYPES") = words<tutti::Dtype>(tutti::kDtypes);
  module.attr("OPS") = words<tutti::ReduceOp>(tutti::kReduceOps);
  module.attr("COLLECTIVES") = words<tutti::Collective>(tutti::kCollectives);
  module.attr("ALGORITHMS") = words<tutti::Algorithm>(tutti::kAlgorithms);
  bind_store(module);
  bind_work(module);
  GroupClass group(module, "Group");
  bind_group(group);
  bind_calls(group);
  module.def("from_dlpack", &from_dlpack);
  // tutti's dtype of an array that can travel as it is, else -1.
  module.def("plain_dtype", [](py::handle object) { return look_at(object).dtype; });
}
