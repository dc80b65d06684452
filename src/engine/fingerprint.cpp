#include "engine/fingerprint.hpp"

#include <fmt/format.h>

#include <cstring>

#include "engine/numbers.hpp"
#include "tutti/shape.hpp"

namespace tutti::engine {

bool agree(const Fingerprint& mine, const Fingerprint& theirs) noexcept {
  const bool same_call = mine.collective == theirs.collective && mine.dtype == theirs.dtype &&
                         mine.op == theirs.op && mine.root == theirs.root &&
                         mine.count == theirs.count && mine.counts_hash == theirs.counts_hash &&
                         mine.scalar_bits == theirs.scalar_bits &&
                         mine.user_hash == theirs.user_hash && mine.widens == theirs.widens;
  const bool same_way = mine.algorithm == theirs.algorithm && mine.shots == theirs.shots &&
                        mine.uneven == theirs.uneven && mine.on_device == theirs.on_device;
  const bool same_pair = mine.to_you == theirs.from_you && mine.from_you == theirs.to_you;
  return same_call && same_way && same_pair;
}

std::string describe(const Fingerprint& call) {
  // It may have come from anybody.
  if (static_cast<std::size_t>(call.collective) >= kCollectives) return "something unknown";
  std::string text(to_string(call.collective));
  if (!shape_of(call.collective).has_data()) return text + "()";
  text += '(';
  if (call.count != 0 || !call.uneven) text += fmt::format("{} x ", call.count);
  text += to_string(call.dtype);
  if (call.widens) text += fmt::format(" into {}", to_string(Dtype::f32));
  if (call.uneven) text += ", parts of any size";
  if (call.counts_hash != 0)
    text += fmt::format(", counts #{:08x}", call.counts_hash & 0xffffffffU);
  if (call.uneven && (call.to_you != 0 || call.from_you != 0))
    text += fmt::format(", {} B to and {} B from the other", call.to_you, call.from_you);
  if (has_reduction(call.collective)) text += fmt::format(", {}", to_string(call.op));
  if (call.op == ReduceOp::premul_sum) {
    double scalar = 0;
    std::memcpy(&scalar, &call.scalar_bits, sizeof scalar);
    text += fmt::format(" x {}", scalar);
  }
  if (call.op == ReduceOp::user) text += fmt::format(" #{:08x}", call.user_hash);
  if (has_root(call.collective)) text += fmt::format(", root {}", call.root);
  if (call.on_device) text += ", on cuda";
  return text + fmt::format(", {})", to_string(call.algorithm));
}

std::string describe(const ActivityReport& report, std::string_view held_for) {
  std::string text = "it has not started any collective of this group";
  if (number_of(report.sequence) != 0)
    text = fmt::format("it {} {}", report.running ? "is at" : "has finished",
                       numbered(describe(report.call), report.sequence));
  if (report.posted != 0)
    text += fmt::format(" and waits in {} send{} or receive{}", report.posted,
                        report.posted == 1 ? "" : "s", report.posted == 1 ? "" : "s");
  if (report.held != 0)
    text += fmt::format("; its next call there waits for {}",
                        held_for.empty() ? "another operation" : held_for);
  return text;
}

std::string numbered(std::string_view call, std::uint64_t sequence) {
  const std::uint64_t number = number_of(sequence);
  return number == 0 ? std::string(call) : fmt::format("{} #{}", call, number);
}

std::uint32_t call_hash_of(const Fingerprint& call) noexcept {
  std::uint64_t hash = 0x9e3779b97f4a7c15U;
  const auto mix = [&](std::uint64_t word) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdU;
    hash ^= hash >> 32;
  };
  mix(call.count);
  mix(call.counts_hash);
  mix(call.scalar_bits);
  mix(std::uint64_t{call.user_hash} << 32 | static_cast<std::uint32_t>(call.root));
  mix(static_cast<std::uint64_t>(call.collective) | static_cast<std::uint64_t>(call.dtype) << 8 |
      static_cast<std::uint64_t>(call.op) << 16 | static_cast<std::uint64_t>(call.algorithm) << 24 |
      static_cast<std::uint64_t>(call.shots) << 32 | static_cast<std::uint64_t>(call.uneven) << 40 |
      static_cast<std::uint64_t>(call.on_device) << 48 |
      static_cast<std::uint64_t>(call.widens) << 56);
  const auto folded = static_cast<std::uint32_t>(hash);
  return folded == 0 ? 1 : folded;
}

std::uint64_t fnv1a(const void* data, std::size_t bytes) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (std::size_t i = 0; i < bytes; ++i) {
    hash ^= static_cast<const unsigned char*>(data)[i];
    hash *= 0x100000001b3U;
  }
  return hash;
}

}  // namespace tutti::engine
