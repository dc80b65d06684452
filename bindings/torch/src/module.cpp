// tutti_torch._C: what the Python package needs from C++.
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.hpp"
#include "callbacks.hpp"
#include "define_training.hpp"
#include "errors.hpp"
#include "hand_over.hpp"
#include "mesh.hpp"
#include "shared_heap.hpp"
#include "store.hpp"
#include "tutti/config.hpp"
#include "tutti/version.h"

namespace py = pybind11;

namespace tutti_torch {

Backend& backend_of(const Handle& handle) {
  if (auto* backend = dynamic_cast<Backend*>(handle.get())) return *backend;
  refuse("group", "this process group is not one of backend \"tutti\"");
}

namespace {

constexpr const char* kWorld = "world";  // the default group's name

// Called with the interpreter's lock, in torch's bindings too: pybind11 keeps one list of translators.
void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Failure& failure) {
    const tutti::Status& status = failure.status();
    py::object error =
        py::module_::import("tutti.errors")
            .attr("from_code")(std::string(tutti::to_string(status.code())), status.message(),
                               status.rank(), status.peer(), status.sequence());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  }
}

Handle create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
              std::chrono::milliseconds timeout, const std::string& name) {
  return Backend::create(store, rank, size, timeout, name);
}

Handle create_within(const Handle& world, const c10::intrusive_ptr<c10d::Store>& store,
                     const std::vector<int>& ranks, std::chrono::milliseconds timeout,
                     const std::string& name) {
  return Backend::create_within(backend_of(world), store, ranks, timeout, name);
}

using PythonFuture = std::shared_ptr<torch::jit::PythonFutureWrapper>;

// Torch hands out operations as this class, whose futures are those of _futures.py.
void define_work(py::module_& m) {
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<Work, c10d::Work, c10::intrusive_ptr<Work>>(m, "Work")
      .def_property_readonly("strand", &Work::strand)
      .def("drive", &Work::drive, release)
      .def("await_end", &Work::await_end, release)
      .def(
          "complete_into",
          [](Work& work, const PythonFuture& future) { future->fut = work.getFuture(); }, release)
      .def("get_future", [](const py::object& self) {
        return py::module_::import("tutti_torch._futures").attr("OperationFuture")(self);
      });
}

// By which tutti.errors makes an exception.
py::tuple told(const tutti::Status& status) {
  return py::make_tuple(std::string(tutti::to_string(status.code())), status.message(),
                        status.rank(), status.peer(), status.sequence());
}

TensorReceiver::Where where_of(const std::string& device) {
  using Where = TensorReceiver::Where;
  return device == "cuda" ? Where::cuda : device == "cpu" ? Where::cpu : Where::as_sent;
}

void define_hand_over(py::module_& m) {
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<TensorSender>(m, "TensorSender")
      .def(py::init([](const Handle& group, const std::vector<int>& receivers, int trainer,
                       std::size_t bucket_bytes, const std::string& address,
                       const std::string& secret_file) {
             tutti::train::SenderOptions options;
             options.bucket_bytes = bucket_bytes;
             options.address = address;
             options.secret_file = secret_file;
             return std::make_unique<TensorSender>(&backend_of(group), receivers, trainer, options);
           }),
           release)
      .def(py::init([](std::size_t bucket_bytes, const std::string& address,
                       const std::string& secret_file) {
             tutti::train::SenderOptions options;
             options.bucket_bytes = bucket_bytes;
             options.address = address;
             options.secret_file = secret_file;
             return std::make_unique<TensorSender>(nullptr, std::vector<int>(), 0, options);
           }),
           release)
      .def("send", &TensorSender::send, release)
      .def("flush", &TensorSender::flush, release)
      .def("lost",
           [](const TensorSender& sender) {
             py::list lost;
             for (const auto& [rank, why] : sender.lost())
               lost.append(py::make_tuple(rank, told(why)));
             return lost;
           })
      .def("receivers",
           [](const TensorSender& sender) {
             py::list receivers;
             for (const tutti::train::AttachedReceiver& each : sender.receivers())
               receivers.append(py::make_tuple(each.number, each.where, each.version));
             return receivers;
           })
      .def_property_readonly("address", &TensorSender::address)
      .def("close", &TensorSender::close, release);
  py::class_<TensorReceiver>(m, "TensorReceiver")
      .def(py::init([](const Handle& group, int trainer, const std::string& device, int gpu) {
             return std::make_unique<TensorReceiver>(backend_of(group), trainer, where_of(device),
                                                     gpu);
           }),
           release)
      .def(py::init([](const std::string& address, const std::string& secret_file,
                       std::chrono::nanoseconds patience, const std::string& device, int gpu) {
             return std::make_unique<TensorReceiver>(address, secret_file, patience,
                                                     where_of(device), gpu);
           }),
           release)
      .def("poll", &TensorReceiver::poll, release)
      .def("wait_for", &TensorReceiver::wait_for, release)
      .def_property_readonly("version", &TensorReceiver::version)
      .def_property_readonly("weights", &TensorReceiver::weights)
      .def("close", &TensorReceiver::close, release);
}

