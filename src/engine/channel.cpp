// The group's queue: starting, stepping, ending. Its peers are in channel_peers.cpp.
#include "engine/channel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/check.hpp"
#include "engine/engine.hpp"
#include "schedule/catalog.hpp"
#include "schedule/passes.hpp"

namespace tutti::engine {

namespace {

// Calls that are kept to compare with late arrivals. A peer is never further behind than there are
// ranks between it and us, so this is plenty.
constexpr std::size_t kHistory = 256;

std::uint64_t key_of(const Launch& launch) {
  return static_cast<std::uint64_t>(launch.collective) |
         static_cast<std::uint64_t>(launch.algorithm) << 8 |
         static_cast<std::uint64_t>(launch.shots) << 16 |
         static_cast<std::uint64_t>(launch.in_place) << 24 |
         static_cast<std::uint64_t>(launch.root) << 32;
}

}  // namespace

Channel::Channel(std::shared_ptr<Engine> engine, ChannelOptions options)
    : engine_(std::move(engine)),
      options_(std::move(options)),
      peers_(options_.members.size()),
      history_(kHistory),
      point_to_point_(options_.rank, size(), options_.name) {}

// ---- starting
// ------------------------------------------------------------------------------------

std::shared_ptr<WorkState> Channel::start(Launch launch, bool caller_drives) {
  auto work = std::make_shared<WorkState>(shared_from_this());
  Queued queued;
  queued.deadline = deadline_after(engine_->clock().now(), launch.timeout);
  queued.launch = std::move(launch);
  queued.work = work;
  queued.counted = !caller_drives;
  Status refused;
  {
    std::scoped_lock lock(inbox_lock_);
    refused = failure_;
    if (refused.ok()) {
      queued.sequence = next_sequence_++;
      if (queued.counted) busy_.fetch_add(1);
      queue_.push_back(std::move(queued));
      has_news_.store(true, std::memory_order_release);
    }
  }
  if (!refused.ok())
    work->complete(refused);
  else if (!caller_drives)
    engine_->kick();
  return work;
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
    engine_->kick();
  return batch->work;
}

void Channel::drive(const WorkState& work, Nanoseconds timeout) {
  engine_->drive(
      *this, [&work] { return work.done(); }, timeout);
}

// ---- stepping
// ------------------------------------------------------------------------------------

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
    moved |= plan_->step(*this);
    // The arrivals left together with the first data, where there were any.
    if (std::exchange(arrivals_held_, false))
      for (int peer : company_) link_to(peer).flush_held();
    if (plan_->done() && everyone_arrived()) {
      finish_current();
      moved = true;
      continue;
    }
    break;
  }
  return moved;
}

bool Channel::begin_next() {
  {
    std::scoped_lock lock(inbox_lock_);
    if (queue_.empty() || !failure_.ok()) return false;
    current_ = std::make_unique<Queued>(std::move(queue_.front()));
    queue_.pop_front();
    last_call_ = current_->launch.fingerprint;
    last_sequence_ = current_->sequence;
    last_running_ = true;
  }
  history_[current_->sequence % history_.size()] = current_->launch.fingerprint;
  plan_ = plan_for(current_->launch);
  plan_->begin(current_->launch, current_->sequence);
  note(trace::Event::started, *current_, {});
  choose_company();
  announce();
  look_at_announced();
  std::deque<Incoming> early;
  early.swap(early_);
  for (Incoming& message : early) handle_data(message);
  return true;
}

Plan* Channel::plan_for(const Launch& launch) {
  std::unique_ptr<Plan>& plan = plans_[key_of(launch)];
  if (!plan) {
    schedule::Request request;
    request.collective = launch.collective;
    request.size = size();
    request.rank = options_.rank;
    request.root = launch.root;
    request.in_place = launch.in_place;
    request.shots = launch.shots;
    request.host_of = options_.host_of;
    // The group room asked the catalog before it made the launch, so this cannot fail.
    auto program = schedule::build(launch.algorithm, request);
    TUTTI_CHECK(program.ok());
    plan = std::make_unique<Plan>(compile(schedule::fuse_folds(*std::move(program))),
                                  engine_->config().segment_bytes);
  }
  return plan.get();
}

void Channel::finish_current() {
  note(trace::Event::finished, *current_, {});
  {
    std::scoped_lock lock(inbox_lock_);
    last_running_ = false;
  }
  if (current_->counted) busy_.fetch_sub(1);
  completions_.push_back({std::move(current_->work), {}, {}});
  current_.reset();
  plan_ = nullptr;
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
// --------------------------------------------------------------------------------------

void Channel::tear_down() {
  torn_down_ = true;
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
    unread.swap(inbox_);
    postings.swap(postings_);
    last_running_ = false;
  }
  early_.insert(early_.end(), unread.begin(), unread.end());
  for (Posting& posting : postings) point_to_point_.post(std::move(posting), *this);
  if (current_) {
    plan_->abandon(*this);
    note(trace::Event::failed, *current_, status);
    queued.push_front(std::move(*current_));
    current_.reset();
    plan_ = nullptr;
  }
  for (Incoming& message : early_)
    if (message.segment.lease != 0) link_to(message.peer).release(message.segment.lease);
  early_.clear();
  point_to_point_.abandon(status, *this);
  for (Queued& each : queued) {
    if (each.counted) busy_.fetch_sub(1);
    completions_.push_back({std::move(each.work), status, {}});
  }
}

void Channel::note(trace::Event event, const Queued& queued, const Status& status) {
  const Launch& launch = queued.launch;
  trace::Record record;
  record.sequence = queued.sequence;
  record.channel = options_.id;
  record.event = event;
  record.collective = static_cast<std::uint8_t>(launch.collective);
  record.algorithm = static_cast<std::uint8_t>(launch.algorithm);
  record.dtype = static_cast<std::uint8_t>(launch.dtype);
  record.reduce_op = static_cast<std::uint8_t>(launch.reduction.op);
  record.code = static_cast<std::uint8_t>(status.code());
  record.bytes = launch.fingerprint.count * size_of(launch.dtype);
  (launch.name.empty() ? options_.name : launch.name).copy(record.label, sizeof record.label);
  engine_->recorder().note(record);
  if (engine_->failures())
    engine_->failures()->on_activity(options_.name, queued.sequence, launch.collective,
                                     event == trace::Event::started);
}

}  // namespace tutti::engine
