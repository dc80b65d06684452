#include "dlpack.hpp"

#include <pybind11/numpy.h>

#include <cstdint>
#include <string>
#include <vector>

#include "elements.hpp"
#include "failure.hpp"

namespace py = pybind11;

namespace tutti_python {
namespace {

// The binary interface that DLPack fixes; names are ours.
struct DeviceOf {
  std::int32_t kind;
  std::int32_t id;
};
struct ElementOf {
  std::uint8_t kind;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct Tensor {
  void* data;
  DeviceOf device;
  std::int32_t dimensions;
  ElementOf element;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: C order
  std::uint64_t byte_offset;
};
struct Managed {
  Tensor tensor;
  void* context;
  void (*release)(Managed*);
};
struct ManagedVersioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*release)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};
constexpr std::uint64_t kReadOnly = 1;
constexpr int kCpu = 1;
constexpr int kPinned = 3;  // CPU memory that a device can reach

constexpr int kComplex = 5;

struct Element {
  std::string numpy;  // a type of numpy's with the same size; empty: there is none
  int dtype = -1;     // of tutti, where numpy has none
};

Element element_of(ElementOf type) {
  if (type.lanes != 1) return {};
  if (type.kind == kComplex && (type.bits == 64 || type.bits == 128))
    return {"c" + std::to_string(type.bits / 8)};
  const auto dtype = dtype_of_dlpack(type.kind, type.bits);
  if (!dtype) return {};
  for (const char letter : {'i', 'u', 'f', 'b'})
    if (dlpack_code_of(letter) == type.kind) return {std::string(info_of(*dtype).numpy)};
  return {"u" + std::to_string(type.bits / 8), static_cast<int>(*dtype)};
}

void check_device(const py::object& producer) {
  const auto device = producer.attr("__dlpack_device__")().cast<py::tuple>();
  const int kind = device[0].cast<int>();
  if (kind == kCpu || kind == kPinned) return;
  raise(tutti::Code::unsupported,
        "an array lives on a device (DLPack kind " + std::to_string(kind) +
            "); tutti reaches CPU memory only: copy it to the host first");
}

py::object capsule_of(const py::object& producer) {
  try {
    return producer.attr("__dlpack__")(py::arg("max_version") = py::make_tuple(1, 0));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return producer.attr("__dlpack__")();  // a producer from before versions
}

// Takes the tensor out of the capsule, as the protocol asks: renames it and owns it from then on.
template <class M>
M* take(const py::object& capsule, const char* name, const char* used) {
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (managed == nullptr || PyCapsule_SetName(capsule.ptr(), used) != 0)
    throw py::error_already_set();
  return managed;
}

template <class M>
py::capsule owner_of(M* managed) {
  return py::capsule(managed, [](void* pointer) {
    auto* gone = static_cast<M*>(pointer);
    if (gone->release != nullptr) gone->release(gone);
  });
}

py::tuple view_of(const Tensor& tensor, const py::capsule& owner, bool writable) {
  const Element element = element_of(tensor.element);
  if (element.numpy.empty())
    raise(tutti::Code::invalid_argument,
          "an array has elements of DLPack kind " + std::to_string(tensor.element.kind) + " with " +
              std::to_string(tensor.element.bits) + " bits, which tutti has no type for");
  const py::dtype dtype(element.numpy);
  std::vector<py::ssize_t> shape(tensor.shape, tensor.shape + tensor.dimensions);
  std::vector<py::ssize_t> strides(shape.size());
  py::ssize_t step = dtype.itemsize();
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = tensor.strides != nullptr ? tensor.strides[i] * dtype.itemsize() : step;
    step *= shape[i];
  }
  auto* data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  return py::make_tuple(py::array(dtype, shape, strides, data, owner), element.dtype, writable);
}

}  // namespace

py::tuple from_dlpack(py::object producer) {
  check_device(producer);
  const py::object capsule = capsule_of(producer);
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    auto* managed =
        take<ManagedVersioned>(capsule, "dltensor_versioned", "used_dltensor_versioned");
    const py::capsule owner = owner_of(managed);
    if (managed->major != 1)
      raise(tutti::Code::unsupported, "an array speaks DLPack of another major version");
    return view_of(managed->tensor, owner, (managed->flags & kReadOnly) == 0);
  }
  auto* managed = take<Managed>(capsule, "dltensor", "used_dltensor");
  return view_of(managed->tensor, owner_of(managed), true);
}

}  // namespace tutti_python
