#include "engine/call_log.hpp"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "core/ticks.hpp"
#include "engine/engine.hpp"
#include "engine/numbers.hpp"

namespace tutti::engine {
namespace {

// How often the board hears of calls that are over before anybody could read it: about a
// millisecond.
constexpr std::uint64_t kTellEveryTicks = std::uint64_t{1} << 21;

// How long the rank that asked first speaks of this one alone, if it is late. As long as that one is quiet
// afterwards (absences.cpp).
constexpr Nanoseconds kSpeaks = std::chrono::seconds(30);

// A part of setting the group up: nobody called it, and nobody wants to be told of it.
bool is_own(const Operation& operation) { return number_of(operation.sequence) == 0; }

}  // namespace

// ---- from the queue

void CallLog::waits(const Operation& operation, const std::string& for_what) {
  {
    std::scoped_lock lock(lock_);
    held_for_ = for_what;
  }
  held_.store(true, std::memory_order_relaxed);
  trace::Record record = record_of(trace::Event::waiting, operation);
  std::fill(std::begin(record.label), std::end(record.label), '\0');
  for_what.copy(record.label, sizeof record.label);
  engine_.recorder().note(tickets_, record);
  tell_board(operation, BoardState::waiting);
}

void CallLog::begun(Operation& operation) {
  remember(operation);
  if (engine_.tracer() != nullptr) operation.begun = engine_.clock().now();
  if (is_own(operation)) return;
  const trace::Record record = record_of(trace::Event::started, operation);
  engine_.recorder().note(tickets_, record);
  engine_.count_call(record.bytes);
  tell_board(operation, BoardState::running);
}

void CallLog::ended(const Operation& operation, const Status& status, bool mapped) {
  if (is_own(operation)) return stop();
  trace::Record record =
      record_of(status.ok() ? trace::Event::finished : trace::Event::failed, operation);
  record.code = static_cast<std::uint8_t>(status.code());
  engine_.recorder().note(tickets_, record);
  tell_board(operation, BoardState::done);
  trace(operation, status, mapped);
  stop();
}

// ---- at once

void CallLog::begun_at_once(Operation& operation) {
  const Launch& launch = *operation.launch;
  began_ticks_ = ticks();
  if (engine_.tracer() != nullptr) operation.queued = operation.begun = engine_.clock().now();
  if (record_hash_ != launch.call_hash || !launch.name.empty()) {
    record_ = record_of(trace::Event::finished, operation);
    record_hash_ = launch.name.empty() ? launch.call_hash : 0;
  }
  remember(operation);
  told_ = false;
  if (is_own(operation)) return;
  engine_.count_call(record_.bytes);
  told_ = engine_.failures() != nullptr && began_ticks_ - last_told_ticks_ > kTellEveryTicks;
  if (!told_) return;
  last_told_ticks_ = began_ticks_;
  tell_board(operation, BoardState::running);
}

void CallLog::ended_at_once(const Operation& operation, bool mapped) {
  if (is_own(operation)) return stop();
  record_.sequence = number_of(operation.sequence);
  engine_.recorder().note_span(tickets_, record_, began_ticks_, ticks());
  trace(operation, {}, mapped);
  if (told_) tell_board(operation, BoardState::done);
  stop();
}

void CallLog::took_longer(const Operation& operation) {
  if (is_own(operation)) return;
  engine_.recorder().note(tickets_, record_of(trace::Event::started, operation));
  if (!told_) tell_board(operation, BoardState::running);
}

// ---- what all of them tell

void CallLog::remember(const Operation& operation) {
  const Launch& launch = *operation.launch;
  if (last_hash_ != launch.call_hash) {
    std::scoped_lock lock(lock_);
    last_call_ = launch.fingerprint;
    last_hash_ = launch.call_hash;
  }
  last_sequence_.store(operation.sequence, std::memory_order_relaxed);
  held_.store(false, std::memory_order_relaxed);
  running_.store(true, std::memory_order_relaxed);
}

ActivityReport CallLog::report() const {
  ActivityReport report;
  std::scoped_lock lock(lock_);
  report.call = last_call_;
  report.sequence = last_sequence_.load(std::memory_order_relaxed);
  report.running = running_.load(std::memory_order_relaxed);
  report.held = held_.load(std::memory_order_relaxed);
  report.posted = open_messages_.load(std::memory_order_relaxed);
  return report;
}

ActivityReport CallLog::answer(int asker, Nanoseconds now) {
  ActivityReport report = this->report();
  if (report.running != 0) return report;
  std::scoped_lock lock(lock_);
  if (now >= speaks_until_) {
    speaker_ = asker;
    speaks_until_ = now + kSpeaks;
  }
  report.told = speaker_ != asker;
  return report;
}

std::string CallLog::held_for() const {
  std::scoped_lock lock(lock_);
  return held_for_;
}

trace::Record CallLog::record_of(trace::Event event, const Operation& operation) const {
  const Launch& launch = *operation.launch;
  trace::Record record;
  record.sequence = number_of(operation.sequence);
  record.channel = members_.channel();
  record.event = event;
  record.collective = static_cast<std::uint8_t>(launch.collective);
  record.algorithm = static_cast<std::uint8_t>(launch.algorithm);
  record.dtype = static_cast<std::uint8_t>(launch.dtype);
  record.reduce_op = static_cast<std::uint8_t>(launch.reduction.op);
  record.bytes = launch.fingerprint.count * size_of(launch.dtype);
  (launch.name.empty() ? members_.name() : launch.name).copy(record.label, sizeof record.label);
  return record;
}

void CallLog::trace(const Operation& operation, const Status& status, bool mapped) {
  if (engine_.tracer() == nullptr) return;
  const Launch& launch = *operation.launch;
  trace::TraceEntry entry;
  entry.flags = operation.owned ? 0 : trace::kBlocking;
  entry.collective = static_cast<std::uint8_t>(launch.collective);
  entry.algorithm = static_cast<std::uint8_t>(launch.algorithm);
  entry.dtype = static_cast<std::uint8_t>(launch.dtype);
  entry.reduce_op = static_cast<std::uint8_t>(launch.reduction.op);
  entry.code = static_cast<std::uint8_t>(status.code());
  entry.channel = members_.channel();
  entry.sequence = number_of(operation.sequence);
  entry.begin = operation.begun.count();
  entry.end = engine_.clock().now().count();
  entry.origin = static_cast<std::uint64_t>(operation.queued.count());
  entry.bytes = launch.fingerprint.count * size_of(launch.dtype);
  entry.value = static_cast<double>((mapped ? launch.predicted_shared : launch.predicted).count());
  engine_.tracer()->collective(entry, launch.name);
  if (!times_ || operation.ticket == 0) return;
  if (status.ok()) times_->note(operation.ticket, entry, launch.name);
  times_->tell(*engine_.tracer());
}

CallLog::~CallLog() {
  if (times_) times_->tell(*engine_.tracer());
}

void CallLog::tell_board(const Operation& operation, BoardState state) {
  if (engine_.failures() == nullptr) return;
  const Launch& launch = *operation.launch;
  engine_.failures()->on_activity({members_.name(), number_of(operation.sequence),
                                   launch.collective, launch.dtype,
                                   launch.fingerprint.count * size_of(launch.dtype), state});
}

}  // namespace tutti::engine
