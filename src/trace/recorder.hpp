// trace/recorder.hpp - the flight recorder: the last few thousand things that happened, always on.
//
// A fixed ring of 64-byte records; noting one costs a clock read and a cache line, takes no lock
// and never fails. It is dumped on an error, on SIGUSR1 and before an abort. Format:
// docs/formats/recorder.md.
//
// Thread-safety  any thread may note; snapshot and dump may run beside it and skip records that are
//                being written.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "core/spin_lock.hpp"

namespace tutti::trace {

class JsonWriter;

enum class Event : std::uint8_t {
  started,
  finished,
  failed,
  peer_down,
  group_made,
  group_gone,
  note,
  waiting,  // for another operation, before it begins; the label names that
};
std::string_view to_string(Event event) noexcept;

inline constexpr std::uint8_t kPointToPoint = 255;  // in Record::collective

// How a record's time was taken. Ticks are turned into nanoseconds when somebody reads them.
enum class TimeTaken : std::uint16_t {
  by_clock,
  by_ticks,
  span,  // the time is when it began, in ticks; there is no `started` record
};

struct Record {
  std::int64_t time_ns = 0;    // of the recorder's clock; filled in by note()
  std::uint64_t sequence = 0;  // of the collective in its group, or of the message
  std::uint64_t bytes = 0;
  std::uint32_t channel = 0;
  std::int32_t peer = -1;  // of a message; of a span: how many ns it took
  Event event = Event::note;
  std::uint8_t collective = 0;  // tutti::Collective, or kPointToPoint
  std::uint8_t algorithm = 0;
  std::uint8_t dtype = 0;
  std::uint8_t reduce_op = 0;
  std::uint8_t code = 0;  // tutti::Code, of a failure
  TimeTaken timing = TimeTaken::by_clock;
  char label[16] = {};  // group or call name, cut off; zero-filled
};

// Places in the ring that one writer has reserved. They are filled without an atomic operation that
// others could hold up.
struct Tickets {
  std::uint64_t next = 0;
  std::uint64_t end = 0;
};

class Recorder {
 public:
  Recorder(std::size_t records, const Clock& clock);
  ~Recorder();

  void note(Record record) noexcept;
  // The same on the hot path: no call of the clock, no atomic operation that others could hold up.
  // `tickets` are the writer's; it reserves some more when they are used up.
  void note(Tickets& tickets, Record record) noexcept;
  // A collective that took from `begin` to `end`, in ticks: one record.
  void note_span(Tickets& tickets, const Record& record, std::uint64_t begin,
                 std::uint64_t end) noexcept;
  // For the head of a dump: how many ranks the job has, and its groups (the first 64 of them).
  // `ranks`: the world ranks of the group, as text; both are cut off if they must be.
  void set_ranks(int ranks) noexcept { ranks_.store(ranks, std::memory_order_relaxed); }
  void note_group(std::uint32_t channel, std::string_view name, std::string_view ranks) noexcept;
  // What the program calls the ranks of the job, by rank.
  void set_labels(std::vector<std::string> labels);
  // Oldest first.
  std::vector<Record> snapshot() const;
  // One JSON object; `rank` and `reason` go into its head.
  std::string dump_json(int rank, const std::string& reason) const;
  // The last `lines` records for people, one a line.
  std::string dump_text(std::size_t lines) const;
  // Async-signal-safe: writes the JSON dump with write(2), no allocation. 0, or errno: it is not
  // whole. Whoever reads the descriptor is waited for a second in all.
  int dump_to(int descriptor, int rank, std::string_view reason) const noexcept;

 private:
  struct Slot;
  // The last `most` records that are whole, oldest first.
  template <class Visit>
  void for_each(std::size_t most, const Visit& visit) const;
  void write(JsonWriter& out, int rank, std::string_view reason) const;

  std::unique_ptr<Slot[]> slots_;
  std::size_t mask_;
  const Clock& clock_;
  void place(const Record& record) noexcept;
  void place(Tickets& tickets, const Record& record) noexcept;
  Record in_ns(Record record) const noexcept;

  std::int64_t born_ns_;
  std::uint64_t born_ticks_;
  std::atomic<std::uint64_t> next_{0};

  struct GroupNote {
    std::uint32_t channel = 0;
    char name[32] = {};
    char ranks[92] = {};
  };
  std::atomic<int> ranks_{0};
  SpinLock groups_lock_;  // of those who write; readers go by the count
  std::array<GroupNote, 64> groups_;
  std::atomic<std::size_t> group_count_{0};
  // A dump may be reading the ones before: they are kept.
  std::vector<std::unique_ptr<const std::vector<std::string>>> all_labels_;
  std::atomic<const std::vector<std::string>*> labels_{nullptr};
};

}  // namespace tutti::trace