void define_mesh(py::module_& m) {
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<TensorMesh>(m, "TensorMesh")
      .def(py::init([](const Handle& group, const std::vector<std::pair<std::string, int>>& axes) {
             return std::make_unique<TensorMesh>(backend_of(group), axes);
           }),
           release)
      .def("coordinates", &TensorMesh::coordinates)
      .def("rank_at", &TensorMesh::rank_at)
      .def("describe", &TensorMesh::describe)
      .def("whole_shape", &TensorMesh::whole_shape, release)
      .def(
          "redistribute",
          [](TensorMesh& mesh, const at::Tensor& local, std::string from, std::string to,
             std::vector<std::int64_t> shape) {
            return mesh.redistribute(local, {std::move(from), std::move(to), std::move(shape)});
          },
          release)
      .def(
          "explain",
          [](TensorMesh& mesh, std::string from, std::string to, std::vector<std::int64_t> shape,
             const at::Tensor& like) {
            return mesh.explain({std::move(from), std::move(to), std::move(shape)},
                                like.scalar_type());
          },
          release)
      .def("close", &TensorMesh::close, release);
}

// As torch does with the future of a function that raised.
void fail_future(const PythonFuture& future, const std::string& message) {
  future->fut->setError(std::make_exception_ptr(std::runtime_error(message)));
}

void monitored_barrier(const Handle& handle, std::chrono::milliseconds timeout, bool all) {
  c10d::BarrierOptions options;
  options.timeout = timeout;
  backend_of(handle).monitoredBarrier(options, all);
}

}  // namespace
}  // namespace tutti_torch

PYBIND11_MODULE(_C, m) {
  using namespace tutti_torch;
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::register_exception_translator(&translate);
  m.attr("__version__") = TUTTI_VERSION;
  m.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
        py::arg("name"), release);
  m.def("create_within", &create_within, py::arg("world"), py::arg("store"), py::arg("ranks"),
        py::arg("timeout"), py::arg("name"), release);
  m.def(
      "shrink",
      [](const Handle& group, std::chrono::milliseconds timeout) -> Handle {
        return backend_of(group).shrink(timeout);
      },
      py::arg("group"), py::arg("timeout"), release);
  m.def(
      "grow",
      [](const Handle& group, const c10::intrusive_ptr<c10d::Store>& store, int most) -> Handle {
        return backend_of(group).grow(store, most);
      },
      py::arg("group"), py::arg("store"), py::arg("most"), release);
  m.def(
      "join",
      [](const c10::intrusive_ptr<c10d::Store>& store, std::chrono::milliseconds timeout)
          -> Handle { return Backend::join(store, timeout, kWorld); },
      py::arg("store"), py::arg("timeout"), release);
  m.def(
      "waiting",
      [](const c10::intrusive_ptr<c10d::Store>& store) {
        return take(tutti::Group::waiting(adapt(store), kWorld));
      },
      py::arg("store"), release);
  m.def("timeout", [](const Handle& group) { return backend_of(group).timeout(); });
  m.def("monitored_barrier", &monitored_barrier, release);
  m.def(
      "allocate",
      [](const Handle& group, std::size_t bytes, c10::Device device) {
        return backend_of(group).allocate(bytes, device);
      },
      release);
  m.def("wants_shared_heap", [] { return take(tutti::Config::from_environment()).shared_heap; });
  m.def("use_shared_heap", &use_shared_heap);
  m.def("shared_heap_usage", [] {
    const tutti::SharedHeap::Usage usage = shared_heap_usage();
    return py::make_tuple(usage.limit_bytes, usage.in_use_bytes, usage.kept_bytes,
                          usage.peak_bytes);
  });
  m.def("is_healthy", [](const Handle& group) { return backend_of(group).group()->health().ok(); });
  m.def("is_tutti",
        [](const Handle& group) { return dynamic_cast<const Backend*>(group.get()) != nullptr; });
  m.def("describe", [](const Handle& group) { return backend_of(group).group()->describe(); });
  define_work(m);
  define_hand_over(m);
  define_mesh(m);
  define_replica(m);
  define_metrics(m);
  m.def("fail_future", &fail_future, release);
  m.def("chain_depth", &chain_depth);
  m.def("set_chain_depth", &set_chain_depth);
  m.def("end_callbacks", &end_callbacks, release);
  m.def("leave_all_groups", &Backend::leave_all, release);
  m.def(
      "abort", [](const Handle& group) { backend_of(group).abort(); }, release);
}
