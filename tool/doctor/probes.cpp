#include "tool/doctor/probes.hpp"

#include <algorithm>
#include <array>
#include <deque>

#include "core/clock.hpp"

namespace tutti::tool::doctor {
namespace {

constexpr std::size_t kBlockBytes = 256 << 10;
constexpr int kBlocksUnderWay = 4;
constexpr int kMostPings = 100;
constexpr int kFewPings = 10;
constexpr Nanoseconds kPingTime = std::chrono::milliseconds(20);
constexpr std::uint32_t kTag = 7;

// The first word of every message: whether more come.
enum : std::uint64_t { kMore = 0, kLast = 1 };

class Prober {
 public:
  Prober(Group& group, const ProbeOptions& options)
      : group_(group), options_(options), blocks_(kBlocksUnderWay) {
    for (auto& block : blocks_) block.resize(kBlockBytes / sizeof(std::uint64_t));
  }

  Result<std::vector<Path>> run() {
    std::vector<int> everybody(static_cast<std::size_t>(group_.size()));
    for (std::size_t rank = 0; rank < everybody.size(); ++rank)
      everybody[rank] = static_cast<int>(rank);
    if (Status status = tournament(everybody, &Prober::ping); !status.ok()) return status;
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      if (Status status = group_.barrier(); !status.ok()) return status;
      if (Status status = tournament(beside_me(), &Prober::transfer); !status.ok()) return status;
      if (Status status = group_.barrier(); !status.ok()) return status;
      if (Status status = tournament(first_of_hosts(), &Prober::transfer); !status.ok())
        return status;
    }
    return paths_;
  }

  Result<std::vector<Path>> run_again(const std::vector<Path>& paths) {
    for (const Path& path : paths) {
      if (Status status = group_.barrier(); !status.ok()) return status;
      Status status;
      if (path.from == group_.rank()) status = push(path.to);
      if (path.to == group_.rank()) status = take(path.from);
      if (!status.ok()) return status;
    }
    return paths_;
  }

 private:
  using Game = Status (Prober::*)(int peer, bool first);

  std::vector<int> beside_me() const {
    const auto hosts = group_.hosts();
    std::vector<int> ranks;
    for (int rank = 0; rank < group_.size(); ++rank)
      if (hosts[static_cast<std::size_t>(rank)] == hosts[static_cast<std::size_t>(group_.rank())])
        ranks.push_back(rank);
    return ranks;
  }

  std::vector<int> first_of_hosts() const {
    const auto hosts = group_.hosts();
    std::vector<int> ranks;
    for (int rank = 0; rank < group_.size(); ++rank)
      if (hosts[static_cast<std::size_t>(rank)] == static_cast<int>(ranks.size()))
        ranks.push_back(rank);
    return ranks;
  }

  // Both directions of every pair of `ranks`, this rank's part; nothing where it is none of them.
  Status tournament(const std::vector<int>& ranks, Game game) {
    const auto me = std::find(ranks.begin(), ranks.end(), group_.rank());
    if (me == ranks.end()) return {};
    const int players = static_cast<int>(ranks.size());
    for (int round = 0; round < rounds_of(players); ++round) {
      const int partner = partner_in(round, static_cast<int>(me - ranks.begin()), players);
      if (partner < 0) continue;
      const int peer = ranks[static_cast<std::size_t>(partner)];
      for (const bool lower_first : {true, false}) {
        const bool first = (group_.rank() < peer) == lower_first;
        if (Status status = (this->*game)(peer, first); !status.ok()) return status;
      }
    }
    return {};
  }

  Path& path_to(int peer) {
    for (Path& path : paths_)
      if (path.to == peer) return path;
    paths_.push_back({group_.rank(), peer, 0, 0});
    return paths_.back();
  }

