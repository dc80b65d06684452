#include <optional>
#include <utility>

#include "binding.hpp"
#include "gate_order.hpp"
#include "module_buffers.hpp"
#include "streams.hpp"
#include "tutti/libtorch.hpp"

namespace tutti::libtorch {

namespace {

// Runs something of torch's; what it throws becomes a Status.
template <class Body>
Status guarded(const char* what, Body&& body) {
  try {
    return body();
  } catch (const GateError& error) {
    return error.status();
  } catch (const c10::Error& error) {
    return {Code::invalid_argument, std::string(what) + ": " + error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {Code::internal, std::string(what) + ": " + error.what()};
  }
}

}  // namespace

GateError::GateError(Status status)
    : std::runtime_error(status.to_string()), status_(std::move(status)) {}

class DataParallel::State {
 public:
  State(std::shared_ptr<torch::nn::Module> module, Options options)
      : module_(std::move(module)), options_(std::move(options)) {}
  // Tensors leave the layer's memory while it is there and up to date. Should waiting fail, the run
  // has failed already and told so.
  ~State() {
    if (layer_ == nullptr) return;
    (void)layer_->parameters_ready().ok();
    binding_->detach();
  }

  Status set_up(const train::Groups& groups);
  Status begin_micro_batch(bool last);
  Status check_gates(const torch::Tensor& output);
  Status backward(const torch::Tensor& loss_sum);
  Status backward(const torch::Tensor& output, const torch::Tensor& gradient, bool last);
  Status add_gradients(const std::function<Status()>& compute, bool last);
  Result<train::StepReport> step(const train::StepInput& input);
  Status discard_gradients();
  Result<std::int64_t> recover(const train::Groups& survivors);
  Result<std::int64_t> join(const train::Groups& others);

  Binding& binding() { return *binding_; }
  train::DataParallel& layer() { return *layer_; }

 private:
  Status copy_group_for_buffers(Group& group);
  Result<std::int64_t> go_on_in(const train::Groups& groups, Result<std::int64_t> step);

