#include "binding.hpp"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace tutti::libtorch {

namespace {

Status refuse(const std::string& name, const std::string& why) {
  return {Code::invalid_argument, "parameter '" + name + "' " + why};
}

std::optional<Dtype> parameter_dtype(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat: return Dtype::f32;
    case torch::kBFloat16: return Dtype::bf16;
    case torch::kHalf: return Dtype::f16;
    default: return {};
  }
}

Status check_kind(const std::string& name, const torch::Tensor& tensor) {
  if ((!tensor.device().is_cpu() && !tensor.device().is_cuda()) || tensor.is_sparse()) {
    return refuse(name,
                  "is not a dense tensor on the CPU or a CUDA device; move the module before "
                  "wrapping it");
  }
  if (!parameter_dtype(tensor)) {
    return refuse(
        name, "is neither float32 nor bfloat16 nor float16; convert the module before wrapping it");
  }
  return {};
}

Buffer buffer_of(const torch::Tensor& tensor) {
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), *parameter_dtype(tensor),
          tensor.device().is_cuda() ? tutti::Device::cuda : tutti::Device::cpu};
}

torch::Tensor view_of(const Buffer& buffer, const torch::Tensor& like, torch::ScalarType type) {
  return torch::from_blob(buffer.data, like.sizes(),
                          torch::TensorOptions().dtype(type).device(like.device()));
}

}  // namespace

// Holds a handle that detach empties: an accumulator may outlive the binding in a graph that the
// user kept.
class Binding::ReadyHook : public torch::autograd::FunctionPostHook {
 public:
  ReadyHook(std::shared_ptr<Binding*> binding, std::size_t index, std::size_t member)
      : binding_(std::move(binding)), index_(index), member_(member) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    if (Binding* binding = *binding_) {
      // Autograd may run an accumulator without a gradient; torch's optimizers skip it then.
      const bool defined = !inputs.empty() && inputs[0].defined();
      binding->on_gradient(index_, binding->entries_[index_].members[member_], defined);
    }
    return outputs;
  }

 private:
  std::shared_ptr<Binding*> binding_;
  std::size_t index_;
  std::size_t member_;
};

Result<std::unique_ptr<Binding>> Binding::collect(torch::nn::Module& module) {
  auto binding = std::make_unique<Binding>();
  for (const auto& parameter : module.named_parameters()) {
    if (auto status = binding->add(parameter.key(), parameter.value()); !status.ok()) return status;
  }
  if (auto status = binding->refuse_overlaps(); !status.ok()) return status;
  binding->index_modules(module);
  return binding;
}

Binding::~Binding() { detach(); }

Status Binding::add(const std::string& name, torch::Tensor tensor) {
  if (auto status = check_kind(name, tensor); !status.ok()) return status;
  if (!entries_.empty() && tensor.device() != device()) {
    return refuse(name, "is on " + tensor.device().str() + ", and '" + entries_[0].members[0].name +
                            "' is on " + device().str() + "; move the module as a whole");
  }
  const void* object = tensor.unsafeGetTensorImpl();
  const bool known_object = by_object_.count(object) != 0;
  const bool known_address = tensor.numel() > 0 && by_address_.count(tensor.data_ptr()) != 0;
  if (!tensor.is_contiguous()) {
    if (known_address) return refuse(name, "shares memory in another layout; make it contiguous");
    torch::NoGradGuard no_grad;
    tensor.set_data(tensor.contiguous());
  }
  std::size_t index = entries_.size();
  if (known_object)
    index = by_object_.at(object);
  else if (known_address)
    index = by_address_.at(tensor.data_ptr());
  if (index == entries_.size()) entries_.emplace_back();
  by_object_[object] = index;
  if (tensor.numel() > 0) by_address_[tensor.data_ptr()] = index;

  Entry& entry = entries_[index];
  if (!entry.members.empty() && entry.members[0].tensor.numel() != tensor.numel()) {
    return refuse(name, "shares a part of the memory of '" + entry.members[0].name + "'");
  }
  entry.frozen = entry.frozen && !tensor.requires_grad();
  entry.members.push_back({name, std::move(tensor), nullptr, known_object, {}, {}});
  return {};
}

