// The step: reductions are waited for, ranks agree, weights are updated and gathered.
#include <algorithm>
#include <cmath>

#include "train/replica.hpp"

namespace tutti::train {

Result<StepReport> Replica::step(const StepInput& input) {
  if (!status_.ok()) return status_;
  if (Status status = calls_.step(); !status.ok()) return fail(status);
  if (input.tokens < 0)
    return fail(Status(Code::invalid_argument, "step(): StepInput::tokens was not given"));
  if (!(input.loss_scale > 0))
    return fail(Status(Code::invalid_argument, "step(): StepInput::loss_scale must be above 0"));
  auto groups = groups_of(options_, input);
  if (!groups.ok()) return fail(groups.status());
  if (Status status = end_passes(); !status.ok()) return fail(status);
  watch_.begin_update();
  if (!reducer_.in_every_micro_batch()) reducer_.launch_rest();
  if (Status status = share_uses(); !status.ok()) return fail(status);
  ExactSum norm;
  if (Status status = await_reductions(norm); !status.ok()) return fail(status);
  // Before the ranks agree: then all know that each of them has its neighbour's last shard.
  if (buddy_)
    if (Status status = buddy_->finish(); !status.ok()) return fail(status);
  if (Status status = exchange_control(input, norm); !status.ok()) return fail(status);
  auto report = read_control(input.loss_scale);
  if (!report.ok()) return fail(report.status());
  // An update must not overtake the gather of the one before. Without one, too: ranks list the same
  // collectives in their times only where all of them have waited for the same.
  if (Status status = parameters_ready(); !status.ok()) return status;
  if (report->outcome == Outcome::updated) {
    const double scale = 1 / (static_cast<double>(report->tokens) * input.loss_scale);
    if (Status status = update_all({*std::move(groups), scale}, *report); !status.ok())
      return fail(status);
  } else {
    zero_gradients();
  }
  if (Status status = workplace_->status(); !status.ok()) return fail(status);
  const std::int64_t number = input.number > 0 ? input.number : number_ + 1;
  if (report->outcome == Outcome::rejected) {
    end_step(std::nullopt);
  } else {
    number_ = number;
    end_step(number);
    if (Status status = copy_shard(); !status.ok()) return fail(status);
  }
  return report;
}

// What a rank of a sum has used counts as used on all of them: they update it alike.
Status Replica::share_uses() {
  for (const auto& group : sum_groups_)
    if (group) group->start_uses(used_);
  for (const auto& group : sum_groups_)
    if (Status status = group ? group->take_uses(used_) : Status(); !status.ok()) return status;
  return {};
}

// The norm of one bucket is summed while the next is still on its way. Every rank sums its shard, in every
// mode; padding is zero.
Status Replica::await_reductions(ExactSum& norm) {
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    if (Status status = reducer_.settle(index); !status.ok()) return status;
    const Buffer shard = buckets_[index]->reduced(buckets_[index]->shard());
    workplace_->sum_squares(index, static_cast<const float*>(shard.data), shard.count);
  }
  take_findings(norm);
  if (Status status = watch_.settle(); !status.ok()) return status.annotate("reducing gradients");
  return workplace_->status();
}

// What a rank says of itself counts more than what it finds in the sum: that may be anybody's.
void Replica::take_findings(ExactSum& norm) {
  const std::vector<Findings> all = workplace_->take_findings(buckets_.size());
  for (std::size_t index = 0; index < all.size(); ++index)
    if (all[index].not_finite)
      control_.set_gradient_fault(parameter_at(index, *all[index].not_finite), false);
  for (std::size_t index = 0; index < all.size(); ++index) {
    if (layout_.buckets[index].counted) norm.add_limbs(all[index].squares.limbs());
    if (const auto bad = all[index].not_finite_squared)
      control_.set_gradient_fault(parameter_at(index, buckets_[index]->shard().first + *bad), true);
  }
}

Status Replica::exchange_control(const StepInput& input, const ExactSum& norm) {
  control_.set_norm(norm);
  control_.set_tokens(input.tokens);
  for (std::size_t index = 0; index < used_.size(); ++index)
    if (used_[index]) control_.set_used(index);
  if (!input.loss_is_finite) control_.set_loss_fault();
  if (input.stop) control_.set_stop();
  if (input.meet) control_.set_meet();
  const std::span<std::int64_t> words = control_.vector();
  Pending pending;
  const auto start = [&] {
    CallOptions call;
    call.name = "control";
    return group_->all_reduce_async(Buffer::of(words.data(), words.size()), ReduceOp::sum, call);
  };
  watch_.launch(pending, Stopwatch::Side::host, Collective::all_reduce, -1, words.size_bytes(),
                start);
  return watch_.await(pending).annotate("agreeing on the step");
}

std::vector<Fault> Replica::faults_found() const {
  const auto found = control_.slot_faults();
  // What was not finite before the reduction is not finite after it either: that says nothing new.
  const bool known =
      std::any_of(found.begin(), found.end(), [](const auto& one) { return !one.after_reduction; });
  std::vector<Fault> faults;
  for (const Control::SlotFault& one : found) {
    if (known && one.after_reduction) continue;
    Fault fault;
    fault.rank = one.after_reduction ? -1 : one.rank;
    fault.is_loss = one.is_loss;
    if (one.parameter) {
      fault.parameter = parameters_[*one.parameter].name;
      fault.bucket = static_cast<int>(layout_.place[*one.parameter]->bucket);
    }
    faults.push_back(std::move(fault));
  }
  return faults;
}

