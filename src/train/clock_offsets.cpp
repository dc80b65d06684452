#include "train/clock_offsets.hpp"

#include <array>
#include <cstring>
#include <limits>

namespace tutti::train {
namespace {

constexpr int kRounds = 32;
constexpr std::uint32_t kTag = 1;
using Identity = std::array<char, 64>;

// Rank 0's side: its clock in the middle of the shortest round, less what the peer's said then.
Result<std::int64_t> ask(Group& group, int peer, const Clock& clock) {
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  std::int64_t offset = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::int64_t theirs = 0;
    const std::int64_t asked = clock.now().count();
    const char ping = 0;
    if (Status status = group.send(ConstBuffer::of(&ping, 1), peer, kTag); !status.ok())
      return status;
    if (auto answer = group.recv(Buffer::of(&theirs, 1), peer, kTag); !answer.ok())
      return answer.status();
    const std::int64_t took = clock.now().count() - asked;
    if (took >= shortest) continue;
    shortest = took;
    offset = asked + took / 2 - theirs;
  }
  return offset;
}

Status answer(Group& group, const Clock& clock) {
  for (int round = 0; round < kRounds; ++round) {
    char ping = 0;
    if (auto got = group.recv(Buffer::of(&ping, 1), 0, kTag); !got.ok()) return got.status();
    const std::int64_t mine = clock.now().count();
    if (Status status = group.send(ConstBuffer::of(&mine, 1), 0, kTag); !status.ok()) return status;
  }
  return {};
}

Result<std::vector<Identity>> all_identities(Group& group, const std::string& identity) {
  Identity mine{};
  std::memcpy(mine.data(), identity.data(), std::min(identity.size(), mine.size()));
  std::vector<Identity> all(static_cast<std::size_t>(group.size()));
  const Status status = group.all_gather(ConstBuffer::of(mine.data(), mine.size()),
                                         Buffer::of(all.front().data(), all.size() * mine.size()));
  if (!status.ok()) return status;
  return all;
}

}  // namespace

Result<std::vector<std::int64_t>> measure_offsets(Group& group, const std::string& identity,
                                                  const Clock& clock) {
  auto identities = all_identities(group, identity);
  if (!identities.ok()) return identities.status();
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(group.size()), 0);
  for (std::size_t rank = 1; rank < offsets.size(); ++rank) {
    // Those of one kernel have one clock, and the first of them is asked.
    const Identity& own = (*identities)[rank];
    const auto same = std::find(identities->begin(), identities->end(), own) - identities->begin();
    if (own[0] != 0 && same < static_cast<std::ptrdiff_t>(rank)) {
      offsets[rank] = offsets[static_cast<std::size_t>(same)];
      continue;
    }
    if (group.rank() == 0) {
      auto offset = ask(group, static_cast<int>(rank), clock);
      if (!offset.ok()) return offset.status();
      offsets[rank] = *offset;
    } else if (group.rank() == static_cast<int>(rank)) {
      if (Status status = answer(group, clock); !status.ok()) return status;
    }
  }
  if (Status status = group.broadcast(Buffer::of(offsets), 0); !status.ok()) return status;
  return offsets;
}

}  // namespace tutti::train