Status Binding::refuse_overlaps() const {
  std::vector<const Entry*> order;
  for (const Entry& entry : entries_) {
    if (entry.members[0].tensor.numel() > 0) order.push_back(&entry);
  }
  const auto begin = [](const Entry* entry) {
    return static_cast<const char*>(entry->members[0].tensor.data_ptr());
  };
  std::sort(order.begin(), order.end(),
            [&](const Entry* a, const Entry* b) { return begin(a) < begin(b); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Member& before = order[i - 1]->members[0];
    if (begin(order[i - 1]) + before.tensor.nbytes() > begin(order[i])) {
      return refuse(order[i]->members[0].name,
                    "shares a part of the memory of '" + before.name + "'");
    }
  }
  return {};
}

void Binding::index_modules(torch::nn::Module& module) {
  modules_ = module.modules();
  for (const auto& part : modules_) {
    std::vector<std::size_t>& indices = by_module_[part.get()];
    for (const torch::Tensor& tensor : part->parameters()) {
      const std::size_t index = index_of(tensor);
      if (std::find(indices.begin(), indices.end(), index) == indices.end()) {
        indices.push_back(index);
      }
    }
  }
}

std::vector<train::Parameter> Binding::parameters(const GroupOf& group_of, const PlaceOf& place_of,
                                                  const IsUnit& is_unit) const {
  std::vector<train::Parameter> parameters;
  for (const Entry& entry : entries_) {
    const Member& first = entry.members[0];
    train::Parameter parameter;
    parameter.name = first.name;
    for (std::size_t i = 1; i < entry.members.size(); ++i) {
      parameter.aliases.push_back(entry.members[i].name);
    }
    parameter.shape = first.tensor.sizes().vec();
    parameter.value = buffer_of(first.tensor);
    parameter.frozen = entry.frozen;
    parameter.gradients = static_cast<int>(
        std::count_if(entry.members.begin(), entry.members.end(), [](const Member& member) {
          return !member.is_alias_object && member.tensor.requires_grad();
        }));
    if (group_of) parameter.group = group_of(first.name, first.tensor);
    if (place_of) parameter.place = place_of(first.name, first.tensor);
    parameters.push_back(std::move(parameter));
  }
  int unit = 0;
  for (const auto& part : modules_) {
    if (!is_unit || !is_unit(*part)) continue;
    for (const std::size_t index : by_module_.at(part.get()))
      if (parameters[index].unit < 0) parameters[index].unit = unit;
    ++unit;
  }
  return parameters;
}

Status Binding::attach(train::DataParallel& layer) {
  if (!layer.keeps_whole_weights()) {
    std::size_t largest = 0;
    for (const Entry& entry : entries_)
      largest = std::max(largest, entry.members[0].tensor.nbytes());
    auto nan = NanRegion::create(largest);
    if (!nan.ok()) return nan.status();
    nan_ = *std::move(nan);
  }
  layer_ = &layer;
  self_ = std::make_shared<Binding*>(this);
  set_views();
  // After set_data: it may reset the accumulator on which the hook sits.
  for (std::size_t index = 0; index < entries_.size(); ++index) add_hooks(index);
  return {};
}

void Binding::add_hooks(std::size_t index) {
  auto& members = entries_[index].members;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].is_alias_object || !members[i].tensor.requires_grad()) continue;
    members[i].accumulator = torch::autograd::impl::grad_accumulator(members[i].tensor);
    members[i].accumulator->add_post_hook(std::make_unique<ReadyHook>(self_, index, i));
    by_accumulator_[members[i].accumulator.get()] = index;
  }
}

void Binding::on_gradient(std::size_t index, Member& member, bool defined) {
  if (!defined) return;
  Entry& entry = entries_[index];
  torch::NoGradGuard no_grad;
  torch::Tensor& grad = member.tensor.mutable_grad();
  if (!keeps_gradients()) {
    // Null where the layer has failed: end_backward tells.
    const Buffer slot = layer_->gradient(index);
    if (slot.data != nullptr && grad.defined())
      view_of(slot, member.tensor, torch::kFloat).view(-1).add_(grad.to_dense().reshape(-1));
    grad = torch::Tensor();
  } else if (entry.gradient.defined()) {
    // Not the preset view: of 16 bits, or the user dropped it before this backward.
    if (grad.defined() && grad.data_ptr() != entry.gradient.data_ptr()) {
      entry.gradient.view(-1).add_(grad.to_dense().reshape(-1));
      preset_gradient(entry, member);
    }
    entry.gradient_version = entry.gradient._version();
  }
  layer_->ready(index);
}

// Else they are the layer's only until they were reduced.
bool Binding::keeps_gradients() const { return layer_->options().zero.value_or(0) < 2; }

void Binding::preset_gradient(const Entry& entry, Member& member) {
  if (!member.tensor.requires_grad()) return;
  const bool in_place = member.tensor.scalar_type() == torch::kFloat && keeps_gradients();
  member.tensor.mutable_grad() =
      in_place ? entry.gradient.view(member.tensor.sizes()) : torch::Tensor();
}

void Binding::set_view(std::size_t index) {
  Entry& entry = entries_[index];
  const torch::Tensor& first = entry.members[0].tensor;
  if (first.numel() == 0 || entry.frozen) return;  // a frozen one keeps its memory
  if (nan_) {
    if (entry.members[0].open.defined())
      return;  // it has its storage, wherever the layer's memory lies
    entry.is_open = false;
    const Buffer nan{nan_->data(), static_cast<std::size_t>(first.numel())};
    for (Member& member : entry.members) {
      member.open = view_of(nan, member.tensor, member.tensor.scalar_type());
      if (!member.is_alias_object) member.tensor.set_data(member.open);
    }
    return;
  }
  if (keeps_gradients()) entry.gradient = view_of(layer_->gradient(index), first, torch::kFloat);
  if (entry.gradient_version >= 0) entry.gradient_version = entry.gradient._version();
  entry.nan = torch::full({}, std::numeric_limits<double>::quiet_NaN(), first.options());
  for (Member& member : entry.members) {
    if (member.is_alias_object) continue;
    torch::Tensor& tensor = member.tensor;
    member.open = view_of(layer_->parameter(index), tensor, tensor.scalar_type());
    member.closed = entry.nan.expand(tensor.sizes());
    tensor.set_data(entry.is_open ? member.open : member.closed);
    preset_gradient(entry, member);
  }
}

