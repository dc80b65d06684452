// Collectives and point to point. The Python side has made every array contiguous and counted it;
// here arrays become buffers, and the call runs without the interpreter's lock.
#include <pybind11/numpy.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "failure.hpp"
#include "group.hpp"
#include "work.hpp"

namespace py = pybind11;

namespace tutti_python {
namespace {

using tutti::Buffer;
using tutti::ConstBuffer;
using tutti::Dtype;

Buffer buffer_of(py::handle object, Dtype dtype) {
  const auto array = py::reinterpret_borrow<py::array>(object);
  return {const_cast<void*>(array.data()), static_cast<std::size_t>(array.nbytes()) / size_of(dtype),
          dtype};
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
  Side(const Side&) = delete;
  std::span<const B> span() const { return span_; }

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

tutti::CallOptions options_of(double timeout_s, int algorithm, const std::string& name) {
  tutti::CallOptions options;
  options.timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::clamp(timeout_s, 0.0, 1e9)));
  options.algorithm = static_cast<tutti::Algorithm>(algorithm);
  options.name = name.c_str();
  options.interrupted = &was_interrupted;
  return options;
}

// Python's own exception goes first: the group was aborted because of it.
void finish(const tutti::Status& status) {
  if (status.ok()) return;
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  raise(status);
}

void run_blocking(HeldGroup& self, const tutti::Call& call) {
  const std::shared_ptr<tutti::Group> group = self.get();
  tutti::Status status;
  {
    const py::gil_scoped_release unlocked;
    const std::scoped_lock turn(self.turn());
    status = group->run(call);
  }
  finish(status);
}

template <class Start>
py::object start(HeldGroup& self, py::object held, std::unique_ptr<std::string> name,
                 Start&& start_it) {
  const std::shared_ptr<tutti::Group> group = self.get();
  tutti::Work work;
  {
    const py::gil_scoped_release unlocked;
    const std::scoped_lock turn(self.turn());
    work = start_it(*group);
  }
  return py::cast(PendingWork(std::move(work), std::move(held), std::move(name)));
}

// Returns None, or the Work of an asynchronous call.
py::object run(HeldGroup& self, int collective, int dtype, py::object inputs, py::object outputs,
               py::handle input_counts, py::handle output_counts, int op, double scalar, int root,
               bool uneven, bool is_async, double timeout_s, int algorithm, py::handle name) {
  auto held_name = std::make_unique<std::string>(name.is_none() ? "" : name.cast<std::string>());
  const Side<ConstBuffer> input(inputs, static_cast<Dtype>(dtype));
  const Side<Buffer> output(outputs, static_cast<Dtype>(dtype));
  const std::vector<std::size_t> input_parts = counts_of(input_counts);
  const std::vector<std::size_t> output_parts = counts_of(output_counts);
  tutti::Call call;
  call.collective = static_cast<tutti::Collective>(collective);
  call.input = input.span();
  call.output = output.span();
  call.input_counts = input_parts;
  call.output_counts = output_parts;
  call.reduction.op = static_cast<tutti::ReduceOp>(op);
  call.reduction.scalar = scalar;
  call.root = root;
  call.uneven = uneven;
  call.options = options_of(timeout_s, algorithm, *held_name);
  if (!is_async) {
    run_blocking(self, call);
    return py::none();
  }
  return start(self, py::make_tuple(std::move(inputs), std::move(outputs)), std::move(held_name),
               [&](tutti::Group& group) { return group.start(call); });
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

// Returns what the last receive learned, or the Work of an asynchronous call.
py::object exchange(HeldGroup& self, const py::list& transfers, bool is_async, double timeout_s,
                    py::handle name) {
  auto held_name = std::make_unique<std::string>(name.is_none() ? "" : name.cast<std::string>());
  const std::vector<tutti::Transfer> list = transfers_of(transfers);
  const tutti::CallOptions options = options_of(timeout_s, 0, *held_name);
  if (is_async)
    return start(self, transfers, std::move(held_name),
                 [&](tutti::Group& group) { return group.transfer(list, options); });
  const std::shared_ptr<tutti::Group> group = self.get();
  const auto received = [&] {  // takes no turn: a receive may wait long, and sends go on meanwhile
    const py::gil_scoped_release unlocked;
    return group->exchange(list, options);
  }();
  finish(received.status());
  return py::make_tuple(received->source, received->tag, received->bytes);
}

}  // namespace

void bind_calls(GroupClass& group) {
  group.def("run", &run).def("exchange", &exchange);
}

}  // namespace tutti_python
