#include "replica.hpp"

#include <algorithm>

#include "errors.hpp"

namespace tutti_torch {

namespace train = tutti::train;

namespace {

// Steps whose times may be on their way: a meter takes so many and no more.
constexpr int kMostPublished = 16;

}  // namespace

ModuleTree::ModuleTree(const std::vector<ModuleParts>& parts) {
  for (const ModuleParts& part : parts) {
    auto module = std::make_shared<torch::nn::Module>();
    for (const auto& [name, tensor] : part.parameters)
      module->register_parameter(name, tensor, tensor.requires_grad());
    for (const auto& [name, tensor] : part.buffers) {
      buffers_.push_back(tensor.detach());
      module->register_buffer(name, buffers_.back());
    }
    for (const auto& [name, child] : part.children)
      module->register_module(name, modules_.at(child));
    if (part.is_unit) units_.push_back(module.get());
    modules_.push_back(std::move(module));
  }
}

bool ModuleTree::is_unit(const torch::nn::Module& module) const {
  return std::find(units_.begin(), units_.end(), &module) != units_.end();
}

void ModuleTree::set_buffers(const std::vector<at::Tensor>& buffers) {
  if (buffers.size() != buffers_.size())
    refuse("DataParallel", "the module had " + std::to_string(buffers_.size()) +
                               " buffers when it was wrapped, and has " +
                               std::to_string(buffers.size()));
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (!buffers[i].is_alias_of(buffers_[i]) || buffers[i].data_ptr() != buffers_[i].data_ptr())
      buffers_[i].set_data(buffers[i].detach());
}

TorchReplica::TorchReplica(Backend& group, const std::vector<ModuleParts>& modules,
                           const std::map<std::string, int>& groups,
                           tutti::libtorch::Options options)
    : tree_(std::make_unique<ModuleTree>(modules)) {
  options.group_of = [&groups](const std::string& name, const torch::Tensor&) {
    const auto found = groups.find(name);
    return found == groups.end() ? 0 : found->second;
  };
  options.is_unit = [this](const torch::nn::Module& module) { return tree_->is_unit(module); };
  const auto members = group.group();
  model_ =
      take(tutti::libtorch::DataParallel::create(tree_->root(), {members}, std::move(options)));
  make_meter(*members);
}

TorchReplica::~TorchReplica() { close(); }

void TorchReplica::close() {
  published_ = 0;
  meter_.reset();
  model_.reset();
}

void TorchReplica::make_meter(tutti::Group& group) {
  if (group.size() > 1) meter_ = take(train::OverlapMeter::create(group));
}

tutti::libtorch::DataParallel& TorchReplica::model() const {
  if (!model_) throw Failure(tutti::Status(tutti::Code::aborted, "this model was closed"));
  return *model_;
}

train::DataParallel& TorchReplica::layer() const { return model().layer(); }

std::map<std::string, std::size_t> TorchReplica::parameters() const {
  std::map<std::string, std::size_t> numbers;
  const auto& list = layer().parameters();
  for (std::size_t index = 0; index < list.size(); ++index) {
    numbers[list[index].name] = index;
    for (const std::string& alias : list[index].aliases) numbers[alias] = index;
  }
  return numbers;
}

std::size_t TorchReplica::add_gate(std::vector<std::size_t> parameters) {
  gates_.push_back(std::move(parameters));
  return gates_.size() - 1;
}

void TorchReplica::need(std::size_t gate) {
  train::DataParallel& layer = model().layer();
  for (const std::size_t parameter : gates_.at(gate)) check(layer.need(parameter));
}

void TorchReplica::done(std::size_t gate) {
  train::DataParallel& layer = model().layer();
  for (const std::size_t parameter : gates_.at(gate)) layer.done(parameter);
}

void TorchReplica::begin_micro_batch(bool last) { check(model().begin_micro_batch(last)); }

void TorchReplica::check_gates(const std::vector<at::Tensor>& outputs) {
  for (const at::Tensor& output : outputs) check(model().check_gates(output));
}

void TorchReplica::begin_backward() { check(model().begin_backward()); }

void TorchReplica::end_backward() { check(model().end_backward()); }

train::StepReport TorchReplica::step(const train::StepInput& input) {
  train::StepReport report = take(model().step(input));
  if (report.outcome != train::Outcome::rejected) publish_times();
  return report;
}

void TorchReplica::publish_times() {
  if (!meter_) {
    const train::StepTimes times[] = {layer().take_times()};
    const std::int64_t offset[] = {0};
    overlap_ = take(train::compare_times(++step_, times, offset));
    return;
  }
  const train::StepTimes times = layer().take_times();
  ++step_;
  if (has_ended(meter_->publish(step_, times))) return;
  ++published_;
  (void)overlap();
}

// A rank that has closed its model, or had it collected, ended its meter long before this one published its last step:
// no reason for that step to fail.
bool TorchReplica::has_ended(const tutti::Status& status) {
  if (status.code() != tutti::Code::aborted) check(status);
  return !status.ok();
}

std::optional<train::StepOverlap> TorchReplica::overlap() {
  while (published_ > 0) {
    auto next = meter_->take(published_ > kMostPublished);
    if (has_ended(next.status()) || !*next) break;
    --published_;
    overlap_ = std::move(*next);
  }
  return overlap_;
}

void TorchReplica::discard_gradients() { check(model().discard_gradients()); }
void TorchReplica::parameters_ready() { check(model().parameters_ready()); }
void TorchReplica::adopt_parameters() { check(layer().adopt_parameters()); }

}  // namespace tutti_torch
