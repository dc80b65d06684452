#include "trace/recorder.hpp"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <limits>
#include <mutex>

#include "core/ticks.hpp"
#include "core/write_within.hpp"
#include "trace/json_writer.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::trace {
namespace {

constexpr std::size_t kWords = sizeof(Record) / sizeof(std::uint64_t);
// Slots that a writer of spans takes at once.
constexpr std::uint64_t kReserved = 16;
constexpr std::uint8_t kLastCode = static_cast<std::uint8_t>(Code::internal);

using Words = std::array<std::uint64_t, kWords>;

std::string_view collective_word(const Record& record) {
  if (record.collective == kPointToPoint) return "point_to_point";
  return to_string(static_cast<Collective>(record.collective));
}

std::string_view label_of(const Record& record) {
  return {record.label, ::strnlen(record.label, sizeof record.label)};
}

std::string_view code_word(const Record& record) {
  return record.code <= kLastCode ? tutti::to_string(static_cast<Code>(record.code)) : "?";
}

void write_record(JsonWriter& out, const Record& record) {
  out.open('{');
  out.field("time_ns", record.time_ns);
  out.field("event", to_string(record.event));
  out.field("channel", std::int64_t{record.channel});
  out.field("sequence", static_cast<std::int64_t>(record.sequence));
  out.field("collective", collective_word(record));
  out.field("bytes", static_cast<std::int64_t>(record.bytes));
  out.field("peer",
            record.timing == TimeTaken::span ? std::int64_t{-1} : std::int64_t{record.peer});
  if (record.timing == TimeTaken::span) out.field("duration_ns", std::int64_t{record.peer});
  out.field("algorithm", to_string(static_cast<Algorithm>(record.algorithm)));
  out.field("dtype", to_string(static_cast<Dtype>(record.dtype)));
  out.field("reduce_op", to_string(static_cast<ReduceOp>(record.reduce_op)));
  out.field("code", code_word(record));
  out.field("label", label_of(record));
  out.close('}');
}

std::int64_t unix_time_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void append_to_string(void* target, std::string_view text) {
  static_cast<std::string*>(target)->append(text);
}

constexpr std::chrono::milliseconds kPatience{1000};

struct DumpTarget {
  int descriptor = -1;
  int error = 0;
};

void write_to_descriptor(void* target, std::string_view text) {
  auto* to = static_cast<DumpTarget*>(target);
  if (to->error == 0) to->error = write_within(to->descriptor, text, kPatience);
}

}  // namespace

// A seqlock per slot: 2t+1 while record number t is being written, 2t+2 once it is there. Release
// and acquire on each word (free on x86) stand for the fences that thread sanitizer does not know.
struct alignas(64) Recorder::Slot {
  std::atomic<std::uint64_t> version{0};
  std::array<std::atomic<std::uint64_t>, kWords> words{};

  void fill(const Record& record, std::uint64_t done) noexcept {
    Words copy;
    std::memcpy(copy.data(), &record, sizeof record);
    for (std::size_t i = 0; i < kWords; ++i) words[i].store(copy[i], std::memory_order_release);
    version.store(done, std::memory_order_release);
  }

  bool read(std::uint64_t ticket, Record& record) const noexcept {
    if (version.load(std::memory_order_acquire) != 2 * ticket + 2) return false;
    Words copy;
    for (std::size_t i = 0; i < kWords; ++i) copy[i] = words[i].load(std::memory_order_acquire);
    if (version.load(std::memory_order_relaxed) != 2 * ticket + 2) return false;
    std::memcpy(static_cast<void*>(&record), copy.data(), sizeof record);
    return true;
  }
};

std::string_view to_string(Event event) noexcept {
  switch (event) {
    case Event::started: return "started";
    case Event::finished: return "finished";
    case Event::failed: return "failed";
    case Event::peer_down: return "peer_down";
    case Event::group_made: return "group_made";
    case Event::group_gone: return "group_gone";
    case Event::note: return "note";
    case Event::waiting: return "waiting";
  }
  return "?";
}

