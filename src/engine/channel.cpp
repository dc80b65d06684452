// The group's queue: starting, stepping, ending. Its peers are in channel_peers.cpp.
#include "engine/channel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "core/check.hpp"
#include "core/pause.hpp"
#include "core/ticks.hpp"
#include "engine/engine.hpp"
#include "schedule/catalog.hpp"
#include "schedule/passes.hpp"

namespace tutti::engine {

namespace {

// Calls that are kept to compare with late arrivals. A peer is never further behind than there are
// ranks between it and us, so this is plenty.
constexpr std::size_t kHistory = 256;
// Looks without a pause in between: a microsecond or so.
constexpr long kAlert = 64;
// How often the board hears of calls that are over before anybody could read it: about a
// millisecond.
constexpr std::uint64_t kTellEveryTicks = std::uint64_t{1} << 21;
// How often a blocking call that waits asks whether it was interrupted.
constexpr Nanoseconds kAskEvery = std::chrono::milliseconds(100);

std::uint64_t key_of(const Launch& launch) {
  return static_cast<std::uint64_t>(launch.collective) |
         static_cast<std::uint64_t>(launch.algorithm) << 8 |
         static_cast<std::uint64_t>(launch.shots) << 16 |
         static_cast<std::uint64_t>(launch.in_place) << 24 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(launch.root) & 0x7fffffffU) << 32;
}

}  // namespace

Channel::Channel(std::shared_ptr<Engine> engine, ChannelOptions options)
    : engine_(std::move(engine)),
      options_(std::move(options)),
      peers_(options_.members.size()),
      history_(kHistory),
      point_to_point_(options_.rank, size(), options_.name) {}

// ---- starting

void Channel::set_stage(std::unique_ptr<Stage> stage) {
  std::scoped_lock lock(baton_);
  stage_ = std::move(stage);
  stage_run_ = std::make_unique<StageRun>(*stage_);
  stage_run_->trace_to(tracer(), options_.id);
  plans_.clear();  // what was made for messages may fit the stage
  last_ready_ = nullptr;
  last_key_ = ~std::uint64_t{0};
  patience_ = std::make_unique<Patience>(engine_->spins());
}

Status Channel::run(const Launch& launch, bool (*interrupted)()) {
  if (has_stage() && baton_.try_lock()) {
    const bool begun = begin_at_once(launch);
    const bool ended = begun && watch_stage();
    if (begun && tracer() != nullptr)
      tracer()->wait(options_.id, at_once_.sequence, at_once_.traced_from.count(),
                     engine_->clock().now().count());
    std::shared_ptr<WorkState> work;
    if (ended)
      end_at_once();
    else if (begun)
      work = hand_over();
    baton_.unlock();
    // Whoever wanted the baton meanwhile may have gone to sleep.
    if (has_news_.load(std::memory_order_relaxed)) engine_->kick();
    if (ended) return {};
    if (work) return finish(*work, interrupted);
  }
  Queued queued;
  queued.lent = &launch;
  return finish(*enqueue(std::move(queued), true), interrupted);
}

Status Channel::finish(WorkState& work, bool (*interrupted)()) {
  if (interrupted == nullptr) return work.wait(Nanoseconds::max());
  for (Status status = work.wait(kAskEvery);; status = work.wait(kAskEvery)) {
    if (work.done()) return status;
    if (!interrupted()) continue;
    fail({Code::aborted,
          fmt::format("rank {} was interrupted in a call on group '{}'", options_.rank,
                      options_.name),
          {options_.rank, -1, 0}},
         true);
    return work.wait(Nanoseconds::max());
  }
}

std::shared_ptr<WorkState> Channel::start(Launch launch, bool caller_drives) {
  Queued queued;
  queued.owned = std::make_unique<const Launch>(std::move(launch));
  queued.lent = queued.owned.get();
  return enqueue(std::move(queued), caller_drives);
}

std::shared_ptr<WorkState> Channel::enqueue(Queued queued, bool caller_drives) {
  auto work = std::make_shared<WorkState>(shared_from_this());
  const Nanoseconds now = engine_->clock().now();
  queued.queued = now;
  queued.deadline = deadline_after(now, queued.lent->timeout);
  queued.work = work;
  queued.counted = !caller_drives;
  Status refused;
  {
    std::scoped_lock lock(inbox_lock_);
    refused = failure_;
    if (refused.ok()) {
      queued.sequence = next_sequence_.fetch_add(1, std::memory_order_relaxed);
      work->set_sequence(queued.sequence);
      if (queued.counted) busy_.fetch_add(1);
      queue_.push_back(std::move(queued));
      queued_.fetch_add(1, std::memory_order_relaxed);
      has_news_.store(true, std::memory_order_release);
    }
  }
  if (!refused.ok())
    work->complete(refused);
  else if (!caller_drives)
    leave_to_progress(now);
  return work;
}

