// engine/fingerprint.hpp - what ranks compare before they touch each other's data.
//
// It is the payload of the arrive message of every collective, small enough to ride inside a ring slot,
// and spelled out rather than hashed, so that an error can say who called what.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/link.hpp"
#include "tutti/types.hpp"

namespace tutti::engine {

struct Fingerprint {
  std::uint64_t count = 0;        // elements, where all ranks must agree on them
  std::uint64_t counts_hash = 0;  // of a list of counts that all ranks know; 0 without one
  std::uint64_t scalar_bits = 0;  // of premul_sum
  std::uint32_t user_hash = 0;    // of the name of a user function
  std::int32_t root = 0;
  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::u8;
  ReduceOp op = ReduceOp::sum;
  Algorithm algorithm = Algorithm::automatic;
  std::uint8_t shots = 0;
  std::uint8_t uneven = 0;
  std::uint8_t on_device = 0;
  std::uint8_t widens = 0;  // the output is of the accumulation type
  // Per pair, where only the two know (v-variants): bytes I send you and expect of you.
  std::uint64_t to_you = 0;
  std::uint64_t from_you = 0;
};
static_assert(sizeof(Fingerprint) == 56 && sizeof(Fingerprint) <= transport::kInlineBytes);

// A rank's answer to "what are you doing?": its last collective in the group. If the next one waits for
// other works, their names follow.
struct ActivityReport {
  Fingerprint call;
  std::uint8_t running = 0;
  std::uint8_t held = 0;       // its next one waits for other works (CallOptions::after)
  std::uint16_t told = 0;      // another rank has asked before: that one says who is slow
  std::uint32_t posted = 0;    // point-to-point operations that wait
  std::uint64_t sequence = 0;  // 0: none yet
};
static_assert(sizeof(ActivityReport) <= transport::kInlineBytes);

// Whether `mine` and the peer's `theirs` can be the same collective.
bool agree(const Fingerprint& mine, const Fingerprint& theirs) noexcept;
// "all_reduce(1024 x f32, sum, ring)", with just the words in which the two can differ.
std::string describe(const Fingerprint& call);
// "it is at broadcast(…) #7", for an error about a rank that does something else; `held_for`: what its
// next one waits for.
std::string describe(const ActivityReport& report, std::string_view held_for = {});

// "all_reduce #7"; just the call where tutti itself made it.
std::string numbered(std::string_view call, std::uint64_t sequence);

// A hash of all that `agree` compares but what only pairs know. Never 0.
std::uint32_t call_hash_of(const Fingerprint& call) noexcept;

// FNV-1a, for lists of counts and names of functions: equal input, equal bits, on any machine.
std::uint64_t fnv1a(const void* data, std::size_t bytes) noexcept;

}  // namespace tutti::engine