  std::shared_ptr<torch::nn::Module> module_;
  Options options_;
  std::unique_ptr<Binding> binding_;
  std::unique_ptr<train::DataParallel> layer_;
  std::shared_ptr<Group> buffer_group_;  // null: no buffers to synchronise
  std::optional<GateOrder> gates_;       // where parameters are gathered beside forward
  bool step_begins_ = true;
};

Status DataParallel::State::set_up(const train::Groups& groups) {
  if (module_ == nullptr) return {Code::invalid_argument, "there is no module to wrap"};
  if (groups.data == nullptr) return {Code::invalid_argument, "there is no group to train on"};
  auto binding = Binding::collect(*module_);
  if (!binding.ok()) return binding.status();
  binding_ = *std::move(binding);
  if (const auto device = binding_->device(); device.is_cuda()) {
    options_.layer.device = tutti::Device::cuda;
    if (!options_.layer.stream) options_.layer.stream = [device] { return current_stream(device); };
    (void)options_.layer.stream();  // throws at once where torch cannot say
  }
  auto layer = train::DataParallel::create(
      groups, binding_->parameters(options_.group_of, options_.place_of, options_.is_unit),
      options_.layer);
  if (!layer.ok()) return layer.status();
  layer_ = *std::move(layer);
  if (Status status = binding_->attach(*layer_); !status.ok()) return status;
  layer_->on_layout([this] { binding_->set_views(); });
  layer_->set_buffers([this] { return module_buffers(*module_); });
  if (!layer_->keeps_whole_weights()) {
    layer_->on_gate([this](std::size_t index, bool open) { binding_->set_open(index, open); });
  } else if (options_.layer.overlap_param_gather) {
    gates_.emplace(binding_->size());
    layer_->on_gate([this](std::size_t index, bool open) {
      binding_->set_open(index, open);
      gates_->set_open(index, open);
    });
  }
  return copy_group_for_buffers(*groups.data);
}

Status DataParallel::State::copy_group_for_buffers(Group& group) {
  if (!options_.broadcast_buffers || module_->buffers().empty()) return {};
  auto copy = group.duplicate({"module buffers"});
  if (!copy.ok()) return copy.status();
  buffer_group_ = *copy;
  return {};
}

Status DataParallel::State::begin_micro_batch(bool last) {
  if (auto status = binding_->check_views(); !status.ok()) return status;
  if (std::exchange(step_begins_, false)) {
    if (buffer_group_ != nullptr)
      if (auto status = broadcast_buffers(*module_, *buffer_group_); !status.ok()) return status;
  }
  return layer_->begin_micro_batch(last);
}

Status DataParallel::State::check_gates(const torch::Tensor& output) {
  if (!gates_) return {};
  const std::string early = gates_->early_read(output, *binding_);
  if (early.empty()) return {};
  return {
      Code::invalid_argument,
      early +
          "; put a Gate before it, or call parameters_ready() (in Python wait()) before forward"};
}

Status DataParallel::State::backward(const torch::Tensor& output, const torch::Tensor& gradient,
                                     bool last) {
  if (Status status = check_gates(output); !status.ok()) return status;
  return add_gradients(
      [&] {
        if (output.requires_grad()) output.backward(gradient);
        return Status();
      },
      last);
}

Status DataParallel::State::add_gradients(const std::function<Status()>& compute, bool last) {
  layer_->begin_backward(last);
  Status status = guarded("backward failed", compute);
  const Status layer_status = layer_->end_backward();
  return status.ok() ? layer_status : status;
}

Status DataParallel::State::backward(const torch::Tensor& loss_sum) {
  if (Status status = check_gates(loss_sum); !status.ok()) return status;
  layer_->begin_backward();
  Status status = guarded("backward failed", [&] {
    // A rank may have used no parameter at all: then they all count as zero here.
    if (loss_sum.requires_grad()) loss_sum.backward();
    return Status();
  });
  const Status layer_status = layer_->end_backward();
  return status.ok() ? layer_status : status;
}

Result<train::StepReport> DataParallel::State::step(const train::StepInput& input) {
  if (auto status = binding_->check_views(); !status.ok()) return status;
  if (auto status = binding_->check_gradients(); !status.ok()) return status;
  step_begins_ = true;
  return layer_->step(input);
}

Status DataParallel::State::discard_gradients() {
  step_begins_ = true;
  return layer_->discard_gradients();
}

Result<std::int64_t> DataParallel::State::recover(const train::Groups& survivors) {
  return go_on_in(survivors, layer_->recover(survivors));
}

Result<std::int64_t> DataParallel::State::join(const train::Groups& others) {
  return go_on_in(others, layer_->join(others));
}

Result<std::int64_t> DataParallel::State::go_on_in(const train::Groups& groups,
                                                   Result<std::int64_t> step) {
  step_begins_ = true;
  if (!step.ok()) return step;
  if (auto status = copy_group_for_buffers(*groups.data); !status.ok()) return status;
  return step;
}

Result<std::shared_ptr<DataParallel>> DataParallel::create(
    std::shared_ptr<torch::nn::Module> module, train::Groups groups, Options options) {
  auto state = std::make_shared<State>(std::move(module), std::move(options));
  Status status = guarded("wrapping failed", [&] { return state->set_up(groups); });
  if (!status.ok()) return status;
  return std::shared_ptr<DataParallel>(new DataParallel(std::move(state)));
}

DataParallel::DataParallel(std::shared_ptr<State> state) : state_(std::move(state)) {}
DataParallel::~DataParallel() = default;

Status DataParallel::begin_micro_batch(bool last) { return state_->begin_micro_batch(last); }
Status DataParallel::backward(const torch::Tensor& loss_sum) { return state_->backward(loss_sum); }
Status DataParallel::check_gates(const torch::Tensor& output) {
  return state_->check_gates(output);
}
Status DataParallel::begin_backward() {
  state_->layer().begin_backward();
  return {};
}
Status DataParallel::end_backward() { return state_->layer().end_backward(); }
Status DataParallel::backward(const torch::Tensor& output, const torch::Tensor& gradient,
                              bool last) {
  return state_->backward(output, gradient, last);
}
Status DataParallel::add_gradients(const std::function<Status()>& compute, bool last) {
  return state_->add_gradients(compute, last);
}
Status DataParallel::end_forward() {
  state_->layer().end_forward();
  return {};
}
Result<train::StepReport> DataParallel::step(const train::StepInput& input) {
  return state_->step(input);
}
Status DataParallel::discard_gradients() { return state_->discard_gradients(); }
Result<std::int64_t> DataParallel::recover(train::Groups survivors) {
  return state_->recover(survivors);
}
Result<std::int64_t> DataParallel::join(train::Groups others) { return state_->join(others); }
Status DataParallel::parameters_ready() { return state_->layer().parameters_ready(); }
train::DataParallel& DataParallel::layer() const { return state_->layer(); }

std::string DataParallel::closed_name(const torch::Tensor& parameter) const {
  Binding& binding = state_->binding();
  const std::size_t index = binding.index_of(parameter);
  return index == binding.size() || binding.is_open(index) ? std::string() : binding.name(index);
}

Status DataParallel::need(const torch::nn::Module& submodule) {
  const auto* indices = state_->binding().below(submodule);
  if (indices == nullptr) {
    return {Code::invalid_argument, "a gate asks for a module that is no part of the wrapped one"};
  }
  for (const std::size_t index : *indices) {
    if (auto status = state_->layer().need(index); !status.ok()) return status;
  }
  return {};
}

void DataParallel::done(const torch::nn::Module& submodule) {
  if (const auto* indices = state_->binding().below(submodule))
    for (const std::size_t index : *indices) state_->layer().done(index);
}

Status DataParallel::need(const torch::Tensor& parameter) {
  const std::size_t index = state_->binding().index_of(parameter);
  if (index == state_->binding().size()) {
    return {Code::invalid_argument, "a gate asks for a tensor that is no parameter of the module"};
  }
  return state_->layer().need(index);
}

void Gate::check_scope(const DataParallel& model, const std::vector<torch::Tensor>& parameters) {
  for (const torch::Tensor& parameter : parameters)
    if (const std::string name = model.closed_name(parameter); !name.empty())
      throw GateError({Code::invalid_argument, "parameter '" + name +
                                                   "' is read outside of a WeightScope, and with "
                                                   "zero = 3 it is not there"});
}

Gate::Gate(DataParallel* model, const torch::nn::Module& submodule) {
  if (model == nullptr) return;
  if (!model->layer().keeps_whole_weights()) {
    check_scope(*model, submodule.parameters());
    return;
  }
  if (auto status = model->need(submodule); !status.ok()) throw GateError(status);
}

Gate::Gate(DataParallel* model, const torch::Tensor& parameter) {
  if (model == nullptr) return;
  if (!model->layer().keeps_whole_weights()) {
    check_scope(*model, {parameter});
    return;
  }
  if (auto status = model->need(parameter); !status.ok()) throw GateError(status);
}

torch::Tensor forward_gated(DataParallel* model, torch::nn::Sequential& layers, torch::Tensor x) {
  for (auto& layer : *layers) {
    const WeightScope scope(model, *layer.ptr());
    Gate gate(model, *layer.ptr());
    x = scope.leave(layer.forward(scope.enter(x)));
  }
  return x;
}

}  // namespace tutti::libtorch