  Status ping(int peer, bool first) {
    std::array<std::uint64_t, 1> word{};
    const Buffer buffer = Buffer::of(word);
    if (!first) {
      do {
        if (auto got = group_.recv(buffer, peer, kTag); !got.ok()) return got.status();
        if (Status status = group_.send(buffer, peer, kTag); !status.ok()) return status;
      } while (word[0] == kMore);
      return {};
    }
    std::vector<Nanoseconds> times;
    const Nanoseconds end = steady_clock().now() + kPingTime;
    for (word[0] = kMore; word[0] == kMore;) {
      const Nanoseconds begin = steady_clock().now();
      const int done = static_cast<int>(times.size()) + 1;
      word[0] = done == kMostPings || (done >= kFewPings && begin >= end) ? kLast : kMore;
      const std::uint64_t said = word[0];
      if (Status status = group_.send(buffer, peer, kTag); !status.ok()) return status;
      if (auto got = group_.recv(buffer, peer, kTag); !got.ok()) return got.status();
      times.push_back(steady_clock().now() - begin);
      word[0] = said;
    }
    std::sort(times.begin(), times.end());
    path_to(peer).latency_s = in_seconds(times[times.size() / 2]) / 2;
    return {};
  }

  Status transfer(int peer, bool first) { return first ? push(peer) : take(peer); }

  // Until the time is up, and then until the other one has all of it.
  Status push(int peer) {
    std::deque<Work> under_way;
    const Nanoseconds begin = steady_clock().now();
    double bytes = 0;
    for (std::uint64_t word = kMore; word == kMore; bytes += kBlockBytes) {
      if (under_way.size() == blocks_.size()) {
        if (Status status = under_way.front().wait(); !status.ok()) return status;
        under_way.pop_front();
      }
      word = steady_clock().now() - begin >= options_.transfer ? kLast : kMore;
      auto& block = blocks_[next_++ % blocks_.size()];
      block[0] = word;
      under_way.push_back(group_.isend(Buffer::of(block), peer, kTag));
    }
    for (Work& work : under_way)
      if (Status status = work.wait(); !status.ok()) return status;
    std::array<std::uint64_t, 1> thanks{};
    if (auto got = group_.recv(Buffer::of(thanks), peer, kTag); !got.ok()) return got.status();
    Path& path = path_to(peer);
    path.bytes_per_s = std::max(path.bytes_per_s, bytes / in_seconds(steady_clock().now() - begin));
    return {};
  }

  Status take(int peer) {
    auto& block = blocks_[0];
    do {
      if (auto got = group_.recv(Buffer::of(block), peer, kTag); !got.ok()) return got.status();
    } while (block[0] == kMore);
    std::array<std::uint64_t, 1> thanks{};
    return group_.send(Buffer::of(thanks), peer, kTag);
  }

  Group& group_;
  const ProbeOptions options_;
  std::vector<std::vector<std::uint64_t>> blocks_;
  std::size_t next_ = 0;
  std::vector<Path> paths_;
};

}  // namespace

int rounds_of(int players) { return players + players % 2 - 1; }

// The circle: the last one of an even number stays where he is, the others move on by one place a round.
int partner_in(int round, int player, int players) {
  const int even = players + players % 2;
  const int ring = even - 1;
  int partner = 0;
  if (player == ring)
    partner = round * (even / 2) % ring;
  else if (partner = (round - player % ring + ring) % ring; partner == player)
    partner = ring;
  return partner < players ? partner : -1;
}

Result<std::vector<Path>> probe(Group& group, const ProbeOptions& options) {
  return Prober(group, options).run();
}

Result<std::vector<Path>> probe_again(Group& group, const ProbeOptions& options,
                                      const std::vector<Path>& paths) {
  // Long enough for TCP to get over losses in its first moments.
  constexpr Nanoseconds kLeast = std::chrono::seconds(1);
  ProbeOptions longer = options;
  longer.transfer = std::max<Nanoseconds>(4 * options.transfer, kLeast);
  return Prober(group, longer).run_again(paths);
}

}  // namespace tutti::tool::doctor
