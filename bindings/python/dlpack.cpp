#include "dlpack.hpp"

#include <pybind11/numpy.h>

#include <cstdint>
#include <memory>
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
constexpr int kGpu = 2;
constexpr int kPinned = 3;    // CPU memory that a device can reach
constexpr int kManaged = 13;  // memory that moves between a GPU and the host

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
            "); tutti reaches CPU memory and CUDA devices: copy it to the host first");
}

py::object capsule_of(const py::object& producer, const py::dict& arguments) {
  py::dict versioned(**arguments);
  versioned["max_version"] = py::make_tuple(1, 0);
  try {
    return producer.attr("__dlpack__")(**versioned);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return producer.attr("__dlpack__")(**arguments);  // a producer from before versions
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

Element known_element_of(const Tensor& tensor) {
  Element element = element_of(tensor.element);
  if (element.numpy.empty())
    raise(tutti::Code::invalid_argument,
          "an array has elements of DLPack kind " + std::to_string(tensor.element.kind) + " with " +
              std::to_string(tensor.element.bits) + " bits, which tutti has no type for");
  return element;
}

py::tuple view_of(const Tensor& tensor, const py::capsule& owner, bool writable) {
  const Element element = known_element_of(tensor);
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

// Elements of an array that lies in C order; raises for any other.
std::size_t contiguous_size(const Tensor& tensor) {
  std::int64_t size = 1;
  for (int i = 0; i < tensor.dimensions; ++i) size *= tensor.shape[i];
  std::int64_t step = 1;
  for (int i = tensor.dimensions; size > 0 && tensor.strides != nullptr && i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != step)
      raise(tutti::Code::invalid_argument,
            "an array on a GPU is not contiguous in C order: copy it to one that is");
    step *= tensor.shape[i];
  }
  return static_cast<std::size_t>(size);
}

py::tuple view_on_gpu(const Tensor& tensor, const py::capsule& owner, bool writable) {
  if (tensor.device.kind != kGpu && tensor.device.kind != kManaged)
    raise(tutti::Code::invalid_argument,
          "an array says that it is on a GPU, and gives memory of DLPack kind " +
              std::to_string(tensor.device.kind));
  const Element element = known_element_of(tensor);
  py::tuple shape(tensor.dimensions);
  for (int i = 0; i < tensor.dimensions; ++i)
    shape[static_cast<std::size_t>(i)] = py::int_(tensor.shape[i]);
  const std::size_t bytes = contiguous_size(tensor) * tensor.element.bits / 8;
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset;
  return py::make_tuple(address, bytes, shape, element.numpy, element.dtype, writable, owner);
}

// Takes the tensor that a producer gives for these arguments; `view` makes of it what is returned.
template <class View>
py::tuple taken(const py::object& producer, const py::dict& arguments, View view) {
  const py::object capsule = capsule_of(producer, arguments);
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    auto* managed =
        take<ManagedVersioned>(capsule, "dltensor_versioned", "used_dltensor_versioned");
    const py::capsule owner = owner_of(managed);
    if (managed->major != 1)
      raise(tutti::Code::unsupported, "an array speaks DLPack of another major version");
    return view(managed->tensor, owner, (managed->flags & kReadOnly) == 0);
  }
  auto* managed = take<Managed>(capsule, "dltensor", "used_dltensor");
  return view(managed->tensor, owner_of(managed), true);
}

// ---- the other way

void describe(Managed& managed, void* context, void (*release)(Managed*)) {
  managed.context = context;
  managed.release = release;
}
void describe(ManagedVersioned& managed, void* context, void (*release)(ManagedVersioned*)) {
  managed.major = 1;
  managed.minor = 0;
  managed.context = context;
  managed.release = release;
  managed.flags = 0;
}

// What a capsule points to, until its taker releases it.
template <class M>
struct Exported {
  M managed{};
  py::object owner;
  std::vector<std::int64_t> shape, strides;

  // By whichever thread drops it last.
  static void release(M* managed) {
    if (Py_IsInitialized() == 0) return;
    const py::gil_scoped_acquire lock;
    delete static_cast<Exported*>(managed->context);
  }
};

ElementOf exported_element(int dtype, int parts) {
  const tutti::DtypeInfo& info = info_of(static_cast<tutti::Dtype>(dtype));
  const int kind = parts == 2 ? kComplex : info.dlpack;
  return {static_cast<std::uint8_t>(kind), static_cast<std::uint8_t>(8 * info.bytes * parts), 1};
}

template <class M>
py::object exported(std::unique_ptr<Exported<M>> made, const Tensor& tensor, const char* name,
                    PyCapsule_Destructor drop) {
  made->managed.tensor = tensor;
  made->managed.tensor.shape = made->shape.data();
  made->managed.tensor.strides = made->strides.data();
  describe(made->managed, made.get(), &Exported<M>::release);
  PyObject* const capsule = PyCapsule_New(&made->managed, name, drop);
  if (capsule == nullptr) throw py::error_already_set();
  made.release();
  return py::reinterpret_steal<py::object>(capsule);
}

// Of a capsule that nobody took.
template <class M>
void drop_capsule(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, name));
  managed->release(managed);
}

template <class M>
std::unique_ptr<Exported<M>> with_shape(py::object owner, const py::tuple& shape) {
  auto made = std::make_unique<Exported<M>>();
  made->owner = std::move(owner);
  for (py::handle length : shape) made->shape.push_back(length.cast<std::int64_t>());
  made->strides.resize(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = made->shape.size(); i-- > 0;) {
    made->strides[i] = step;
    step *= made->shape[i];
  }
  return made;
}

}  // namespace

py::tuple from_dlpack(py::object producer) {
  check_device(producer);
  return taken(producer, py::dict(), view_of);
}

py::tuple from_dlpack_on_gpu(py::object producer, std::uint64_t stream) {
  py::dict arguments;
  arguments["stream"] = stream;
  return taken(producer, arguments, view_on_gpu);
}

py::object to_dlpack(py::object owner, std::uintptr_t address, int gpu, int dtype, int parts,
                     const py::tuple& shape, bool versioned) {
  Tensor tensor{};
  tensor.data = reinterpret_cast<void*>(address);
  tensor.device = {kGpu, gpu};
  tensor.dimensions = static_cast<std::int32_t>(shape.size());
  tensor.element = exported_element(dtype, parts);
  if (versioned)
    return exported(
        with_shape<ManagedVersioned>(std::move(owner), shape), tensor, "dltensor_versioned",
        [](PyObject* capsule) { drop_capsule<ManagedVersioned>(capsule, "dltensor_versioned"); });
  return exported(with_shape<Managed>(std::move(owner), shape), tensor, "dltensor",
                  [](PyObject* capsule) { drop_capsule<Managed>(capsule, "dltensor"); });
}

}  // namespace tutti_python
