#include "define_training.hpp"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "errors.hpp"
#include "gil.hpp"
#include "replica.hpp"
#include "streams.hpp"
#include "tutti/train/metrics_bus.hpp"

namespace py = pybind11;

namespace tutti_torch {
namespace {

namespace train = tutti::train;
using Release = py::call_guard<py::gil_scoped_release>;

// Waits for other ranks when it goes, and their messages may need the interpreter.
template <class T>
struct WithoutGil {
  void operator()(T* object) const {
    without_gil([object] { delete object; });
  }
};
template <class T>
using Held = std::unique_ptr<T, WithoutGil<T>>;

// In Python's words: the numbers of one group of parameters, as torch's optimizers call them.
train::Optimizer optimizer_of(const std::string& kind, const py::dict& group) {
  if (kind == "sgd") return train::Sgd{group["momentum"].cast<double>()};
  const auto betas = group["betas"].cast<std::pair<double, double>>();
  return train::AdamW{betas.first, betas.second, group["eps"].cast<double>()};
}

std::vector<train::GroupStep> groups_of(const std::string& kind, const py::list& groups) {
  std::vector<train::GroupStep> steps;
  for (const py::handle& item : groups) {
    const auto group = item.cast<py::dict>();
    steps.push_back({group["lr"].cast<double>(), group["weight_decay"].cast<double>(),
                     optimizer_of(kind, group)});
  }
  return steps;
}

train::DataParallelOptions options_of(const py::dict& words) {
  train::DataParallelOptions options;
  options.zero = words["zero"].cast<int>();
  options.overlap_grad_reduce = words["overlap_grad_reduce"].cast<bool>();
  options.grad_reduce_in_bf16 = words["grad_reduce_in_bf16"].cast<bool>();
  options.overlap_param_gather = words["overlap_param_gather"].cast<bool>();
  options.check_for_nan = words["check_for_nan"].cast<bool>();
  options.clip_grad = words["clip"].cast<double>();
  options.bucket_bytes = words["bucket_bytes"].cast<std::size_t>();
  options.prefetch_units = words["prefetch_units"].cast<int>();
  if (words["reduction_order"].cast<std::string>() == "tree")
    options.reduction_order = tutti::ReductionOrder::tree;
  options.groups.clear();
  for (const train::GroupStep& group :
       groups_of(words["optimizer"].cast<std::string>(), words["groups"].cast<py::list>())) {
    options.groups.push_back({group.weight_decay, 1});
    options.optimizer = group.optimizer;
  }
  return options;
}

Held<TorchReplica> make_replica(const Handle& group, const py::list& modules,
                                const std::map<std::string, int>& groups, const py::dict& words,
                                const std::optional<c10::Device>& device) {
  std::vector<ModuleParts> parts;
  for (const py::handle& item : modules) {
    const auto [parameters, buffers, children, is_unit] =
        item.cast<std::tuple<std::vector<NamedTensor>, std::vector<NamedTensor>,
                             std::vector<std::pair<std::string, std::size_t>>, bool>>();
    parts.push_back({parameters, buffers, children, is_unit});
  }
  tutti::libtorch::Options options;
  options.layer = options_of(words);
  options.broadcast_buffers = words["broadcast_buffers"].cast<bool>();
  if (device && device->is_cuda())
    options.layer.stream = [device = *device] { return handle_of(current_stream(device)); };
  py::gil_scoped_release release;
  return Held<TorchReplica>(new TorchReplica(backend_of(group), parts, groups, std::move(options)));
}

py::dict to_python(const train::StepReport& report) {
  py::list faults;
  for (const train::Fault& fault : report.faults)
    faults.append(py::dict(py::arg("rank") = fault.rank, py::arg("is_loss") = fault.is_loss,
                           py::arg("parameter") = fault.parameter,
                           py::arg("bucket") = fault.bucket));
  return py::dict(py::arg("outcome") = std::string(train::to_string(report.outcome)),
                  py::arg("tokens") = report.tokens, py::arg("grad_norm") = report.grad_norm,
                  py::arg("stop") = report.stop, py::arg("faults") = faults,
                  py::arg("unused") = report.unused);
}

py::dict to_python(const train::RankOverlap& of) {
  const auto ms = [](double seconds) { return seconds * 1e3; };
  return py::dict(py::arg("step_ms") = ms(of.step_s), py::arg("forward_ms") = ms(of.forward_s),
                  py::arg("backward_ms") = ms(of.backward_s),
                  py::arg("update_ms") = ms(of.update_s), py::arg("wait_ms") = ms(of.wait_s),
                  py::arg("skew_ms") = ms(of.skew_s), py::arg("exposed_ms") = ms(of.exposed_s),
                  py::arg("communication_ms") = ms(of.wire_s), py::arg("tail_ms") = ms(of.tail_s),
                  py::arg("bound_ms") = ms(of.bound_s), py::arg("hidden") = of.hidden);
}

py::object report_of(TorchReplica& replica) {
  std::optional<train::StepOverlap> overlap;
  without_gil([&] { overlap = replica.overlap(); });
  if (!overlap) return py::none();
  py::list ranks;
  for (const train::RankOverlap& rank : overlap->ranks) ranks.append(to_python(rank));
  return py::dict(py::arg("step") = overlap->step, py::arg("mean") = to_python(overlap->mean),
                  py::arg("max") = to_python(overlap->max), py::arg("ranks") = ranks);
}

py::dict memory_of(const TorchReplica& replica) {
  const train::MemoryUse use = replica.layer().memory();
  return py::dict(py::arg("weights") = use.weights, py::arg("gradients") = use.gradients,
                  py::arg("optimizer") = use.optimizer, py::arg("pool") = use.pool);
}

py::dict step(TorchReplica& replica, const std::string& kind, const py::list& groups,
              std::int64_t tokens, double loss_scale, bool loss_is_right, bool stop) {
  const std::vector<train::GroupStep> steps = groups_of(kind, groups);
  train::StepInput input;
  input.groups = steps;
  input.tokens = tokens;
  input.loss_scale = loss_scale;
  input.loss_is_finite = loss_is_right;
  input.stop = stop;
  train::StepReport report;
  without_gil([&] { report = replica.step(input); });
  return to_python(report);
}

py::dict to_python(const train::CheckpointInfo& info) {
  return py::dict(py::arg("iteration") = info.iteration, py::arg("ranks") = info.ranks,
                  py::arg("extra") = info.extra, py::arg("warnings") = info.warnings);
}

}  // namespace

void define_replica(py::module_& m) {
  const auto layer_words = [](auto method) {
    return [method](TorchReplica& replica) { return take((replica.layer().*method)()); };
  };
  py::class_<TorchReplica, Held<TorchReplica>>(m, "Replica")
      .def(py::init(&make_replica))
      .def("parameters", &TorchReplica::parameters)
      .def("add_gate", &TorchReplica::add_gate)
      .def("need", &TorchReplica::need, Release())
      .def("done", &TorchReplica::done, Release())
      .def("set_buffers", &TorchReplica::set_buffers, Release())
      .def("begin_micro_batch", &TorchReplica::begin_micro_batch, Release())
      .def("check_gates", &TorchReplica::check_gates, Release())
      .def("begin_backward", &TorchReplica::begin_backward, Release())
      .def("end_backward", &TorchReplica::end_backward, Release())
      .def("step", &step)
      .def("discard_gradients", &TorchReplica::discard_gradients, Release())
      .def("parameters_ready", &TorchReplica::parameters_ready, Release())
      .def("adopt_parameters", &TorchReplica::adopt_parameters, Release())
      .def("report", &report_of)
      .def("memory", &memory_of)
      .def(
          "describe", [](TorchReplica& replica) { return replica.layer().describe(); }, Release())
      .def("weight_hash", layer_words(&train::DataParallel::weight_hash), Release())
      .def(
          "check_weights", [](TorchReplica& replica) { check(replica.layer().check_weights()); },
          Release())
      .def("state", &TorchReplica::state, Release())
      .def("step_counts", [](TorchReplica& replica) { return replica.layer().step_counts(); })
      .def("set_state", &TorchReplica::set_state, Release())
      .def(
          "save",
          [](TorchReplica& replica, const std::string& folder, std::int64_t iteration,
             const std::map<std::string, std::string>& extra, int keep) {
            train::CheckpointInfo info;
            info.iteration = iteration;
            info.extra = extra;
            replica.save(folder, std::move(info), keep);
          },
          Release())
      .def("load",
           [](TorchReplica& replica, const std::string& path) {
             train::CheckpointInfo info;
             without_gil([&] { info = replica.load(path); });
             return to_python(info);
           })
      .def("close", &TorchReplica::close, Release());
}

void define_metrics(py::module_& m) {
  using train::MetricsBus;
  py::class_<MetricsBus, Held<MetricsBus>>(m, "MetricsBus")
      .def(py::init([](const Handle& group, bool asynchronous) {
             return Held<MetricsBus>(
                 take(MetricsBus::create(*backend_of(group).group(), asynchronous)).release());
           }),
           Release())
      .def("add",
           [](MetricsBus& bus, const std::string& name, double value) { bus.add(name, value); })
      .def(
          "publish", [](MetricsBus& bus, std::int64_t step) { check(bus.publish(step)); },
          Release())
      .def("take", [](MetricsBus& bus, bool wait) -> py::object {
        std::optional<train::Metrics> metrics;
        without_gil([&] { metrics = take(bus.take(wait)); });
        if (!metrics) return py::none();
        py::dict sums;
        for (const auto& [name, value] : metrics->sums) sums[name.c_str()] = value;
        return py::make_tuple(metrics->step, sums);
      });
}

}  // namespace tutti_torch