Recorder::Recorder(std::size_t records, const Clock& clock)
    : slots_(new Slot[std::bit_ceil(records > 0 ? records : 1)]),
      mask_(std::bit_ceil(records > 0 ? records : 1) - 1),
      clock_(clock),
      born_ns_(clock.now().count()),
      born_ticks_(ticks()) {
  static_assert(sizeof(Slot) == 64 && sizeof(Record) == 56);
}

Recorder::~Recorder() = default;

void Recorder::note(Record record) noexcept {
  record.time_ns = clock_.now().count();
  place(record);
}

void Recorder::note(Tickets& tickets, Record record) noexcept {
  record.timing = TimeTaken::by_ticks;
  record.time_ns = static_cast<std::int64_t>(ticks());
  place(tickets, record);
}

void Recorder::note_span(Tickets& tickets, const Record& record, std::uint64_t begin,
                         std::uint64_t end) noexcept {
  Record span = record;
  span.timing = TimeTaken::span;
  span.time_ns = static_cast<std::int64_t>(begin);
  span.peer = static_cast<std::int32_t>(
      std::min<std::uint64_t>(end - begin, std::numeric_limits<std::int32_t>::max()));
  place(tickets, span);
}

// The slot is this writer's alone unless the ring was lapped since it was reserved; then the record is
// dropped.
void Recorder::place(Tickets& tickets, const Record& record) noexcept {
  // Places that others have nearly lapped are given up: a rare record must not be the one that is lost.
  const bool old = next_.load(std::memory_order_relaxed) - tickets.next > mask_ / 2 + kReserved;
  if (tickets.next == tickets.end || old) {
    tickets.next = next_.fetch_add(kReserved, std::memory_order_relaxed);
    tickets.end = tickets.next + kReserved;
  }
  const std::uint64_t ticket = tickets.next++;
  Slot& slot = slots_[ticket & mask_];
  const std::uint64_t version = slot.version.load(std::memory_order_relaxed);
  if (version % 2 != 0 || version > 2 * ticket) return;
  slot.version.store(2 * ticket + 1, std::memory_order_relaxed);
  slot.fill(record, 2 * ticket + 2);
}

void Recorder::place(const Record& record) noexcept {
  const std::uint64_t ticket = next_.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = slots_[ticket & mask_];
  std::uint64_t version = slot.version.load(std::memory_order_relaxed);
  // Somebody is still writing a whole lap ago, or has lapped us: this record is dropped, nobody
  // waits.
  if (version % 2 != 0 || version > 2 * ticket ||
      !slot.version.compare_exchange_strong(version, 2 * ticket + 1, std::memory_order_acquire))
    return;
  slot.fill(record, 2 * ticket + 2);
}

// Two looks at both clocks, one long ago and one now, give the rate.
Record Recorder::in_ns(Record record) const noexcept {
  if (record.timing == TimeTaken::by_clock) return record;
  const double passed_ns = static_cast<double>(clock_.now().count() - born_ns_);
  const double passed_ticks = static_cast<double>(ticks() - born_ticks_);
  const double ns_per_tick = passed_ticks > 0 ? passed_ns / passed_ticks : 1.0;
  const auto since_born =
      static_cast<double>(static_cast<std::uint64_t>(record.time_ns) - born_ticks_);
  record.time_ns = born_ns_ + static_cast<std::int64_t>(since_born * ns_per_tick);
  if (record.timing == TimeTaken::span)
    record.peer = static_cast<std::int32_t>(std::min(record.peer * ns_per_tick, 2147483647.0));
  return record;
}

template <class Visit>
void Recorder::for_each(std::size_t most, const Visit& visit) const {
  const std::uint64_t end = next_.load(std::memory_order_acquire);
  const std::uint64_t kept = std::min<std::uint64_t>(most, mask_ + 1);
  Record record;
  for (std::uint64_t t = end > kept ? end - kept : 0; t < end; ++t)
    if (slots_[t & mask_].read(t, record)) visit(in_ns(record));
}