void Channel::leave_to_progress(Nanoseconds now) {
  const bool waited_for = habit_.waits_at_once();
  habit_.on_start(now);
  engine_->kick(waited_for);
}

std::shared_ptr<WorkState> Channel::post(std::vector<Posting> postings, bool caller_drives) {
  auto batch = std::make_shared<Batch>();
  batch->work = std::make_shared<WorkState>(shared_from_this());
  batch->open = postings.size();
  batch->counted = !caller_drives;
  const Nanoseconds now = engine_->clock().now();
  Status refused;
  {
    std::scoped_lock lock(inbox_lock_);
    refused = failure_;
    if (refused.ok() && !postings.empty()) {
      if (batch->counted) busy_.fetch_add(1);
      for (Posting& posting : postings) {
        posting.deadline = deadline_after(now, posting.timeout);
        posting.batch = batch;
        postings_.push_back(std::move(posting));
      }
      has_news_.store(true, std::memory_order_release);
    }
  }
  if (!refused.ok() || postings.empty())
    batch->work->complete(refused);
  else if (!caller_drives)
    leave_to_progress(now);
  return batch->work;
}

void Channel::drive(const WorkState& work, Nanoseconds timeout) {
  const Nanoseconds began = engine_->clock().now();
  habit_.on_wait(began);
  driven_.fetch_add(1);
  engine_->drive(
      *this, [&work] { return work.done(); }, timeout);
  driven_.fetch_sub(1);
  // What is left was nobody's while this thread drove it.
  if (busy()) engine_->kick();
  if (trace::Tracer* tracer = engine_->tracer())
    tracer->wait(options_.id, work.sequence(), began.count(), engine_->clock().now().count());
}

// ---- stepping

bool Channel::try_step() {
  if (!baton_.try_lock()) return false;
  const bool moved = step();
  baton_.unlock();
  return moved;
}

void Channel::end(const Status& status) {
  std::scoped_lock lock(baton_);
  {
    std::scoped_lock inbox(inbox_lock_);
    if (failure_.ok()) failure_ = status;
  }
  if (!torn_down_) tear_down();
  complete_all();
  // Here and now: it holds on to memory, and through it to everything below. Whoever else still has
  // this channel (the progress thread, for a moment) must not be the one to take that down.
  stage_run_.reset();
  stage_.reset();
}

bool Channel::step() {
  bool moved = false;
  if (!torn_down_) {
    moved = drain_inbox();
    if (failed_.load(std::memory_order_acquire)) {
      tear_down();
      if (engine_->failures()) engine_->failures()->on_failure(*this, health());
      moved = true;
    } else {
      moved |= run_collectives();
      if (point_to_point_.open() > 0) moved |= point_to_point_.step(*this, engine_->clock().now());
      open_messages_.store(static_cast<std::uint32_t>(point_to_point_.open()),
                           std::memory_order_relaxed);
      if (!point_to_point_.failure().ok()) fail(point_to_point_.failure(), true);
      // Only when nothing moves any more: what a rank sent before it went away still counts.
      if (!moved) moved = judge_departed() || check_deadline();
      if (!moved) update_deadline();
    }
  }
  complete_all();
  return moved;
}

bool Channel::drain_inbox() {
  if (!has_news_.load(std::memory_order_acquire)) return false;
  std::vector<Posting> postings;
  {
    std::scoped_lock lock(inbox_lock_);
    has_news_.store(false, std::memory_order_relaxed);
    draining_.swap(inbox_);
    postings.swap(postings_);
  }
  for (Incoming& message : draining_) handle(message);
  draining_.clear();
  for (Posting& posting : postings) point_to_point_.post(std::move(posting), *this);
  return true;
}

bool Channel::run_collectives() {
  bool moved = false;
  while (current_ || begin_next()) {
    moved |= step_current();
    // The arrivals left together with the first data, where there were any.
    if (std::exchange(arrivals_held_, false))
      for (int peer : company_) link_to(peer).flush_held();
    if (!failed_.load(std::memory_order_relaxed) && current_done()) {
      finish_current();
      moved = true;
      continue;
    }
    break;
  }
  return moved;
}

