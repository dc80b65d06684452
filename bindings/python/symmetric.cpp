#include "symmetric.hpp"

#include <pybind11/numpy.h>

#include <memory>
#include <utility>

#include "failure.hpp"
#include "tutti/symmetric_pool.hpp"

namespace py = pybind11;

namespace tutti_python {
namespace {

using tutti::Device;
using tutti::SymmetricMemory;
using tutti::SymmetricPool;

Device device_of(bool on_gpu) { return on_gpu ? Device::cuda : Device::cpu; }

// What keeps memory alive for as long as Python has it.
py::capsule owner_of(SymmetricMemory memory) {
  return {new SymmetricMemory(std::move(memory)), [](void* pointer) {
            const py::gil_scoped_release unlocked;
            delete static_cast<SymmetricMemory*>(pointer);
          }};
}

// In CPU memory its bytes as an array; on a GPU (address, owner).
py::object handed_out(SymmetricMemory memory, bool on_gpu) {
  void* const data = memory.data;
  const auto bytes = static_cast<py::ssize_t>(memory.bytes);
  const py::capsule owner = owner_of(std::move(memory));
  if (on_gpu) return py::make_tuple(reinterpret_cast<std::uintptr_t>(data), owner);
  return py::array_t<std::uint8_t>(bytes, static_cast<std::uint8_t*>(data), owner);
}

// What all ranks of a group do together, without the interpreter's lock.
template <class F>
auto in_turn(HeldGroup& self, const F& make) {
  const std::shared_ptr<tutti::Group> group = self.for_turn();
  auto made = [&] {
    const py::gil_scoped_release unlocked;
    const Turn turn(self);
    return make(group);
  }();
  return unwrap(std::move(made));
}

py::object allocate(HeldGroup& self, std::size_t bytes, bool on_gpu) {
  return handed_out(
      in_turn(self, [&](const auto& group) { return group->allocate(bytes, device_of(on_gpu)); }),
      on_gpu);
}

struct HeldPool {
  SymmetricPool pool;
  bool on_gpu = false;

  py::object take(std::size_t bytes) const { return handed_out(unwrap(pool.take(bytes)), on_gpu); }
};

HeldPool make_pool(HeldGroup& self, std::size_t bytes, bool on_gpu) {
  return {in_turn(self,
                  [&](const auto& group) {
                    return SymmetricPool::create(group, bytes, device_of(on_gpu));
                  }),
          on_gpu};
}

}  // namespace

void bind_symmetric_calls(GroupClass& group) {
  group.def("allocate", &allocate).def("pool", &make_pool);
}

void bind_pool(py::module_& module) {
  py::class_<HeldPool>(module, "Pool")
      .def("take", &HeldPool::take)
      .def("bytes", [](const HeldPool& self) { return self.pool.bytes(); })
      .def("bytes_free", [](const HeldPool& self) { return self.pool.bytes_free(); })
      .def("largest_free", [](const HeldPool& self) { return self.pool.largest_free(); })
      .def("peak_bytes", [](const HeldPool& self) { return self.pool.peak_bytes(); });
}

}  // namespace tutti_python