// The norm and the faults of the whole model, where this data group trains a part of it.
Status Replica::add_other_data_groups(double& norm_squared, std::vector<Fault>& faults) {
  Pending pending;
  const auto start = [&] {
    return norm_group_->start(control_.norm(), control_.tokens(), !faults.empty(), control_.stop());
  };
  watch_.launch(pending, Stopwatch::Side::host, Collective::all_reduce, -1, norm_group_->bytes(),
                start);
  if (Status status = watch_.await(pending); !status.ok())
    return status.annotate("agreeing on the norm");
  if (Status status = norm_group_->check_tokens(); !status.ok()) return status;
  norm_squared = norm_group_->norm_squared();
  auto all = norm_group_->faults(faults);
  if (!all.ok()) return all.status();
  faults = *std::move(all);
  return {};
}

Outcome Replica::outcome_of(const StepReport& report) const {
  if (!report.faults.empty()) {
    const bool loss = std::any_of(report.faults.begin(), report.faults.end(),
                                  [](const Fault& fault) { return fault.is_loss; });
    return loss || options_.check_for_nan ? Outcome::rejected : Outcome::skipped;
  }
  // The mean over no token is 0/0. Its gradients are zero, but weights and moments would decay.
  return report.tokens == 0 ? Outcome::empty : Outcome::updated;
}

std::vector<std::string> Replica::newly_unused() {
  std::vector<std::string> names;
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    if (!layout_.place[index] || told_[index] || control_.used_by(index) > 0) continue;
    told_[index] = true;
    names.push_back(parameters_[index].name);
  }
  return names;
}

Result<StepReport> Replica::read_control(double loss_scale) {
  StepReport report;
  report.tokens = control_.tokens();
  report.stop = control_.stop();
  report.meet = control_.meet();
  report.faults = faults_found();
  double norm_squared = control_.norm().value();
  if (norm_group_) {
    if (Status status = add_other_data_groups(norm_squared, report.faults); !status.ok())
      return status;
    report.stop = norm_group_->stop();
  }
  // A norm of zero tokens is that of no gradient: zero.
  if (report.tokens > 0)
    report.grad_norm = std::sqrt(norm_squared) / (static_cast<double>(report.tokens) * loss_scale);
  report.outcome = outcome_of(report);
  report.unused = newly_unused();
  return report;
}

Status Replica::update_all(Update update, const StepReport& report) {
  is_pristine_ = false;
  // As torch.nn.utils.clip_grad_norm_ does it.
  if (options_.clip_grad > 0)
    update.grad_scale *= std::min(1.0, options_.clip_grad / (report.grad_norm + 1e-6));
  for (std::size_t index : layout_.forward) {
    update_bucket(index, update);
    if (options_.use_distributed_optimizer && keeps_whole_weights())
      launch_gather(index);
    else
      buckets_[index]->landed = buckets_[index]->generation;
  }
  zero_gradients();  // when the gathers are on their way: nobody waits for zeros
  if (!options_.overlap_param_gather || !keeps_whole_weights()) return parameters_ready();
  for (std::size_t index = 0; index < parameters_.size(); ++index)
    if (layout_.place[index]) set_open(index, false);
  return {};
}

void Replica::zero_gradients() {
  for (const auto& bucket : buckets_)
    if (bucket->keeps().sum)
      bucket->zero_sum();
    else
      bucket->zero_gradients();
}

void Replica::update_bucket(std::size_t index, const Update& update) {
  Bucket& bucket = *buckets_[index];
  BucketUpdate parts(options_, update);
  for (std::size_t parameter : bucket.plan().parameters) {
    // As in torch, what nobody used is left alone: not even decayed.
    if (control_.used_by(parameter) == 0) continue;
    const std::int64_t steps = ++steps_[parameter];
    const Range elements = overlap_of(range_of(parameter), bucket.own());
    if (elements.count == 0) continue;
    const auto group = static_cast<std::size_t>(parameters_[parameter].group);
    parts.add(update.groups[group], steps, elements.first - bucket.own().first, elements.count);
  }
  parts.run(bucket, *workplace_);
  bucket.narrow_values();
  ++bucket.generation;
}

void Replica::launch_gather(std::size_t index) {
  Bucket& bucket = *buckets_[index];
  const Buffer values = bucket.values();
  const auto start = [&] {
    return group_->all_gather_async(bucket.values(bucket.shard()), values,
                                    call_on(values, bucket.name.c_str()));
  };
  watch_.launch(bucket.gather, Stopwatch::Side::workplace, Collective::all_gather,
                static_cast<int>(index), values.bytes(), start);
}

// Gathers that nobody has waited for yet are the next step's.
void Replica::end_step(std::optional<std::int64_t> number) {
  std::vector<Pending*> carried;
  for (std::size_t bucket : layout_.forward)
    if (!buckets_[bucket]->gather.waited) carried.push_back(&buckets_[bucket]->gather);
  watch_.end_step(number, carried);
  calls_.restart();
  control_.clear();
  std::fill(used_.begin(), used_.end(), false);
  reducer_.end_step();
  expect_gradients();
  if (!keeps_whole_weights()) gatherer_.start_ahead();
}

}  // namespace tutti::train