bool Channel::step_current() {
  if (ready_->plan) {
    if (stage_) look_at_lines();
    return ready_->plan->step(*this);
  }
  const bool moved = stage_run_->step();
  if (const int peer = stage_run_->stranger(); peer >= 0)
    fail_mismatch(peer, current_->sequence, current_->launch().fingerprint,
                  stage_->call_of(peer, current_->sequence));
  if (const Status failure = stage_run_->failure(); !failure.ok()) fail(failure, true);
  return moved;
}

bool Channel::current_done() const {
  return ready_->plan ? ready_->plan->done() && everyone_arrived() : stage_run_->done();
}

bool Channel::begin_next() {
  std::optional<Queued> next;
  {
    std::scoped_lock lock(inbox_lock_);
    if (queue_.empty() || !failure_.ok()) return false;
    next = std::move(queue_.front());
    queue_.pop_front();
    queued_.fetch_sub(1, std::memory_order_relaxed);
    last_call_ = next->launch().fingerprint;
    last_print_ = next->launch().print;
    last_sequence_ = next->sequence;
    last_running_ = true;
  }
  Ready& ready = ready_for(next->launch());
  begin(std::move(*next), ready);
  if (tracer() != nullptr) current_->begun = engine_->clock().now();
  note(trace::Event::started, *current_, {});
  return true;
}

void Channel::begin(Queued queued, Ready& ready) {
  current_.emplace(std::move(queued));
  ready_ = &ready;
  const Launch& launch = current_->launch();
  if (ready.staged) {
    stage_run_->begin(*ready.staged, launch, current_->sequence, launch.print);
    return;
  }
  history_[current_->sequence % history_.size()] = launch.fingerprint;
  ready.plan->begin(launch, current_->sequence);
  if (stage_) stage_->publish(current_->sequence, launch.fingerprint, launch.print);
  choose_company();
  announce();
  look_at_announced();
  std::deque<Incoming> early;
  early.swap(early_);
  for (Incoming& message : early) handle_data(message);
}

// ---- at once: a blocking call on a stage, with nothing before it in the queue

bool Channel::begin_at_once(const Launch& launch) {
  if (torn_down_ || current_ || queued_.load(std::memory_order_relaxed) != 0 ||
      failed_.load(std::memory_order_acquire))
    return false;
  Ready& ready = ready_for(launch);
  if (!ready.staged) return false;
  // Everything else can be done while the others are on their way.
  // No other call starts at the same time, so there is no race to win here.
  at_once_.sequence = next_sequence_.load(std::memory_order_relaxed);
  next_sequence_.store(at_once_.sequence + 1, std::memory_order_relaxed);
  stage_run_->begin(*ready.staged, launch, at_once_.sequence, launch.print);
  ready_ = &ready;
  at_once_.launch = &launch;
  note_at_once();
  return true;
}

// What others may ask for, and the record. The board, which is for people, hears of a call once in
// a while.
void Channel::note_at_once() {
  const Launch& launch = *at_once_.launch;
  at_once_.began = ticks();
  if (tracer() != nullptr) at_once_.traced_from = engine_->clock().now();
  if (last_print_ != launch.print) {
    std::scoped_lock lock(inbox_lock_);
    last_call_ = launch.fingerprint;
    last_print_ = launch.print;
  }
  if (at_once_.record_print != launch.print || !launch.name.empty()) {
    at_once_.record = record_of(trace::Event::finished, launch, 0);
    at_once_.record_print = launch.name.empty() ? launch.print : 0;
  }
  engine_->count_call(at_once_.record.bytes);
  last_sequence_.store(at_once_.sequence, std::memory_order_relaxed);
  last_running_.store(true, std::memory_order_relaxed);
  at_once_.told =
      engine_->failures() != nullptr && at_once_.began - at_once_.last_told > kTellEveryTicks;
  if (!at_once_.told) return;
  at_once_.last_told = at_once_.began;
  tell_board(launch, at_once_.sequence, true);
}

// Steps the stage until the collective is over, or until it is time to look after the rest. With a
// core for every rank, whoever is expected soon is waited for awake; if it never comes that soon,
// the patience shrinks. With fewer cores, waiting awake would keep the others from coming.
bool Channel::watch_stage() {
  const long looks = patience_->looks();
  for (long idle = 0; !stage_run_->done();) {
    if (stage_run_->step()) {
      if (stage_run_->stranger() >= 0 || !stage_run_->failure().ok()) return false;
      idle = 0;
      continue;
    }
    if (failed_.load(std::memory_order_relaxed)) return false;
    if (++idle <= looks) {
      // A pause takes up to 140 cycles, half of what a line takes from core to core.
      if (idle > kAlert) pause_cpu();
    } else if (idle <= looks + kYields) {
      if (idle == looks + 1) patience_->was_in_vain();
      std::this_thread::yield();
    } else {
      return false;
    }
  }
  patience_->was_rewarded();
  return true;
}

