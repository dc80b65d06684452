// Collectives and point to point. The Python side has made every array contiguous and counted it;
// here arrays become buffers, and the call runs without the interpreter's lock.
#include <pybind11/numpy.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "device_memory.hpp"
#include "failure.hpp"
#include "group.hpp"
#include "plain.hpp"
#include "work.hpp"

namespace py = pybind11;

namespace tutti_python {
namespace {

using tutti::Buffer;
using tutti::ConstBuffer;
using tutti::Dtype;

Buffer buffer_of(py::handle object, Dtype dtype) {
  if (const DeviceMemory* memory = device_memory(object))
    return {memory->data(), memory->bytes / size_of(dtype), dtype, tutti::Device::cuda};
  const auto array = py::reinterpret_borrow<py::array>(object);
  return {const_cast<void*>(array.data()),
          static_cast<std::size_t>(array.nbytes()) / size_of(dtype), dtype};
}

// One side of a call: nothing, one array, or a tuple of them.
template <class B>
class Side {
 public:
  Side(py::handle arrays, Dtype dtype) {
    if (arrays.is_none()) return;
    if (!PyTuple_Check(arrays.ptr())) {
      one_ = buffer_of(arrays, dtype);
      span_ = {&one_, 1};
      return;
    }
    for (py::handle array : arrays) many_.push_back(buffer_of(array, dtype));
    span_ = many_;
  }
  // So many elements of which nothing is there but their type.
  Side(std::size_t count, Dtype dtype) : one_{nullptr, count, dtype}, span_{&one_, 1} {}
  Side(const Side&) = delete;
  std::span<const B> span() const { return span_; }
  bool is_on(tutti::Device device) const {
    return std::any_of(span_.begin(), span_.end(),
                       [&](const B& each) { return each.device == device; });
  }

 private:
  B one_;
  std::vector<B> many_;
  std::span<const B> span_;
};

std::vector<std::size_t> counts_of(py::handle counts) {
  std::vector<std::size_t> list;
  if (counts.is_none()) return list;
  for (py::handle count : counts) list.push_back(count.cast<std::size_t>());
  return list;
}

// Whether a call's arrays are on a GPU. Ranks that refuse a call here have started nothing.
bool check_devices(bool any_cpu, bool any_gpu, void* stream) {
  if (any_cpu && any_gpu)
    raise(tutti::Code::invalid_argument,
          "arrays in CPU memory and on a GPU do not go together in one call");
  if (stream != nullptr && !any_gpu)
    raise(tutti::Code::invalid_argument,
          "stream= is for arrays on a GPU; the arrays of this call are in CPU memory");
  return any_gpu;
}

// `after`: None, or a tuple of the extension's works.
tutti::CallOptions options_of(double timeout_s, int algorithm, const std::string& name,
                              void* stream, py::handle after) {
  tutti::CallOptions options;
  options.timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::clamp(timeout_s, 0.0, 1e9)));
  options.algorithm = static_cast<tutti::Algorithm>(algorithm);
  options.name = name.c_str();
  options.stream = stream;
  options.interrupted = &was_interrupted;
  if (after.is_none()) return options;
  for (py::handle work : after) options.after(work.cast<PendingWork&>().work());
  return options;
}

// Python's own exception goes first: the group was aborted because of it.
void finish(const tutti::Status& status) {
  if (status.ok()) return;
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  raise(status);
}

void run_blocking(HeldGroup& self, const tutti::Call& call) {
  const std::shared_ptr<tutti::Group> group = self.for_turn();
  tutti::Status status;
  {
    const py::gil_scoped_release unlocked;
    const Turn turn(self);
    status = group->run(call);
  }
  finish(status);
}

tutti::Work start(HeldGroup& self, const tutti::Call& call) {
  const std::shared_ptr<tutti::Group> group = self.for_turn();
  const py::gil_scoped_release unlocked;
  const Turn turn(self);
  return group->start(call);
}

// The arguments of run, in their order.
enum Argument {
  kCollective,
  kDtype,
  kResultDtype,
  kInputs,
  kOutputs,
  kInputCounts,
  kOutputCounts,
  kOp,
  kScalar,
  kRoot,
  kUneven,
  kAsync,
  kTimeout,
  kAlgorithm,
  kName,
  kStream,
  kAfter,
  kArguments,
};

