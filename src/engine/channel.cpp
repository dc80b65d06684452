// A group's life in the engine: starting, stepping, ending. What comes from peers: channel_peers.cpp; its part on a GPU: channel_device.cpp.
#include "engine/channel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "core/check.hpp"
#include "core/exhausted.hpp"
#include "core/pause.hpp"
#include "engine/device_gates.hpp"
#include "engine/engine.hpp"
#include "engine/numbers.hpp"

namespace tutti::engine {
namespace {

// Looks without a pause in between: a microsecond or so.
constexpr long kAlert = 64;
// How often a blocking call that waits asks whether it was interrupted.
constexpr Nanoseconds kAskEvery = std::chrono::milliseconds(100);
// How long the owner of a group that has failed waits until that is written down.
constexpr Nanoseconds kReportPatience = std::chrono::seconds(2);
constexpr Nanoseconds kReportTurn = std::chrono::microseconds(200);
// How often somebody looks for the end of what is on the device, and how long a failed group waits for
// its stream to come to an end.
constexpr Nanoseconds kLookAtDevice = std::chrono::microseconds(200);
constexpr Nanoseconds kSettle = std::chrono::seconds(1);
constexpr Nanoseconds kSettleAtOnce = std::chrono::milliseconds(50);
// How long a group that is destroyed waits for what is still on the device.
constexpr Nanoseconds kPatienceAtEnd = std::chrono::seconds(5);

// Who has come to a collective in host memory.
class RunAttendance final : public Attendance {
 public:
  RunAttendance(const Arrivals& arrivals, const Run& run) : arrivals_(arrivals), run_(run) {}
  const std::vector<int>& company() const override { return arrivals_.company(); }
  bool has_arrived(int peer) const override { return arrivals_.has_arrived(peer); }
  std::vector<int> waiting_for() const override { return run_.waiting_for(); }

