#include "failure.hpp"

namespace py = pybind11;

namespace tutti_python {

void raise(const tutti::Status& status) {
  const py::object error =
      py::module_::import("tutti.errors")
          .attr("from_code")(std::string(to_string(status.code())), status.message(), status.rank(),
                             status.peer(), status.sequence());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

void raise(tutti::Code code, const std::string& message) { raise(tutti::Status(code, message)); }

bool was_interrupted() {
  const py::gil_scoped_acquire lock;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

void check_interrupted() {
  if (PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace tutti_python