void Recorder::note_group(std::uint32_t channel, std::string_view name,
                          std::string_view ranks) noexcept {
  Record record;
  record.event = Event::group_made;
  record.channel = channel;
  name.copy(record.label, sizeof record.label);
  note(record);
  std::scoped_lock lock(groups_lock_);
  const std::size_t at = group_count_.load(std::memory_order_relaxed);
  if (at == groups_.size()) return;
  groups_[at].channel = channel;
  name.copy(groups_[at].name, sizeof groups_[at].name - 1);
  ranks.copy(groups_[at].ranks, sizeof groups_[at].ranks - 1);
  group_count_.store(at + 1, std::memory_order_release);
}

void Recorder::set_labels(std::vector<std::string> labels) {
  auto kept = std::make_unique<const std::vector<std::string>>(std::move(labels));
  std::scoped_lock lock(groups_lock_);
  labels_.store(kept.get(), std::memory_order_release);
  all_labels_.push_back(std::move(kept));
}

std::vector<Record> Recorder::snapshot() const {
  std::vector<Record> records;
  for_each(mask_ + 1, [&](const Record& record) { records.push_back(record); });
  return records;
}

// `out` decides where it goes, so that a string and a signal handler get the same bytes.
void Recorder::write(JsonWriter& out, int rank, std::string_view reason) const {
  const std::uint64_t noted = next_.load(std::memory_order_relaxed);
  out.open('{');
  out.field("tutti_recorder", std::int64_t{1});
  out.field("rank", std::int64_t{rank});
  out.field("pid", std::int64_t{::getpid()});
  out.field("reason", reason);
  out.field("unix_time_ns", unix_time_ns());
  out.field("time_ns", clock_.now().count());
  out.field("noted", static_cast<std::int64_t>(noted));
  out.field("ranks", std::int64_t{ranks_.load(std::memory_order_relaxed)});
  out.key("groups");
  out.open('[');
  for (std::size_t i = 0; i < group_count_.load(std::memory_order_acquire); ++i) {
    out.open('{');
    out.field("channel", std::int64_t{groups_[i].channel});
    out.field("name", std::string_view(groups_[i].name));
    out.field("ranks", std::string_view(groups_[i].ranks));
    out.close('}');
  }
  out.close(']');
  if (const auto* labels = labels_.load(std::memory_order_acquire)) {
    out.key("labels");
    out.open('[');
    for (const std::string& label : *labels) out.value(label);
    out.close(']');
  }
  out.key("records");
  out.open('[');
  for_each(mask_ + 1, [&](const Record& record) { write_record(out, record); });
  out.close(']');
  out.close('}');
  out.finish();
}

std::string Recorder::dump_json(int rank, const std::string& reason) const {
  std::string text;
  JsonWriter out(append_to_string, &text);
  write(out, rank, reason);
  return text;
}

int Recorder::dump_to(int descriptor, int rank, std::string_view reason) const noexcept {
  DumpTarget target{descriptor};
  JsonWriter out(write_to_descriptor, &target);
  write(out, rank, reason);
  return target.error;
}

std::string Recorder::dump_text(std::size_t lines) const {
  std::string text;
  const std::int64_t now = clock_.now().count();
  for_each(lines, [&](const Record& record) {
    text += fmt::format("{:+12.6f} s {:<10} {} #{} on '{}' (channel {})",
                        static_cast<double>(record.time_ns - now) * 1e-9, to_string(record.event),
                        collective_word(record), record.sequence, label_of(record), record.channel);
    if (record.bytes > 0)
      text += fmt::format(", {} bytes of {}", record.bytes,
                          to_string(static_cast<Dtype>(record.dtype)));
    if (record.algorithm > 0)
      text += fmt::format(", {}", to_string(static_cast<Algorithm>(record.algorithm)));
    if (record.timing == TimeTaken::span)
      text += fmt::format(", {:.1f} us", record.peer * 1e-3);
    else if (record.peer >= 0)
      text += fmt::format(", peer {}", record.peer);
    if (record.code > 0) text += fmt::format(", {}", code_word(record));
    text += '\n';
  });
  return text;
}

}  // namespace tutti::trace
