#include "plain.hpp"

#include <pybind11/numpy.h>

#include "elements.hpp"

namespace py = pybind11;

namespace tutti_python {

Plain look_at(py::handle object) {
  static PyTypeObject* const array_type = py::detail::npy_api::get().PyArray_Type_;
  if (Py_TYPE(object.ptr()) != array_type) return {};
  const auto array = py::reinterpret_borrow<py::array>(object);
  if ((array.flags() & py::array::c_style) == 0) return {};
  const py::dtype type = array.dtype();
  if (type.byteorder() == '>') return {};
  Plain plain;
  const auto dtype =
      dtype_of_dlpack(dlpack_code_of(type.kind()), 8 * static_cast<int>(type.itemsize()));
  if (dtype) plain.dtype = static_cast<int>(*dtype);
  plain.writable = array.writeable();
  plain.bytes = static_cast<std::size_t>(array.nbytes());
  return plain;
}

}  // namespace tutti_python
