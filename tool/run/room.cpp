#include "tool/run/room.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "core/cgroup.hpp"
#include "core/words.hpp"

namespace tutti::tool {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// Measured with 2 to 24 ranks (2026-11-16): beside these few a rank has three descriptors for each
// rank that it shares memory with, and one for each that it does not; the launcher four for each.
constexpr std::uint64_t kFewDescriptors = 32;
constexpr std::uint64_t kRankBytes = 3 * kMiB;  // of its own, measured likewise
// Libraries, stacks and what malloc reserves: measured likewise, of a small program.
constexpr std::uint64_t kRankAddresses = 160 * kMiB;
// A program, and the thread that drives its collectives.
constexpr std::uint64_t kThreadsPerRank = 2;

// The window that a rank shows one other: 32 blocks of 4 KiB, 2 to 4 of a segment, their lists
// (transport/window.hpp; tests/unit/tool holds the two together).
std::uint64_t pair_bytes(int local, std::uint64_t segment) {
  const std::uint64_t budget = 32 * kMiB / (segment * static_cast<std::uint64_t>(local));
  return 11 * 1024 + 128 * 1024 + std::clamp<std::uint64_t>(budget, 2, 4) * segment;
}

bool may_share_memory(const Config& config) {
  for (const std::string_view word : split_words(config.transport, ','))
    if (word == "auto" || word == "shm") return true;
  return false;
}

std::string memory_words(std::uint64_t bytes) {
  if (bytes < 1024 * kMiB) return fmt::format("{} MiB", bytes / kMiB);
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / 0x1p30);
}

Status too_little(int local, std::string_view what) {
  return {Code::invalid_argument, fmt::format("{} ranks do not fit on this host: {}", local, what)};
}

}  // namespace

RoomNeeds RoomNeeds::of(int local, int size, const Config& config, bool logs) {
  const auto beside = static_cast<std::uint64_t>(local);
  const auto elsewhere = static_cast<std::uint64_t>(size - local);
  const auto streams = static_cast<std::uint64_t>(config.streams + (config.tcp_express ? 1 : 0));
  const bool shares = may_share_memory(config);
  RoomNeeds needs;
  needs.launcher_descriptors = (logs ? 6 : 4) * beside + kFewDescriptors;
  needs.rank_descriptors = (shares ? 3 : streams) * beside + streams * elsewhere + kFewDescriptors;
  needs.threads = kThreadsPerRank * beside;
  needs.memory_bytes = beside * kRankBytes;
  const std::uint64_t windows =
      shares ? beside * beside * pair_bytes(local, config.segment_bytes) : 0;
  needs.memory_bytes += windows;
  needs.address_bytes = kRankAddresses + windows;
  return needs;
}

HostRoom HostRoom::of_this_host() {
  HostRoom room;
  room.descriptors = allow_descriptors(kNoLimit);
  room.memory_bytes = available_memory_bytes();
  room.threads =
      std::min({Cgroup::of(CgroupKind::pids).room(CgroupKind::pids),
                limit_in("/proc/sys/kernel/threads-max"), limit_in("/proc/sys/kernel/pid_max")});
  rlimit own{};
  if (::getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
    room.address_bytes = own.rlim_cur;
  // Root may start as many as it likes.
  if (::geteuid() != 0 && ::getrlimit(RLIMIT_NPROC, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
    room.threads = std::min<std::uint64_t>(room.threads, own.rlim_cur);
  return room;
}

Status check_room(int local, const RoomNeeds& needs, const HostRoom& room, bool groups) {
  if (needs.threads > room.threads)
    return too_little(local, fmt::format("they need {} threads and it allows {} (ulimit -u, or the "
                                         "container's pids.max)",
                                         needs.threads, room.threads));
  const std::uint64_t descriptors =
      groups ? std::max(needs.launcher_descriptors, needs.rank_descriptors)
             : needs.launcher_descriptors;
  if (descriptors > room.descriptors)
    return too_little(local,
                      fmt::format("a process needs {} open files and may have {}; raise the hard "
                                  "limit (ulimit -Hn)",
                                  descriptors, room.descriptors));
  if (groups && needs.address_bytes > room.address_bytes)
    return too_little(local, fmt::format("each needs {} MiB of address space and may have {} MiB "
                                         "(ulimit -v)",
                                         needs.address_bytes / kMiB, room.address_bytes / kMiB));
  if (groups && needs.memory_bytes > room.memory_bytes)
    return too_little(
        local, fmt::format("links between all of them take {} of memory and {} are there; use more "
                           "hosts, or --no-group where the program makes no group",
                           memory_words(needs.memory_bytes), memory_words(room.memory_bytes)));
  return {};
}

}  // namespace tutti::tool
