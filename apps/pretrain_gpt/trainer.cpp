#include "trainer.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>
#include <thread>
#include <type_traits>

#include "checkpoints.hpp"
#include "compute_peak.hpp"
#include "device.hpp"
#include "hf_folder.hpp"
#include "passes.hpp"
#include "position.hpp"
#include "rehearsal.hpp"
#include "shape.hpp"
#include "split.hpp"
#include "step_log.hpp"
#include "stop_request.hpp"
#include "subject.hpp"
#include "torch_memory.hpp"
#include "tutti/libtorch.hpp"

namespace pretrain {

namespace train_ = tutti::train;
using train_::LossGuard;
using tutti::Code;
using tutti::Status;

namespace {

// at::set_num_threads does not reach an OpenBLAS that has threads of its own.
void set_threads(int threads) {
  at::set_num_threads(threads);
  using Setter = void (*)(int);
  void* symbol = ::dlsym(RTLD_DEFAULT, "openblas_set_num_threads");
  if (symbol != nullptr) reinterpret_cast<Setter>(symbol)(threads);
}

tutti::libtorch::Options wrap_options(const Flags& flags) {
  tutti::libtorch::Options options;
  options.layer.overlap_grad_reduce = flags.overlaps_reductions();
  options.layer.zero = flags.zero();
  options.layer.overlap_param_gather = flags.overlap_param_gather;
  options.layer.bucket_bytes = flags.bucket_size;
  options.layer.grad_reduce_in_bf16 = flags.grad_reduce_in_bf16;
  options.layer.reduction_order = *tutti::parse_reduction_order(flags.reduction_order);
  options.layer.clip_grad = flags.clip_grad;
  options.layer.check_for_nan = flags.check_for_nan;
  options.layer.buddy = flags.buddy;
  options.layer.groups = {{.weight_decay = flags.weight_decay}, {.weight_decay = 0}};
  if (flags.optimizer == "sgd") {
    options.layer.optimizer = train_::Sgd{.momentum = flags.sgd_momentum};
  } else {
    options.layer.optimizer = train_::AdamW{
        .beta1 = flags.adam_beta1, .beta2 = flags.adam_beta2, .epsilon = flags.adam_eps};
  }
  options.layer.pipelined = flags.pipeline_parallel > 1;
  return options;
}

// A rank is lost, or has left; what this one did is not at fault.
bool is_by_others(const Status& status) {
  return status.code() == Code::peer_lost || status.code() == Code::timed_out ||
         status.code() == Code::aborted;
}

LossGuard guard_of(const Flags& flags) {
  return LossGuard({flags.check_for_nan, flags.strict_loss_check, flags.check_for_spiky_loss});
}

class Trainer {
 public:
  Trainer(std::shared_ptr<tutti::Group> group, Subject& subject, const Flags& flags, Data data,
          Returns returns)
      : group_(std::move(group)),
        subject_(subject),
        flags_(flags),
        torch_memory_(flags),
        data_(std::move(data)),
        returns_(std::move(returns)),
        guard_(guard_of(flags)),
        scale_(loss_scale_of(flags)),
        schedule_(flags.schedule()) {}

  Status set_up();
  const Split& split() const { return *split_; }
  // Instead of set_up, where the others train already.
  Status catch_up();
  Status run();
  // What could not be written, though training went well.
  Status unwritten() const { return report_ ? report_->failure() : Status(); }
  // Whether those that are left can do without whoever is lost, and going on without.
  bool can_go_on(const Status& status) const;
  Status go_on(const Status& why);
  // So that nobody waits for a rank that stopped alone.
  void give_up(const Status& status);

 private:
  Status make_net();
  Status make_split();
  tutti::libtorch::Options wrapping() const;
  Status find_latest();
  Status resume();
  Status open_report();
  Status open_channels();
  void move_to(std::shared_ptr<tutti::Group> group);
  Status recover();
  Status take_in_the_returned();
  Status start_over(const Status& why);
  Status stand_at(std::int64_t step);
  Whereabouts::Stand stand() const { return {at_, guard_.state(), scale_.state()}; }
  bool is_done() const { return at_.steps >= flags_.train_iters; }  // by the checkpoint
  Status look_ahead();
  // Of the next step.
  double lr() const { return schedule_.rate.at(at_.updates + 1); }
  double weight_decay() const { return schedule_.decay.at(at_.updates + 1); }
  int batch() const { return schedule_.ramp.at(at_.sequences, flags_.global_batch_size); }
  Status one_step(std::int64_t step);
  tutti::Result<train_::StepReport> attempt(std::int64_t step, int number);
  Status after_step(std::int64_t step);
  Status validate(std::int64_t step);
  Status save();
  Status finish_saving();
  void say(std::int64_t step, const std::string& text);
  Status tell_memory();
  Status measure_compute();
  void tell_compute();