 private:
  const Arrivals& arrivals_;
  const Run& run_;
};

}  // namespace

Channel::Channel(std::shared_ptr<Engine> engine, ChannelOptions options)
    : engine_(std::move(engine)),
      members_(std::move(options), engine_->endpoint()),
      survivors_(members_),
      spin_budget_(engine_->spins()),
      arrivals_(members_),
      absences_(members_),
      log_(*engine_, members_),
      uplink_(members_, [this] { let_go_of_switch(); }),
      runs_(*this, members_, uplink_, engine_->catalog(), engine_->config().segment_bytes),
      point_to_point_(*this, members_.rank(), members_.size(), members_.name()),
      early_of_(static_cast<std::size_t>(members_.size()) + 1) {}  // and of the switch

trace::Tracer* Channel::tracer() { return engine_->tracer(); }

void Channel::meet_in(std::unique_ptr<HostMemory> memory) {
  std::scoped_lock lock(baton_);
  runs_.meet_in(memory.get());
  arrivals_.meet_in(memory.get());
  memory_ = std::move(memory);
}

void Channel::begin_set_up() { inbox_.set_next_sequence(1); }

void Channel::end_set_up() {
  TUTTI_CHECK(inbox_.next_sequence() <= kSetUpSequences);
  inbox_.set_next_sequence(kSetUpSequences + 1);
}

// ---- starting

// First in its caller's own hands, then, if it takes longer, like any other.
Status Channel::run(const Launch& launch, bool (*interrupted)()) {
  std::shared_ptr<WorkState> work;
  if (memory_ && !launch.after && baton_.try_lock()) {
    bool ended = false;
    const Status exhausted = with_baton([&] {
      const bool begun = begin_at_once(launch);
      ended = begun && watch();
      if (begun && tracer() != nullptr)
        tracer()->wait(channel(), number_of(current_->sequence), current_->begun.count(),
                       engine_->clock().now().count());
      if (ended) {
        log_.ended_at_once(*current_, is_mapped());
        arrivals_.end();
        current_.reset();
      } else if (begun) {
        work = hand_over();
      }
    });
    if (!exhausted.ok()) give_back(launch);
    baton_.unlock();
    // Whoever wanted the baton meanwhile may have gone to sleep.
    if (inbox_.has_news()) engine_->kick();
    if (ended || !exhausted.ok()) return exhausted;
  }
  if (!work) {
    Operation operation;
    operation.launch = &launch;
    work = enqueue(std::move(operation), true);
  }
  return finish(*work, interrupted);
}

// Only with nothing before it in the queue, and only where ranks meet in memory: there a call can be
// over before it is worth an allocation, a lock or the progress thread's attention.
bool Channel::begin_at_once(const Launch& launch) {
  if (torn_down_ || current_ || held_ || inbox_.has_queued() || inbox_.has_failed()) return false;
  PreparedRun& prepared = runs_.find(launch);
  if (!prepared.on_host) return false;
  // Everything else can be done while the others are on their way.
  const std::uint64_t sequence = inbox_.take_sequence();
  prepared.on_host->begin(launch, sequence);
  prepared_ = &prepared;
  current_.emplace();
  current_->launch = &launch;
  current_->sequence = sequence;
  arrivals_.begin_on_host(launch, sequence);
  log_.begun_at_once(*current_);
  return true;
}

// Steps until the collective is over, or until it is time to look after the rest. With a core for
// every rank, whoever is expected soon is waited for awake; if it never comes that soon, the budget
// for that shrinks. With fewer cores, waiting awake would keep the others from coming.
bool Channel::watch() {
  HostRun& run = *prepared_->on_host;
  const long looks = spin_budget_.looks();
  for (long idle = 0; !run.done();) {
    if (run.step()) {
      if (run.failed()) return false;
      if (engine_->has_more_urgent(urgency())) engine_->attend_more_urgent(urgency());
      idle = 0;
      continue;
    }
    if (inbox_.has_failed()) return false;
    if (++idle <= looks) {
      // A pause takes up to 140 cycles, half of what a line takes from core to core.
      if (idle > kAlert) pause_cpu();
      continue;
    }
    if (idle == looks + 1) spin_budget_.was_in_vain();
    // Beside a progress thread at work a yield costs a slice.
    if (idle > looks + kYields || engine_->is_progressing()) return false;
    engine_->home().yield();
  }
  spin_budget_.was_rewarded();
  return true;
}

// A call that cannot be waited for is over: nothing here refers to it once its caller hears so.
void Channel::give_back(const Launch& launch) {
  if (!current_ || current_->launch != &launch) return;
  memory_->retract(current_->sequence);
  prepared_->run().abandon();
  arrivals_.end();
  log_.stop();
  current_.reset();
}

// It takes longer: the same operation, with somebody to wait for it.
std::shared_ptr<WorkState> Channel::hand_over() {
  current_->work = std::make_shared<WorkState>(shared_from_this());
  current_->work->set_call(current_->launch->collective, number_of(current_->sequence));
  current_->deadline = deadline_after(engine_->clock().now(), current_->launch->timeout);
  log_.took_longer(*current_);
  engine_->count_open(urgency(), 1);
  return current_->work;
}

Status Channel::finish(WorkState& work, bool (*interrupted)()) {
  if (interrupted == nullptr) return work.wait(Nanoseconds::max());
  for (Status status = work.wait(kAskEvery);; status = work.wait(kAskEvery)) {
    if (work.done()) return status;
    if (!interrupted()) continue;
    fail({Code::aborted,
          fmt::format("rank {} was interrupted in a call on group '{}'", members_.rank(),
                      members_.name()),
          {members_.rank(), -1, 0}},
         true);
    return work.wait(Nanoseconds::max());
  }
}

std::shared_ptr<WorkState> Channel::start(Launch launch, bool caller_drives) {
  launch.in_stream = launch.in_stream && launch.on_device && device()->may_run_in_stream(launch);
  if (launch.on_device && !launch.in_stream) {
    auto before = device()->mark(launch.stream);
    if (!before.ok()) {
      auto work = std::make_shared<WorkState>(nullptr);
      work->complete(before.status());
      fail(before.status(), true);  // the others are on their way
      return work;
    }
    launch.before = *std::move(before);
  }
  Operation operation;
  operation.owned = std::make_unique<const Launch>(std::move(launch));
  operation.launch = operation.owned.get();
  return enqueue(std::move(operation), caller_drives);
}

std::shared_ptr<WorkState> Channel::enqueue(Operation operation, bool caller_drives) {
  auto work = std::make_shared<WorkState>(shared_from_this());
  const Nanoseconds now = engine_->clock().now();
  operation.queued = now;
  operation.deadline = deadline_after(now, operation.launch->timeout);
  operation.work = work;
  operation.counted = !caller_drives;
  if (operation.launch->after) await(operation.launch->after);
  const bool on_device = operation.launch->on_device;
  if (on_device) {
    work->set_gate(
        std::make_shared<CollectiveGate>(device(), *operation.launch, inbox_.last_ticket() + 1));
    operation.flight = device()->context().begin_flight();
  }
  const int others = caller_drives ? 1 : busy_.fetch_add(1);
  engine_->count_open(urgency(), 1);
  const Status refused = inbox_.put(std::move(operation));
  if (!refused.ok()) {
    if (!caller_drives) busy_.fetch_sub(1);
    engine_->count_open(urgency(), -1);
    work->complete(refused);
  } else if (on_device) {
    // Launched here and now, if nothing stands before it: then only its end has to be noticed.
    try_step();
    if (others == 0 || !work->is_launched()) engine_->kick(work->is_launched());
  } else if (!caller_drives) {
    leave_to_progress(now);
  } else {
    // What this rank has to say leaves before it looks for what others have said: over sockets a look takes
    // as long as a tenth of a small collective.
    try_step();
  }
  return work;
}

std::shared_ptr<WorkState> Channel::post(std::vector<Posting> postings, bool caller_drives,
                                         std::shared_ptr<Dependencies> after) {
  auto batch = std::make_shared<Batch>();
  if (after) await(after);
  batch->after = std::move(after);
  batch->work = std::make_shared<WorkState>(shared_from_this());
  batch->open = postings.size();
  batch->counted = !caller_drives;
  const bool empty = postings.empty();
  const Nanoseconds now = engine_->clock().now();
  for (Posting& posting : postings) {
    posting.deadline = deadline_after(now, posting.timeout);
    posting.batch = batch;
    if (!posting.device || batch->gate) continue;
    batch->gate = std::make_shared<GateKeeper>(engine_->device_context());
    batch->flight = engine_->device_context()->begin_flight();
  }
  if (batch->gate) batch->work->set_gate(std::make_shared<MessageGate>(batch->gate));
  const bool counted = batch->counted && !empty;
  if (counted) busy_.fetch_add(1);
  engine_->count_open(urgency(), 1);
  const Status refused = inbox_.put(std::move(postings));
  if (!refused.ok() || empty) {
    if (counted) busy_.fetch_sub(1);
    engine_->count_open(urgency(), -1);
    batch->work->complete(refused);
  } else if (!caller_drives) {
    leave_to_progress(now);
  }
  return batch->work;
}

void Channel::leave_to_progress(Nanoseconds now) {
  const bool waited_for = wait_pattern_.waits_at_once();
  wait_pattern_.on_start(now);
  engine_->kick(waited_for);
}

bool Channel::goes_on_alone() const { return engine_->config().progress_thread; }

void Channel::drive(const WorkState& work, Nanoseconds timeout) {
  const Nanoseconds began = engine_->clock().now();
  wait_pattern_.on_wait(began);
  driven_.fetch_add(1);
  engine_->drive(
      *this, [&work] { return work.done(); }, timeout);
  driven_.fetch_sub(1);
  // What is left was nobody's while this thread drove it.
  if (busy()) engine_->kick();
  if (trace::Tracer* tracer = engine_->tracer())
    tracer->wait(channel(), work.number(), began.count(), engine_->clock().now().count());
}

// ---- stepping

bool Channel::try_step() {
  if (!baton_.try_lock()) return false;
  bool moved = true;
  (void)with_baton([&] { moved = step(); });
  baton_.unlock();
  return moved;
}

bool Channel::step() {
  bool moved = false;
  std::optional<cuda::RelaxedCapture> relaxed;  // callers may capture meanwhile
  if (engine_->has_device()) relaxed.emplace();
  if (!torn_down_) {
    moved = drain_inbox();
    if (inbox_.has_failed()) {
      end_failed();
      return true;
    } else if (arrivals_.is_disputed()) {
      moved |= settle_dispute();
    } else {
      if (device()) moved |= step_device();
      moved |= run_operations();
      if (point_to_point_.open() > 0) moved |= point_to_point_.step(engine_->clock().now());
      log_.set_open_messages(point_to_point_.open());
      if (!point_to_point_.failure().ok()) fail(point_to_point_.failure(), true);
      // Only when nothing moves any more: what a rank sent before it went away still counts.
      if (!moved) moved = arrivals_.is_disputed() || look_for_absent();
      if (!moved) update_deadline();
    }
  }
  complete_all();
  return moved;
}

bool Channel::drain_inbox() {
  if (!inbox_.take(draining_, posting_)) return false;
  for (Incoming& message : draining_) {
    handle(message);
    // Not to be given back again, should the next one find no memory.
    message.segment.lease = 0;
  }
  draining_.clear();
  for (Posting& posting : posting_) point_to_point_.post(std::move(posting));
  posting_.clear();
  return true;
}

bool Channel::run_operations() {
  bool moved = false;
  while (current_ || begin_next()) {
    moved |= step_current();
    if (inbox_.has_failed() || arrivals_.is_disputed() || !prepared_->run().done()) break;
    finish_current();
    moved = true;
  }
  return moved;
}

bool Channel::begin_next() {
  Operation next;
  if (!held_) {
    if (!inbox_.take_next(next)) return false;
    if (next.launch->after) held_.emplace(std::move(next));
  }
  if (held_) {
    if (!may_begin(*held_)) return false;
    next = *std::exchange(held_, std::nullopt);
  }
  // First here, where a failure finds it: what follows takes memory.
  prepared_ = nullptr;
  current_.emplace(std::move(next));
  prepared_ = &runs_.find(*current_->launch);
  log_.begun(*current_);
  if (prepared_->on_host) arrivals_.begin_on_host(*current_->launch, current_->sequence);
  prepared_->run().begin(*current_->launch, current_->sequence);
  if (prepared_->by_message) begin_by_message();
  return true;
}

void Channel::begin_by_message() {
  arrivals_.begin_by_message(*current_->launch, current_->sequence,
                             prepared_->by_message->company(), engine_->clock().now());
  std::deque<Incoming> early;
  early.swap(early_);
  std::fill(early_of_.begin(), early_of_.end(), 0);
  for (Incoming& message : early) handle_data(message);
}

bool Channel::step_current() {
  if (prepared_->by_message) arrivals_.look_at_lines();
  const bool moved = prepared_->run().step();
  if (!moved && arrivals_.next_announcement() != Nanoseconds::max())
    arrivals_.announce_late(engine_->clock().now());
  arrivals_.flush();
  fail_as_run_says();
  if (uplink_.take_news()) tell_of_switch();
  return moved;
}

// One on the device goes on there, and the next may begin.
void Channel::finish_current() {
  if (current_->ticket != 0) {
    if (!is_on_device()) device()->end_on_host(current_->ticket);
    launched_.add(*std::move(current_));
  } else {
    end(*current_, {});
  }
  arrivals_.end();
  current_.reset();
  absences_.forget_questions();
}

void Channel::end(Operation& operation, const Status& status) {
  if (completions_.size() == completions_.capacity())
    completions_.reserve(std::max<std::size_t>(8, 2 * completions_.size()));
  (void)or_exhausted([&] { log_.ended(operation, status, operation.ticket == 0 && is_mapped()); });
  if (!launched_.empty()) log_.go_on();
  operation.flight = {};
  leave_queue(operation, status);
}

void Channel::leave_queue(Operation& operation, const Status& status) {
  if (operation.counted) busy_.fetch_sub(1);
  if (!operation.work) return;
  engine_->count_open(urgency(), -1);
  completions_.push_back({std::move(operation.work), status, {}});
}

// The collective under way that has to end first.
const Operation* Channel::watched() const {
  const Operation* first = current_ ? &*current_ : nullptr;
  if (!launched_.empty() && (first == nullptr || launched_.oldest().deadline <= first->deadline))
    first = &launched_.oldest();
  return first;
}

std::unique_ptr<Attendance> Channel::attendance_of(const Operation& operation) const {
  const bool is_current = current_ && &*current_ == &operation;
  if (is_current && !is_on_device())
    return std::make_unique<RunAttendance>(arrivals_, prepared_->run());
  return std::make_unique<DeviceAttendance>(members_, *device(), operation.ticket);
}

void Channel::update_deadline() {
  Nanoseconds next = std::min(point_to_point_.next_deadline(), arrivals_.next_announcement());
  if (const Operation* operation = watched())
    next = std::min(next, absences_.next_deadline(*operation));
  if (held_) next = std::min(next, end_of_patience(*held_));
  if (!launched_.empty() || is_on_device() || point_to_point_.asks_device())
    next = std::min(next, engine_->clock().now() + kLookAtDevice);
  next_deadline_.store(next.count(), std::memory_order_relaxed);
  constexpr std::int64_t kNever = Nanoseconds::max().count();
  if (!point_to_point_.waits_for_device())
    device_since_.store(kNever, std::memory_order_relaxed);
  else if (device_since_.load(std::memory_order_relaxed) == kNever)
    device_since_.store(engine_->clock().now().count(), std::memory_order_relaxed);
}

// Those who wait come before what is written about it, and whoever wants the baton does not wait for
// a disk.
void Channel::end_failed() {
  // Held: once they have heard, the last owner of this group may let it go.
  std::shared_ptr<FailureSink> failures = engine_->hold_failures();
  tear_down();
  if (failures) failures->on_failure(*this, health());
  // Before memory goes back to its owners, what is on the device gets a moment to be through with it.
  const std::shared_ptr<DeviceSide> side = device();
  if (side) side->settle(kSettleAtOnce);
  reporter_ = std::this_thread::get_id();
  complete_all();
  baton_.unlock();
  if (side) side->settle(kSettle);
  if (failures) (void)or_exhausted([&] { failures->report_failure(*this, health()); });
  failures.reset();
  reporter_ = std::thread::id();
  baton_.lock();
}

// Whoever has heard of the failure may end the process, and with it the thread that writes. A disk that
// takes its time does not hold up more than that.
void Channel::await_report() const {
  const auto is_under_way = [&] {
    const std::thread::id reporter = reporter_;
    return reporter != std::thread::id() && reporter != std::this_thread::get_id();
  };
  const Nanoseconds last = steady_clock().now() + kReportPatience;
  while (is_under_way() && steady_clock().now() < last) std::this_thread::sleep_for(kReportTurn);
}

// Works end with the baton put down, so that their callbacks may start operations; the caller of
// step() takes it up again only to put it down.
void Channel::complete_all() {
  auto& ended = point_to_point_.ended();
  completions_.reserve(completions_.size() + ended.size());
  for (const auto& batch : ended) {
    if (batch->counted) busy_.fetch_sub(1);
    engine_->count_open(urgency(), -1);
    batch->open_gate();
    completions_.push_back({batch->work, batch->status, batch->received});
  }
  ended.clear();
  if (completions_.empty()) return;
  std::vector<Completion> completions;
  completions.swap(completions_);
  baton_.unlock();
  // One whose callbacks have no memory does not keep the others waiting.
  for (const Completion& completion : completions)
    (void)or_exhausted([&] { completion.work->complete(completion.status, completion.received); });
  engine_->notify();
  baton_.lock();
}

// ---- ending

void Channel::fail(const Status& status, bool tell_others) {
  if (!inbox_.fail(status)) return;
  // The others first: once our caller knows, it may go, and they would see only that.
  // Without memory to say it in they see that, after all.
  if (tell_others) (void)or_exhausted([&] { tell(status); });
  inbox_.announce_failure();
  engine_->kick();
  std::vector<std::weak_ptr<Channel>> children;
  {
    std::scoped_lock lock(children_mutex_);
    children.swap(children_);
  }
  for (const auto& each : children)
    if (const auto child = each.lock()) child->fail(status, tell_others);
}

void Channel::bring_up(const std::shared_ptr<Channel>& child) {
  {
    std::scoped_lock lock(children_mutex_);
    children_.push_back(child);
  }
  if (const Status failure = health(); !failure.ok()) child->fail(failure, true);
}

void Channel::let_go(const Channel& child) {
  std::scoped_lock lock(children_mutex_);
  std::erase_if(children_, [&](const auto& each) {
    const auto other = each.lock();
    return !other || other.get() == &child;
  });
}

void Channel::end(const Status& status) {
  // What is on the device ends there by itself; the others may count on it.
  if (device() && health().ok())
    engine_->drive(
        *this, [&] { return busy_.load() == 0 || !health().ok(); }, kPatienceAtEnd);
  {
    std::scoped_lock lock(baton_);
    end_in_hand(status);
  }
  await_report();
}

void Channel::end_in_hand(const Status& status) {
  if (!torn_down_ && inbox_.has_failed()) end_failed();  // and nobody has stepped since
  leaves_ = inbox_.fail(status);
  if (!torn_down_) tear_down();
  complete_all();
  // Here and now: it holds on to memory, and through it to everything below. Whoever else still has
  // this channel (the progress thread, for a moment) must not be the one to take that down.
  runs_.meet_in(nullptr);
  arrivals_.meet_in(nullptr);
  memory_.reset();
  runs_.use_device(nullptr);
  if (const std::shared_ptr<DeviceSide> side = device()) {
    if (side->is_aborted()) side->settle(kSettle);
    launched_.use(nullptr);
    engine_->notify();
  }
}

// Where there is no memory for it nothing is lost, and the next step does it again: room is made before
// anything leaves its list.
void Channel::tear_down() {
  // Before anybody's memory goes back to its caller: who comes later must not find this rank there.
  if (current_ && memory_) memory_->retract(current_->sequence);
  // Nothing that is on the device waits any more, or touches anything that it has not touched yet. Who
  // leaves in good order has nothing there, and must not end what others have.
  if (device() && (!leaves_ || !launched_.empty() || current_)) device()->abort();
  // From here on no link touches the callers' memory, which goes back to them with the error. Peers
  // that have it mapped still may, until they hear of the failure (docs/footguns.md).
  engine_->between_polls([&](transport::Endpoint& endpoint) {
    for (int member : members_.everyone())
      if (endpoint.is_linked(member)) endpoint.link(member)->forget(channel());
  });
  const Status status = inbox_.failure();
  inbox_.take_rest(rest_);
  release_all(rest_.messages);
  release_all(early_);
  point_to_point_.refuse(rest_.postings, status);
  point_to_point_.refuse(posting_, status);  // that came, and could not be taken up
  point_to_point_.abandon(status);
  completions_.reserve(completions_.size() + rest_.operations.size() + launched_.size() + 2);
  for (Operation operation; launched_.take_any(operation);) end(operation, status);
  if (current_) {
    if (prepared_) prepared_->run().abandon();
    arrivals_.end();
    end(*current_, status);
    current_.reset();
  }
  // They were never begun: nobody was told of them.
  if (held_) leave_queue(*held_, status);
  held_.reset();
  for (Operation& operation : rest_.operations) leave_queue(operation, status);
  rest_.operations.clear();
  log_.stop();
  // Nothing is due any more; a deadline left standing would wake the progress thread for ever.
  next_deadline_.store(Nanoseconds::max().count(), std::memory_order_relaxed);
  torn_down_ = true;
}

// A lease that there is no memory to give back with is the link's loss, and nobody else's.
template <class Messages>
void Channel::release_all(Messages& messages) {
  for (const Incoming& message : messages) (void)or_exhausted([&] { release(message); });
  messages.clear();
}

void Channel::release(const Incoming& message) {
  if (message.segment.lease != 0) link_to(message.peer).release(message.segment.lease);
}

}  // namespace tutti::engine