// It takes longer: from here on it is like any other.
std::shared_ptr<WorkState> Channel::hand_over() {
  current_.emplace();
  current_->lent = at_once_.launch;
  current_->sequence = at_once_.sequence;
  current_->queued = current_->begun = at_once_.traced_from;
  current_->work = std::make_shared<WorkState>(shared_from_this());
  current_->work->set_sequence(at_once_.sequence);
  current_->deadline = deadline_after(engine_->clock().now(), at_once_.launch->timeout);
  choose_company();
  engine_->recorder().note(record_of(trace::Event::started, *at_once_.launch, at_once_.sequence));
  if (!at_once_.told) tell_board(*at_once_.launch, at_once_.sequence, true);
  return current_->work;
}

void Channel::end_at_once() {
  at_once_.record.sequence = at_once_.sequence;
  engine_->recorder().note_span(at_once_.tickets, at_once_.record, at_once_.began, ticks());
  if (tracer() != nullptr) {
    Queued queued;
    queued.lent = at_once_.launch;
    queued.sequence = at_once_.sequence;
    queued.queued = queued.begun = at_once_.traced_from;
    trace_collective(queued, {});
  }
  if (at_once_.told) tell_board(*at_once_.launch, at_once_.sequence, false);
  ready_ = nullptr;
  last_running_.store(false, std::memory_order_relaxed);
}

// ---- programs

// The group room asked the catalog before it made the launch, so this cannot fail.
Result<schedule::Program> Channel::program_for(const Launch& launch, int rank) const {
  schedule::Request request;
  request.collective = launch.collective;
  request.size = size();
  request.rank = rank;
  request.root = launch.root;
  request.in_place = launch.in_place;
  request.shots = launch.shots;
  request.host_of = options_.host_of;
  auto program = engine_->catalog().build(launch.algorithm, request);
  if (!program.ok()) return program.status();
  return schedule::fuse_folds(*std::move(program));
}

std::unique_ptr<StagePlan> Channel::stage_plan_for(const Launch& launch) const {
  std::vector<schedule::Program> programs;
  for (int rank = 0; rank < size(); ++rank) {
    auto program = program_for(launch, rank);
    TUTTI_CHECK(program.ok());
    programs.push_back(*std::move(program));
  }
  auto compiled = compile_for_stage(programs, options_.rank);
  if (!compiled) return nullptr;
  auto plan = std::make_unique<StagePlan>();
  plan->program = *std::move(compiled);
  // One shot folds everything everywhere, which on memory that all can reach is needless work.
  if (launch.collective == Collective::all_reduce && launch.shots == 1) {
    Launch by_slices = launch;
    by_slices.shots = 2;
    plan->to_share = stage_plan_for(by_slices);
  }
  return plan;
}

Channel::Ready& Channel::ready_for(const Launch& launch) {
  // Ranks of a v-call know only their own sizes, so peers could not tell where a chunk lies.
  const bool fits = stage_ && launch.to_peer.empty();
  const std::uint64_t key = key_of(launch) | static_cast<std::uint64_t>(fits) << 63;
  if (key == last_key_ && last_ready_ != nullptr) return *last_ready_;
  Ready& ready = plans_[key];
  last_key_ = key;
  last_ready_ = &ready;
  if (ready.plan || ready.staged) return ready;
  if (fits) ready.staged = stage_plan_for(launch);
  if (ready.staged) return ready;
  auto program = program_for(launch, options_.rank);
  TUTTI_CHECK(program.ok());
  ready.plan =
      std::make_unique<Plan>(compile(*std::move(program)), engine_->config().segment_bytes);
  return ready;
}

void Channel::finish_current() {
  note(trace::Event::finished, *current_, {});
  if (tracer() != nullptr) trace_collective(*current_, {});
  {
    std::scoped_lock lock(inbox_lock_);
    last_running_ = false;
  }
  if (current_->counted) busy_.fetch_sub(1);
  completions_.push_back({std::move(current_->work), {}, {}});
  current_.reset();
  ready_ = nullptr;
  asked_until_ = Nanoseconds(0);
}

// Works end with the baton put down, so that their callbacks may start operations; the caller of
// step() takes it up again only to put it down.
void Channel::complete_all() {
  for (const auto& batch : point_to_point_.take_ended()) {
    if (batch->counted) busy_.fetch_sub(1);
    completions_.push_back({batch->work, batch->status, batch->received});
  }
  if (completions_.empty()) return;
  std::vector<Completion> completions;
  completions.swap(completions_);
  baton_.unlock();
  for (const Completion& completion : completions)
    completion.work->complete(completion.status, completion.received);
  engine_->notify();
  baton_.lock();
}

