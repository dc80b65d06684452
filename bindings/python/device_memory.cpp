#include "device_memory.hpp"

#include <pybind11/numpy.h>

#include "driver.hpp"
#include "failure.hpp"

namespace py = pybind11;

namespace tutti_python {
namespace {

void forget(HeldGroup& self, std::uintptr_t allocation) {
  const std::shared_ptr<tutti::Group> group = self.get();
  const py::gil_scoped_release unlocked;
  group->forget(reinterpret_cast<const void*>(allocation));
}

}  // namespace

const DeviceMemory* device_memory(py::handle object) {
  if (py::isinstance<py::array>(object) || !py::isinstance<DeviceMemory>(object)) return nullptr;
  return object.cast<const DeviceMemory*>();
}

void bind_device_memory(py::module_& module) {
  py::class_<DeviceMemory>(module, "DeviceMemory")
      .def(py::init([](std::uintptr_t address, std::size_t bytes, py::object owner) {
        return DeviceMemory{address, bytes, std::move(owner)};
      }))
      .def_readonly("address", &DeviceMemory::address)
      .def_readonly("nbytes", &DeviceMemory::bytes);
  module.def("gpu_of", &gpu_of);
  module.def("allocation_of", &allocation_of);
  module.def("order_streams", &order_streams);
  module.def("copy_on_gpu", &copy_on_gpu);
}

void bind_device_calls(GroupClass& group) { group.def("forget", &forget); }

}  // namespace tutti_python
