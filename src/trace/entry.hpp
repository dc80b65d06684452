// trace/entry.hpp - the bytes of a trace file: one head, then entries of 64 bytes.
//
// docs/formats/trace.md is the reference. A file is written through shared memory mappings, so
// whatever a rank had noted is there however it ended; entries that were never written are zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti::trace {

inline constexpr char kMagic[8] = {'t', 'u', 't', 't', 'i', 't', 'r', 'c'};
inline constexpr std::uint32_t kTraceVersion = 1;

struct FileHead {
  char magic[8] = {};
  std::uint32_t version = 0;
  std::uint32_t head_bytes = 0;
  std::uint32_t entry_bytes = 0;
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  std::int32_t pid = 0;
  std::int64_t unix_time_ns = 0;  // the same moment by both clocks
  std::int64_t time_ns = 0;
  char job[32] = {};  // the same in all files of a job, different between jobs
  char host[96] = {};
  char clock[128] = {};  // ranks with the same one share a steady clock; empty: nobody knows
  char spare[200] = {};
  std::uint64_t check = 0;  // xor of the 63 words before
};
static_assert(sizeof(FileHead) == 512);

enum class Kind : std::uint8_t {
  none,   // nothing was written here
  text,   // a piece of the text with number `name`: `channel` bytes of it, from `begin` on
  group,  // `channel` has `sequence` ranks, is called text `name`, its world ranks are text `end`
  collective,  // queued at `origin`, on its way from `begin` to `end`; `value`: ns that were
               // predicted
  wait,        // thread `origin` was blocked on operation `sequence` of `channel` (0: a message)
  fold,        // a reduction of `bytes`, for that operation
  compute,     // thread `origin` did what text `name` says
  step,        // training step `sequence`
  counter,     // text `name` was `value` at step `sequence`, noted at `begin`
  clock,       // add `begin` to this rank's clock to get rank 0's
  device,      // a collective was in a stream of GPU `origin`; else as there
  bubble,      // thread `origin` had nothing to do: what text `name` says was not computed yet
};
inline constexpr std::uint8_t kKinds = 12;

// In Entry::flags.
inline constexpr std::uint8_t kBlocking = 1;  // the caller did nothing else meanwhile
inline constexpr std::uint8_t kMore = 2;      // the text goes on

struct TraceEntry {
  std::uint8_t kind = 0;
  std::uint8_t flags = 0;
  std::uint8_t collective = 0;
  std::uint8_t algorithm = 0;
  std::uint8_t dtype = 0;
  std::uint8_t reduce_op = 0;
  std::uint8_t code = 0;  // tutti::Code
  std::uint8_t check = 0;
  std::uint32_t channel = 0;
  std::uint32_t name = 0;  // a text; 0: none
  std::uint64_t sequence = 0;
  std::int64_t begin = 0;  // ns of the steady clock
  std::int64_t end = 0;
  std::uint64_t origin = 0;
  std::uint64_t bytes = 0;
  double value = 0;
};
static_assert(sizeof(TraceEntry) == 64);

inline constexpr std::size_t kTextOffset = 24;
inline constexpr std::size_t kTextBytes = sizeof(TraceEntry) - kTextOffset;

// All bytes but `check` itself, xored; one changed byte changes it.
inline std::uint8_t check_of(TraceEntry entry) noexcept {
  entry.check = 0;
  std::uint64_t words[sizeof(TraceEntry) / 8];
  std::memcpy(words, &entry, sizeof entry);
  std::uint64_t all = 0x5a;
  for (const std::uint64_t word : words) all ^= word;
  all ^= all >> 32;
  all ^= all >> 16;
  return static_cast<std::uint8_t>(all ^ (all >> 8));
}

inline std::uint64_t check_of(const FileHead& head) noexcept {
  std::uint64_t words[sizeof(FileHead) / 8];
  std::memcpy(words, &head, sizeof head);
  std::uint64_t all = 0;
  for (std::size_t i = 0; i + 1 < sizeof(FileHead) / 8; ++i) all ^= words[i];
  return all;
}

}  // namespace tutti::trace