void Binding::set_open(std::size_t index, bool open) {
  Entry& entry = entries_[index];
  if (entry.is_open == open) return;
  entry.is_open = open;
  if (nan_) return point_to(entry, open ? layer_->parameter(index).data : nan_->data());
  torch::NoGradGuard no_grad;
  for (Member& member : entry.members) {
    const torch::Tensor& now = open ? member.closed : member.open;
    // One that the user replaced meanwhile is left alone; check_views names it.
    if (!now.defined() || member.tensor.data_ptr() != now.data_ptr()) continue;
    member.tensor.set_data(open ? member.open : member.closed);
  }
}

// Every view of it follows, in graphs as well.
void Binding::point_to(const Entry& entry, void* data) {
  for (const Member& member : entry.members) {
    if (member.is_alias_object) continue;
    c10::Storage storage = member.open.storage();
    storage.set_data_ptr_noswap(at::DataPtr(data, member.open.device()));
  }
}

// For good: values would have to be gathered, and other ranks may be gone.
void Binding::leave_nan(const Entry& entry) {
  using Holder = std::shared_ptr<NanRegion>;
  for (const Member& member : entry.members) {
    if (member.is_alias_object) continue;
    c10::Storage storage = member.open.storage();
    storage.set_data_ptr_noswap(at::DataPtr(
        nan_->data(), new Holder(nan_), [](void* holder) { delete static_cast<Holder*>(holder); },
        member.open.device()));
  }
}

void Binding::set_views() {
  torch::NoGradGuard no_grad;
  for (std::size_t index = 0; index < entries_.size(); ++index) set_view(index);
}

void Binding::detach() {
  if (layer_ == nullptr) return;
  torch::NoGradGuard no_grad;
  *self_ = nullptr;
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    Entry& entry = entries_[index];
    if (entry.members[0].tensor.numel() == 0 || entry.frozen) continue;
    if (nan_) {
      leave_nan(entry);
      continue;
    }
    set_open(index, true);
    const torch::Tensor own = entry.members[0].tensor.clone();
    for (Member& member : entry.members) {
      // One that the user replaced is his own already.
      if (member.tensor.data_ptr() == layer_->parameter(index).data) {
        member.tensor.set_data(own.view(member.tensor.sizes()));
      }
      member.tensor.mutable_grad() = torch::Tensor();
    }
  }
  layer_ = nullptr;
}

Status Binding::check_views() {
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    if (auto status = check_entry(index); !status.ok()) return status;
  }
  return {};
}

Status Binding::check_entry(std::size_t index) {
  Entry& entry = entries_[index];
  const Buffer value = layer_->parameter(index);
  if (value.count == 0) return {};
  const void* closed = nan_ ? nan_->data() : entry.nan.defined() ? entry.nan.data_ptr() : nullptr;
  for (Member& member : entry.members) {
    if (member.tensor.data_ptr() != (entry.is_open ? value.data : closed)) {
      return refuse(member.name,
                    "was given other memory after the module was wrapped (Module::to, torch::load "
                    "or set_data); load and move the module before wrapping it");
    }
    if (entry.frozen || !member.tensor.requires_grad()) continue;
    const torch::Tensor& grad = member.tensor.grad();
    if (!grad.defined()) {
      preset_gradient(entry, member);
    } else if (!keeps_gradients() || grad.data_ptr() != entry.gradient.data_ptr()) {
      return refuse(member.name, "was given another .grad; gradients belong to the layer");
    }
  }
  return {};
}

// It may be this rank's alone, a part of the sum, or on its way: clip_grad_norm_ would see another norm on each rank.
Status Binding::check_gradients() {
  Status status;
  for (Entry& entry : entries_) {
    const std::int64_t version = std::exchange(entry.gradient_version, -1);
    if (version >= 0 && entry.gradient._version() != version && status.ok()) {
      status = refuse(entry.members[0].name,
                      "had its .grad changed between backward and step, when the ranks' sum is "
                      "not there; clip by the layer's own option instead of clip_grad_norm_, and "
                      "scale the loss instead of gradients");
    }
  }
  return status;
}

const std::vector<std::size_t>* Binding::below(const torch::nn::Module& module) const {
  const auto found = by_module_.find(&module);
  return found == by_module_.end() ? nullptr : &found->second;
}

std::size_t Binding::index_of(const torch::Tensor& tensor) const {
  if (!tensor.defined()) return entries_.size();
  const auto found = by_object_.find(tensor.unsafeGetTensorImpl());
  return found == by_object_.end() ? entries_.size() : found->second;
}

std::size_t Binding::index_of(const torch::autograd::Node& accumulator) const {
  const auto found = by_accumulator_.find(&accumulator);
  return found == by_accumulator_.end() ? entries_.size() : found->second;
}

}  // namespace tutti::libtorch