int integer(PyObject* object) {
  const long value = PyLong_AsLong(object);
  if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return static_cast<int>(std::clamp<long>(value, INT_MIN, INT_MAX));
}

double real(PyObject* object) {
  const double value = PyFloat_AsDouble(object);
  if (value == -1.0 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return value;
}

std::string text(PyObject* object) {
  return object == Py_None ? std::string() : py::handle(object).cast<std::string>();
}

void* stream_of(PyObject* object) {
  const unsigned long long value = PyLong_AsUnsignedLongLong(object);
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  return reinterpret_cast<void*>(value);
}

// Returns None, or the Work of an asynchronous call.
py::object run(HeldGroup& self, PyObject* const* arguments) {
  auto name = std::make_unique<std::string>(text(arguments[kName]));
  const auto dtype = static_cast<Dtype>(integer(arguments[kDtype]));
  const Side<ConstBuffer> input(arguments[kInputs], dtype);
  const auto result_dtype = static_cast<Dtype>(integer(arguments[kResultDtype]));
  // Away from the root there is no output to say that a fold is not to be rounded.
  const bool only_says_type = result_dtype != dtype && arguments[kOutputs] == Py_None;
  const Side<Buffer> output = only_says_type
                                  ? Side<Buffer>(input.span()[0].count, result_dtype)
                                  : Side<Buffer>(py::handle(arguments[kOutputs]), result_dtype);
  const std::vector<std::size_t> input_parts = counts_of(arguments[kInputCounts]);
  const std::vector<std::size_t> output_parts = counts_of(arguments[kOutputCounts]);
  tutti::Call call;
  call.collective = static_cast<tutti::Collective>(integer(arguments[kCollective]));
  call.input = input.span();
  call.output = output.span();
  call.input_counts = input_parts;
  call.output_counts = output_parts;
  call.reduction.op = static_cast<tutti::ReduceOp>(integer(arguments[kOp]));
  call.reduction.scalar = real(arguments[kScalar]);
  call.root = integer(arguments[kRoot]);
  call.uneven = arguments[kUneven] == Py_True;
  void* const stream = stream_of(arguments[kStream]);
  call.options = options_of(real(arguments[kTimeout]), integer(arguments[kAlgorithm]), *name,
                            stream, arguments[kAfter]);
  const bool on_device = check_devices(
      input.is_on(tutti::Device::cpu) || (output.is_on(tutti::Device::cpu) && !only_says_type),
      input.is_on(tutti::Device::cuda) || output.is_on(tutti::Device::cuda), stream);
  const bool is_async = arguments[kAsync] == Py_True;
  if (!is_async && !on_device) {
    run_blocking(self, call);
    return py::none();
  }
  py::object held = py::make_tuple(py::handle(arguments[kInputs]), py::handle(arguments[kOutputs]));
  PendingWork work(start(self, call), std::move(held), std::move(name), on_device);
  if (is_async) return py::cast(std::move(work));
  // A GPU comes to it later: until then the arrays are kept, whoever drops them.
  work.wait_on(stream);
  return py::none();
}

// all_reduce of plain arrays: (x, op's number, out or None). NotImplemented: not a case for here.
py::object fold_plain(HeldGroup& self, PyObject* const* arguments) {
  const py::handle x(arguments[0]);
  const Plain in = look_at(x);
  if (in.dtype < 0) return py::reinterpret_borrow<py::object>(Py_NotImplemented);
  py::object out;
  if (arguments[2] == Py_None) {
    const auto array = py::reinterpret_borrow<py::array>(x);
    if (array.ndim() == 0) return py::reinterpret_borrow<py::object>(Py_NotImplemented);
    out = py::array(array.dtype(),
                    std::vector<py::ssize_t>(array.shape(), array.shape() + array.ndim()));
  } else {
    const Plain target = look_at(arguments[2]);
    if (target.dtype != in.dtype || !target.writable || target.bytes != in.bytes)
      return py::reinterpret_borrow<py::object>(Py_NotImplemented);
    out = py::reinterpret_borrow<py::object>(arguments[2]);
  }
  const auto dtype = static_cast<Dtype>(in.dtype);
  const ConstBuffer input = buffer_of(x, dtype);
  const Buffer output = buffer_of(out, dtype);
  tutti::Call call;
  call.collective = tutti::Collective::all_reduce;
  call.input = {&input, 1};
  call.output = {&output, 1};
  call.reduction.op = static_cast<tutti::ReduceOp>(integer(arguments[1]));
  call.options.interrupted = &was_interrupted;
  run_blocking(self, call);
  return out;
}

// `transfers`: (is_send, array, dtype, peer, tag) each.
std::vector<tutti::Transfer> transfers_of(const py::list& transfers) {
  std::vector<tutti::Transfer> list;
  for (py::handle each : transfers) {
    const auto fields = py::reinterpret_borrow<py::tuple>(each);
    tutti::Transfer transfer;
    transfer.kind =
        fields[0].cast<bool>() ? tutti::Transfer::Kind::send : tutti::Transfer::Kind::recv;
    transfer.buffer = buffer_of(fields[1], static_cast<Dtype>(fields[2].cast<int>()));
    transfer.peer = fields[3].cast<int>();
    transfer.tag = fields[4].cast<std::uint32_t>();
    list.push_back(transfer);
  }
  return list;
}

// Returns what the last receive learned, or the Work of an asynchronous call. Takes no turn: the
// other side of a message may be waited for by a thread that is in a collective.
py::object exchange(HeldGroup& self, const py::list& transfers, bool is_async, double timeout_s,
                    py::handle name, py::handle stream, py::handle after) {
  auto held_name = std::make_unique<std::string>(text(name.ptr()));
  const std::vector<tutti::Transfer> list = transfers_of(transfers);
  const tutti::CallOptions options =
      options_of(timeout_s, 0, *held_name, stream_of(stream.ptr()), after);
  const bool on_device = check_devices(
      false,
      std::any_of(
          list.begin(), list.end(),
          [](const tutti::Transfer& each) { return each.buffer.device == tutti::Device::cuda; }),
      options.stream);
  const std::shared_ptr<tutti::Group> group = self.get();
  if (is_async)
    return py::cast(
        PendingWork(group->transfer(list, options), transfers, std::move(held_name), on_device));
  const auto received = [&] {
    const py::gil_scoped_release unlocked;
    return group->exchange(list, options);
  }();
  finish(received.status());
  return py::make_tuple(received->source, received->tag, received->bytes);
}

// Plain functions of C: pybind11 would take longer to match sixteen arguments than a small
// collective takes.
constexpr const char* kGroupInside = "tutti.held_group";

template <py::object (*F)(HeldGroup&, PyObject* const*), int kCount>
PyObject* called(PyObject* capsule, PyObject* const* arguments, Py_ssize_t count) {
  if (count != kCount) {
    PyErr_Format(PyExc_TypeError, "%d arguments are wanted, %zd were given", kCount, count);
    return nullptr;
  }
  try {
    auto* held =
        static_cast<std::shared_ptr<HeldGroup>*>(PyCapsule_GetPointer(capsule, kGroupInside));
    return F(**held, arguments).release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

template <py::object (*F)(HeldGroup&, PyObject* const*), int kCount>
py::object function_of(const std::shared_ptr<HeldGroup>& self, const char* name) {
  using FastFunction = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);
  static PyMethodDef definition{name, nullptr, METH_FASTCALL, nullptr};
  const FastFunction function = &called<F, kCount>;
  definition.ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
  auto* held = new std::shared_ptr<HeldGroup>(self);
  const py::capsule inside(held, kGroupInside, [](PyObject* capsule) {
    delete static_cast<std::shared_ptr<HeldGroup>*>(PyCapsule_GetPointer(capsule, kGroupInside));
  });
  return py::reinterpret_steal<py::object>(PyCFunction_New(&definition, inside.ptr()));
}

}  // namespace

void bind_calls(GroupClass& group) {
  group.def("exchange", &exchange)
      .def("runner",
           [](const std::shared_ptr<HeldGroup>& self) {
             return function_of<&run, kArguments>(self, "run");
           })
      .def("plain_fold", [](const std::shared_ptr<HeldGroup>& self) {
        return function_of<&fold_plain, 3>(self, "plain_fold");
      });
}

}  // namespace tutti_python
