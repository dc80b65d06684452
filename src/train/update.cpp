#include "train/update.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace tutti::train {
namespace {

constexpr std::array<std::string_view, 2> kAdamWMoments = {"exp_avg", "exp_avg_sq"};
constexpr std::array<std::string_view, 1> kSgdMoments = {"momentum"};

// Factors are computed in f64 and rounded once, as torch does.
AdamWFactors factors_of(const AdamW& adamw, const Update& update, const GroupStep& group,
                        std::int64_t steps) {
  const double lr = group.lr;
  const auto t = static_cast<double>(steps);
  AdamWFactors factors;
  factors.grad_scale = static_cast<float>(update.grad_scale);
  factors.keep = static_cast<float>(1 - lr * group.weight_decay);
  factors.beta1 = static_cast<float>(adamw.beta1);
  factors.one_minus_beta1 = static_cast<float>(1 - adamw.beta1);
  factors.beta2 = static_cast<float>(adamw.beta2);
  factors.one_minus_beta2 = static_cast<float>(1 - adamw.beta2);
  factors.step_size = static_cast<float>(lr / (1 - std::pow(adamw.beta1, t)));
  factors.root_correction2 = static_cast<float>(std::sqrt(1 - std::pow(adamw.beta2, t)));
  factors.epsilon = static_cast<float>(adamw.epsilon);
  return factors;
}

SgdFactors factors_of(const Sgd& sgd, const Update& update, const GroupStep& group,
                      std::int64_t steps) {
  SgdFactors factors;
  factors.grad_scale = static_cast<float>(update.grad_scale);
  factors.decay = static_cast<float>(group.weight_decay);
  factors.momentum = static_cast<float>(sgd.momentum);
  factors.lr = static_cast<float>(group.lr);
  factors.first = steps == 1;
  return factors;
}

}  // namespace

std::span<const std::string_view> moment_names(const Optimizer& optimizer) {
  if (std::holds_alternative<AdamW>(optimizer)) return kAdamWMoments;
  return kSgdMoments;
}

Result<std::vector<GroupStep>> groups_of(const DataParallelOptions& options,
                                         const StepInput& input) {
  if (input.groups.empty()) {
    std::vector<GroupStep> groups;
    for (const ParameterGroup& group : options.groups)
      groups.push_back({input.lr * group.lr_scale, group.weight_decay, options.optimizer});
    return groups;
  }
  if (input.groups.size() != options.groups.size())
    return Status(Code::invalid_argument,
                  fmt::format("step(): StepInput::groups has {} groups, and the layer has {}",
                              input.groups.size(), options.groups.size()));
  for (const GroupStep& group : input.groups)
    if (group.optimizer.index() != options.optimizer.index())
      return Status(Code::invalid_argument,
                    "step(): a group of StepInput::groups has another kind of optimizer than the "
                    "layer");
  return std::vector<GroupStep>(input.groups.begin(), input.groups.end());
}

void BucketUpdate::add(const GroupStep& group, std::int64_t steps, std::size_t first,
                       std::size_t count) {
  if (const auto* adamw = std::get_if<AdamW>(&group.optimizer))
    adamw_.push_back({first, count, factors_of(*adamw, update_, group, steps)});
  else
    sgd_.push_back(
        {first, count, factors_of(std::get<Sgd>(group.optimizer), update_, group, steps)});
}

void BucketUpdate::run(Bucket& bucket, Workplace& workplace) const {
  if (adamw_.empty() && sgd_.empty()) return;
  UpdateArrays arrays;
  arrays.weights = bucket.main_weights();
  arrays.gradient = static_cast<const float*>(bucket.reduced(bucket.own()).data);
  for (std::size_t m = 0; m < moment_names(options_.optimizer).size(); ++m)
    arrays.moments[m] = bucket.moment(static_cast<int>(m));
  if (!adamw_.empty()) workplace.update(arrays, adamw_);
  if (!sgd_.empty()) workplace.update(arrays, sgd_);
}

}  // namespace tutti::train
