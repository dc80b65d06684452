// device_memory.hpp - memory of a GPU as Python holds it; the base of tutti.DeviceArray.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>

#include "group.hpp"

namespace tutti_python {

struct DeviceMemory {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  pybind11::object owner;  // what keeps it alive

  void* data() const { return reinterpret_cast<void*>(address); }
};

// The memory behind an argument; null: it is a numpy array.
const DeviceMemory* device_memory(pybind11::handle object);

// Binds the class, and what the driver does for such memory.
void bind_device_memory(pybind11::module_& module);
// The end of a peer's view of memory that is not symmetric.
void bind_device_calls(GroupClass& group);

}  // namespace tutti_python