void Channel::update_deadline() {
  Nanoseconds next = point_to_point_.next_deadline();
  if (current_)
    next = std::min(next, asked_until_.count() != 0 ? asked_until_ : current_->deadline);
  next_deadline_.store(next.count(), std::memory_order_relaxed);
}

// ---- ending

void Channel::tear_down() {
  torn_down_ = true;
  if (stage_ && current_) stage_->retract(current_->sequence);
  // From here on nobody touches the callers' memory: it goes back to them with the error.
  engine_->between_polls([&](transport::Endpoint& endpoint) {
    for (int member : options_.members)
      if (transport::Link* link = endpoint.link(member)) link->forget(options_.id);
  });
  Status status;
  std::deque<Queued> queued;
  std::vector<Incoming> unread;
  std::vector<Posting> postings;
  {
    std::scoped_lock lock(inbox_lock_);
    status = failure_;
    queued.swap(queue_);
    queued_.store(0, std::memory_order_relaxed);
    unread.swap(inbox_);
    postings.swap(postings_);
    last_running_ = false;
  }
  early_.insert(early_.end(), unread.begin(), unread.end());
  for (Posting& posting : postings) point_to_point_.post(std::move(posting), *this);
  if (current_) {
    if (ready_->plan) ready_->plan->abandon(*this);
    note(trace::Event::failed, *current_, status);
    if (tracer() != nullptr) trace_collective(*current_, status);
    queued.push_front(std::move(*current_));
    current_.reset();
    ready_ = nullptr;
  }
  for (Incoming& message : early_)
    if (message.segment.lease != 0) link_to(message.peer).release(message.segment.lease);
  early_.clear();
  point_to_point_.abandon(status, *this);
  for (Queued& each : queued) {
    if (each.counted) busy_.fetch_sub(1);
    if (each.work) completions_.push_back({std::move(each.work), status, {}});
  }
}

trace::Record Channel::record_of(trace::Event event, const Launch& launch,
                                 std::uint64_t sequence) const {
  trace::Record record;
  record.sequence = sequence;
  record.channel = options_.id;
  record.event = event;
  record.collective = static_cast<std::uint8_t>(launch.collective);
  record.algorithm = static_cast<std::uint8_t>(launch.algorithm);
  record.dtype = static_cast<std::uint8_t>(launch.dtype);
  record.reduce_op = static_cast<std::uint8_t>(launch.reduction.op);
  record.bytes = launch.fingerprint.count * size_of(launch.dtype);
  (launch.name.empty() ? options_.name : launch.name).copy(record.label, sizeof record.label);
  return record;
}

void Channel::note(trace::Event event, const Queued& queued, const Status& status) {
  trace::Record record = record_of(event, queued.launch(), queued.sequence);
  record.code = static_cast<std::uint8_t>(status.code());
  engine_->recorder().note(record);
  if (event == trace::Event::started) engine_->count_call(record.bytes);
  tell_board(queued.launch(), queued.sequence, event == trace::Event::started);
}

trace::Tracer* Channel::tracer() { return engine_->tracer(); }

// It has ended just now; the baton's holder calls.
void Channel::trace_collective(const Queued& queued, const Status& status) {
  const Launch& launch = queued.launch();
  const bool direct = ready_ != nullptr && ready_->staged && stage_run_->was_direct();
  trace::Entry entry;
  entry.flags = queued.owned ? 0 : trace::kBlocking;
  entry.collective = static_cast<std::uint8_t>(launch.collective);
  entry.algorithm = static_cast<std::uint8_t>(launch.algorithm);
  entry.dtype = static_cast<std::uint8_t>(launch.dtype);
  entry.reduce_op = static_cast<std::uint8_t>(launch.reduction.op);
  entry.code = static_cast<std::uint8_t>(status.code());
  entry.channel = options_.id;
  entry.sequence = queued.sequence;
  entry.begin = queued.begun.count();
  entry.end = engine_->clock().now().count();
  entry.origin = static_cast<std::uint64_t>(queued.queued.count());
  entry.bytes = launch.fingerprint.count * size_of(launch.dtype);
  entry.value = static_cast<double>((direct ? launch.predicted_shared : launch.predicted).count());
  engine_->tracer()->collective(entry, launch.name);
}

void Channel::tell_board(const Launch& launch, std::uint64_t sequence, bool running) {
  if (engine_->failures())
    engine_->failures()->on_activity(options_.name, sequence, launch.collective, running);
}

}  // namespace tutti::engine