  std::shared_ptr<tutti::Group> group_;
  Subject& subject_;
  Flags flags_;
  TorchMemory torch_memory_;  // before the model
  Data data_;
  Returns returns_;
  std::optional<Split> split_;
  LossGuard guard_;
  train_::LossScale scale_;
  bool common_decision_ = false;  // all ranks end alike
  bool begins_anew_ = false;      // --load latest found nothing
  StopRequest stop_;
  bool stops_ = false;  // some rank was asked to, or could not write; all have agreed
  bool meets_ = false;  // likewise: somebody came back
  bool is_newcomer_ = false;
  std::shared_ptr<DataParallel> model_;
  std::unique_ptr<Passes> passes_;
  std::shared_ptr<tutti::Group> validation_group_;
  std::unique_ptr<TrainingReport> report_;  // rank 0
  std::unique_ptr<StepLog> log_;
  std::unique_ptr<Checkpoints> checkpoints_;
  Position at_;
  Whereabouts whereabouts_;  // at_, and of the steps before
  bool has_shrunk_ = false;
  Schedule schedule_;
  std::vector<std::string> warnings_;  // of a checkpoint, until there is a report
  PassSums sums_;                      // of this step
  std::optional<ComputePeak> peak_;    // of a rank that was there from the beginning
};

Status Trainer::make_split() {
  auto split = Split::create(group_, flags_);
  if (!split.ok()) return split.status();
  split_ = *std::move(split);
  return {};
}

Status Trainer::make_net() {
  set_threads(flags_.threads);
  try {
    return subject_.make(flags_, *split_);
  } catch (const c10::Error& error) {
    return {Code::invalid_argument,
            fmt::format("the model cannot be made: {}", error.what_without_backtrace())};
  }
}

tutti::libtorch::Options Trainer::wrapping() const {
  auto options = wrap_options(flags_);
  subject_.adapt(options, *split_);
  return options;
}

Status Trainer::set_up() {
  if (auto status = make_split(); !status.ok()) return status;
  if (auto status = make_net(); !status.ok()) return status;
  auto options = wrapping();
  if (auto status = find_latest(); !status.ok()) return status;
  if (auto status = measure_compute(); !status.ok()) return status;
  if (!flags_.load.empty()) {
    auto info = train_::inspect_checkpoint(flags_.load);
    if (!info.ok()) return info.status().annotate("--load " + flags_.load);
    options.layer.order_hint = info->order;
  }
  auto model = DataParallel::create(subject_.module(), split_->groups(), std::move(options));
  if (!model.ok()) return model.status();
  model_ = *model;
  if (!flags_.load.empty()) {
    if (auto status = resume(); !status.ok()) return status;
  } else if (!flags_.hf.load.empty()) {
    if (auto status = load_hf(model_->layer(), flags_); !status.ok()) return status;
  }
  whereabouts_.note(stand());
  if (auto status = open_report(); !status.ok()) return status;
  if (report_ && begins_anew_) report_->begun_anew(flags_.save);
  if (report_ && !flags_.load.empty()) report_->resumed(flags_.load);
  if (report_ && flags_.load.empty() && !flags_.hf.load.empty()) report_->read(flags_.hf.load);
  for (const std::string& text : warnings_) say(at_.steps, text);
  if (flags_.predict && !is_done()) {
    if (auto status = look_ahead(); !status.ok()) return status;
  }
  return open_channels();
}

Status Trainer::catch_up() {
  is_newcomer_ = true;
  if (auto status = make_split(); !status.ok()) return status;
  if (auto status = make_net(); !status.ok()) return status;
  const int self = group_->rank();
  auto alone = group_->subgroup({&self, 1}, 0, {"newcomer"});
  if (!alone.ok()) return alone.status();
  auto model = DataParallel::create(subject_.module(), {*alone, *alone}, wrapping());
  if (!model.ok()) return model.status();
  model_ = *model;
  return recover();
}

// On rank 0, whoever that is now.
Status Trainer::open_report() {
  if (group_->rank() == 0 && !report_) {
    auto report = TrainingReport::open(flags_, group_->size(), at_.steps + 1);
    if (!report.ok()) return report.status();
    report_ = *std::move(report);
    std::size_t elements = 0;
    for (const auto& parameter : model_->layer().parameters()) elements += parameter.count();
    report_->begin(subject_.describe(flags_, elements), split_->describe(),
                   model_->layer().describe());
    tell_compute();
  }
  return {};
}

// All that hangs on the group besides the model.
Status Trainer::open_channels() {
  auto passes = subject_.passes(flags_, schedule_.ramp, *split_, data_, *model_);
  if (!passes.ok()) return passes.status();
  passes_ = *std::move(passes);
  auto copy = group_->duplicate({"validation", tutti::ReductionOrder::rank});
  if (!copy.ok()) return copy.status();
  validation_group_ = *copy;
  auto log = StepLog::create(*split_, flags_.async_log_all_reduce, report_.get(), &guard_);
  if (!log.ok()) return log.status();
  log_ = *std::move(log);
  auto checkpoints = Checkpoints::create(*group_, flags_, report_.get());
  if (!checkpoints.ok()) return checkpoints.status();
  checkpoints_ = *std::move(checkpoints);
  return {};
}

// Rank 0's answer counts: another host may not see the newest one yet.
Status Trainer::find_latest() {
  if (flags_.load != kLatest) return {};
  auto newest = train_::newest_checkpoint(*group_, flags_.save);
  if (!newest.ok()) return newest.status().annotate("--load latest");
  flags_.load = *newest;
  begins_anew_ = newest->empty();
  return {};
}

Status Trainer::resume() {
  auto info = train_::load_checkpoint(model_->layer(), flags_.load);
  if (!info.ok()) return info.status().annotate("--load " + flags_.load);
  at_.steps = info->iteration;
  if (flags_.train_iters == 0) return {};  // for its weights
  const auto counts = model_->layer().step_counts();
  const std::int64_t updates = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  auto resumed = from_checkpoint(*info, flags_, data_, updates, guard_, scale_);
  if (!resumed.ok()) return resumed.status();
  at_ = resumed->position;
  schedule_ = resumed->schedule;
  const auto at_once = std::int64_t{flags_.micro_batch_size} * split_->sizes().dp;
  if (auto status = check_ramp(schedule_.ramp, flags_.global_batch_size, at_once); !status.ok())
    return status.annotate("--load " + flags_.load);
  for (const auto& more : {info->warnings, resumed->warnings})
    warnings_.insert(warnings_.end(), more.begin(), more.end());
  return {};
}

Status Trainer::look_ahead() {
  auto rehearsal = rehearse(*group_, flags_, data_, wrapping(), model_->layer());
  if (!rehearsal.ok()) return rehearsal.status();
  auto foretold = foretell(model_->layer().group(), *rehearsal);
  if (!foretold.ok()) return foretold.status().annotate("--predict");
  if (report_) report_->predict(*foretold);
  return {};
}

tutti::Result<train_::StepReport> Trainer::attempt(std::int64_t step, int number) {
  const LossFactor loss = loss_factor(flags_, scale_);
  auto sums = passes_->train({step, number, at_.sequences, batch(), loss.factor});
  if (!sums.ok()) return sums.status();
  sums_ = *sums;
  if (flags_.die && !has_shrunk_ && flags_.die->hits(step, group_->rank(), number))
    ::raise(SIGKILL);
  const auto& optimizer = model_->layer().options().optimizer;
  const train_::GroupStep groups[] = {{lr(), weight_decay(), optimizer}, {lr(), 0, optimizer}};
  return model_->step({.lr = lr(),
                       .groups = groups,
                       .loss_scale = loss.factor,
                       .tokens = sums_.tokens,
                       .loss_is_finite = !flags_.strict_loss_check || std::isfinite(sums_.loss_sum),
                       .number = step,
                       .stop = stop_.asked() || checkpoints_->failed(),
                       .meet = group_->rank() == 0 && returns_.somebody_waits(group_->size())});
}

Status Trainer::one_step(std::int64_t step) {
  for (int number = 0;; ++number) {
    auto report = attempt(step, number);
    if (!report.ok()) return report.status();
    const auto times = model_->layer().take_times();
    const double scale = loss_factor(flags_, scale_).scale;
    const auto judgement = guard_.judge(step, *report, flags_.fp16 && scale_.may_fall());
    if (flags_.fp16) scale_.note(report->outcome);
    if (!judgement.text.empty()) say(step, judgement.text);
    if (judgement.verdict == LossGuard::Verdict::stop) {
      common_decision_ = true;
      return judgement.status;
    }
    if (judgement.verdict == LossGuard::Verdict::recompute) continue;
    for (const std::string& name : report->unused) {
      say(step, "parameter '" + name + "' is used by no rank and is not updated");
    }
    if (report_) report_->layout(model_->layer().describe());
    if (report_ && flags_.zero() == 3) report_->units(train_::exposed_by_bucket(times));
    stops_ = report->stop;
    meets_ = report->meet;
    const StepFacts facts{step, sums_, batch(), lr(), weight_decay(), scale, *report, times};
    at_ = {step, at_.updates + (report->outcome == train_::Outcome::updated ? 1 : 0),
           at_.sequences + static_cast<std::uint64_t>(facts.sequences)};
    whereabouts_.note(stand());
    return log_->publish(facts);
  }
}

Status Trainer::validate(std::int64_t step) {
  if (auto status = model_->parameters_ready(); !status.ok()) return status;
  torch::NoGradGuard no_grad;
  subject_.module()->eval();
  double sums[2] = {0, 0};
  for (int round = 0; round < flags_.eval_iters; ++round) {
    const auto more = passes_->evaluate(round);
    if (!more.ok()) return more.status();
    sums[0] += more->loss_sum;
    sums[1] += split_->tells_loss() ? static_cast<double>(more->tokens) : 0;
  }
  subject_.module()->train();
  auto status = validation_group_->all_reduce(tutti::Buffer::of(sums, 2), tutti::ReduceOp::sum);
  if (!status.ok()) return status;
  if (sums[1] == 0) say(step, "validation has nothing to judge: nothing counts in its loss");
  if (sums[1] > 0 && report_) report_->validation(step, sums[0] / sums[1]);
  return {};
}

// Everything that was published is judged first: no checkpoint of a run that has failed.
Status Trainer::save() {
  if (auto status = log_->flush(); !status.ok()) return status;
  auto info = to_checkpoint(at_, flags_, schedule_, data_, guard_, scale_);
  info.ranks = group_->size();
  info.order = model_->layer().order();
  auto status = checkpoints_->save(model_->layer(), info);
  common_decision_ = !status.ok() && !is_by_others(status);
  return status;
}

Status Trainer::finish_saving() {
  Status status = checkpoints_->finish();
  common_decision_ = !status.ok() && !is_by_others(status);
  return status;
}

Status Trainer::after_step(std::int64_t step) {
  const auto due = [&](std::int64_t interval) { return interval > 0 && step % interval == 0; };
  if (due(flags_.eval_interval)) {
    if (auto status = validate(step); !status.ok()) return status.annotate("validation");
  }
  if (due(flags_.check_weight_hash_interval)) {
    if (auto status = model_->layer().check_weights(); !status.ok()) return status;
  }
  const bool last = (step == flags_.train_iters || stops_) && !flags_.save.empty();
  return due(flags_.save_interval) || last ? save() : Status();
}

Status Trainer::run() {
  if (is_done() && report_) report_->nothing_left();
  torch_memory_.forget_peak();
  for (std::int64_t step = at_.steps + 1; step <= flags_.train_iters && !stops_; ++step) {
    if (auto status = one_step(step); !status.ok()) return status;
    if (auto status = after_step(step); !status.ok()) return status;
    if (!meets_ || stops_ || step == flags_.train_iters) continue;
    if (auto status = take_in_the_returned(); !status.ok()) return status;
  }
  if (auto status = log_->flush(); !status.ok()) return status;
  if (auto status = finish_saving(); !status.ok()) return status;
  if (is_done() && !flags_.hf.save.empty()) {
    auto status = save_hf(model_->layer(), flags_, data_.end_of_document());
    if (!status.ok()) return status;
    if (report_) report_->wrote(flags_.hf.save);
  }
  std::string hash;
  if (flags_.print_weight_hash) {
    auto result = model_->layer().weight_hash();
    if (!result.ok()) return result.status();
    hash = *result;
  }
  if (report_ && stops_ && !is_done())
    report_->stopped(at_.steps, checkpoints_->last() == at_.steps);
  if (auto status = tell_memory(); !status.ok()) return status;
  if (report_) report_->end(at_.steps, guard_.skipped(), guard_.transient(), hash);
  return model_->layer().everyone().barrier();  // nobody leaves while others still need it
}

// ---- without those that are lost, and with those that came back

// One that has come back and has nothing of the others' yet leaves: alone, it would train on its own.
bool Trainer::can_go_on(const Status& status) const {
  return flags_.on_failure == kShrink && is_by_others(status) && !common_decision_ &&
         !is_newcomer_ && !(log_ && log_->stopped_by_guard());
}

Status Trainer::go_on(const Status& why) {
  const int before = group_->size();
  auto survivors = group_->shrink();
  if (!survivors.ok()) return survivors.status().annotate("going on without lost ranks");
  move_to(*survivors);
  if (group_->size() == before) {
    common_decision_ = true;  // nobody is lost: it would happen again
    return why;
  }
  has_shrunk_ = true;
  stops_ = false;  // whoever was asked asks again
  if (auto status = recover(); !status.ok()) return status;
  if (report_) report_->shrunk(at_.steps, before, group_->size(), why.message());
  return run();
}

// What hangs on the old group ends now: whoever is lost is lost to all of it.
void Trainer::move_to(std::shared_ptr<tutti::Group> group) {
  passes_.reset();
  log_.reset();
  checkpoints_.reset();
  validation_group_.reset();
  group_ = std::move(group);
}

// Between two steps, on all ranks: nothing is under way, and everybody has the whole of the last step.
Status Trainer::take_in_the_returned() {
  if (auto status = log_->flush(); !status.ok()) return status;
  if (auto status = finish_saving(); !status.ok()) return status;
  const auto larger = returns_.take_in(*group_);
  if (!larger.ok()) {
    if (!group_->health().ok()) return larger.status();
    say(at_.steps, "a rank that came back was not taken in: " + larger.status().message());
    return {};
  }
  if (*larger == nullptr) return {};
  const int before = group_->size();
  move_to(*larger);
  if (auto status = recover(); !status.ok()) return status;
  if (report_) report_->grown(at_.steps, before, group_->size());
  return {};
}

Status Trainer::recover() {
  // Some may have none, where a rank was lost while they started over: then all do.
  std::int64_t has_model = model_ != nullptr ? 1 : 0;
  auto agreed = group_->all_reduce(tutti::Buffer::of(&has_model, 1), tutti::ReduceOp::min);
  if (!agreed.ok()) return agreed;
  if (has_model == 0)
    return start_over({Code::peer_lost, "a rank was lost while others started over"});
  if (auto status = make_split(); !status.ok()) return status;
  const auto step =
      is_newcomer_ ? model_->join(split_->groups()) : model_->recover(split_->groups());
  if (!step.ok()) return start_over(step.status());
  is_newcomer_ = false;
  if (auto status = stand_at(*step); !status.ok()) return status;
  if (auto status = open_report(); !status.ok()) return status;
  return open_channels();
}

// From the newest checkpoint, when the state itself is lost. Another loss is another matter: it
// names a peer, and may be known to the model's copy of the group alone.
Status Trainer::start_over(const Status& why) {
  if (!group_->health().ok() || why.peer() >= 0) return why;
  if (flags_.save.empty()) {
    common_decision_ = true;
    return why;
  }
  model_.reset();
  report_.reset();
  is_newcomer_ = false;
  at_ = {};
  guard_ = guard_of(flags_);
  scale_ = loss_scale_of(flags_);
  schedule_ = flags_.schedule();
  flags_.load = kLatest;
  begins_anew_ = false;
  warnings_ = {why.message()};
  Status status = set_up();
  if (!status.ok()) model_.reset();  // half made, it must not be taken for one that was trained
  return status;
}

// A rank that has not been there asks one that has.
Status Trainer::stand_at(std::int64_t step) {
  auto stand = whereabouts_.share(*group_, step);
  if (!stand.ok()) return stand.status();
  at_ = stand->position;
  whereabouts_.note(*stand);  // whoever was asked may be the next to be lost
  guard_ = guard_of(flags_);
  // A checkpoint may have brought another one than the command line's.
  static_assert(std::is_trivially_copyable_v<Schedule>);
  const tutti::Buffer schedule{&schedule_, sizeof schedule_, tutti::Dtype::u8};
  if (auto status = group_->broadcast(schedule, 0); !status.ok()) return status;
  if (auto status = scale_.restore(stand->scale); !status.ok()) return status;
  return guard_.restore(stand->guard);
}

Status Trainer::measure_compute() {
  if (flags_.has_own_model || flags_.train_iters == 0) return {};
  auto peak = find_compute_peak(*group_, flags_);
  if (!peak.ok()) return peak.status();
  peak_ = *peak;
  return {};
}

void Trainer::tell_compute() {
  const auto model = shape_of(flags_);
  if (!peak_ || !model.ok()) return;
  const double forward = tutti::plan::token_flops(*model, flags_.seq_length).forward();
  report_->compute({3 * forward, peak_->flops_per_s, peak_->measured});
}

Status Trainer::tell_memory() {
  const auto kept = model_->layer().memory();
  const auto bytes = [](std::size_t count) { return static_cast<double>(count); };
  const auto peak = torch_memory_.peak();
  TakenMemory own{bytes(kept.weights), bytes(kept.gradients), bytes(kept.optimizer),
                  bytes(kept.pool), peak ? static_cast<double>(*peak) : std::nan("")};
  MemoryLine line;
  line.ranks.resize(static_cast<std::size_t>(group_->size()));
  const tutti::Buffer everyones{line.ranks.data(), line.ranks.size() * sizeof own,
                                tutti::Dtype::u8};
  const tutti::Buffer mine{&own, sizeof own, tutti::Dtype::u8};
  if (auto status = group_->all_gather(mine, everyones); !status.ok() || !report_) return status;
  const auto model = shape_of(flags_);
  // The arithmetic is of whole replicas, of GPTs and Llamas.
  if (model.ok() && split_->sizes().is_whole() && !flags_.has_own_model)
    line.predicted = tutti::plan::replica_memory(
        *model, {group_->size(), flags_.zero(), flags_.bf16 || flags_.fp16,
                 flags_.optimizer == "sgd" ? 1 : 2, flags_.micro_batch_size, flags_.seq_length,
                 recompute_shape(flags_), flags_.grad_reduce_in_bf16});
  report_->memory(line);
  return {};
}

void Trainer::say(std::int64_t step, const std::string& text) {
  if (report_) report_->warning(step, text);
}

void Trainer::give_up(const Status& status) {
  if (model_ == nullptr) return;
  if (common_decision_ || (log_ && log_->stopped_by_guard())) {
    // Who leaves first would take the others' last collectives, and their verdict, away from them.
    (void)group_->barrier({.timeout = std::chrono::seconds(30)}).ok();
    return;
  }
  for (tutti::Group* group : {&model_->layer().group(), &model_->layer().everyone()})
    if (group->health().ok()) group->abort(status.message());
  if (!split_->sizes().is_whole()) split_->abort(status.message());
}

}  // namespace

TrainingEnd train(std::shared_ptr<tutti::Group> group, Subject& subject, const Flags& flags,
                  Data data, Returns returns) {
  Trainer trainer(std::move(group), subject, flags, std::move(data), std::move(returns));
  Status status = has_returned() ? trainer.catch_up() : trainer.set_up();
  if (!status.ok() && !has_returned()) {
    const bool given = status.code() == Code::invalid_argument || status.code() == Code::io ||
                       status.code() == Code::corrupt;
    return {status, given};
  }
  if (status.ok()) status = trainer.run();
  while (!status.ok() && trainer.can_go_on(status)) status = trainer.go_on(status);
  if (status.ok()) return {trainer.unwritten(), false};
  trainer.give_up(status);
  return {status, false};
}

}  // namespace pretrain
