#include "group/calibrate_links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace tutti::group {
namespace {

using tuner::Curve;
using tuner::Sample;

enum class ProbeKind : std::uint32_t { end, echo, burst, both };

struct Probe {
  ProbeKind kind = ProbeKind::end;
  std::uint32_t count = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Probe) == 16);

constexpr std::uint32_t kTag = 0x74756e65;  // "tune"; the group has no other messages yet
constexpr std::size_t kProbeSizes[] = {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};
constexpr std::size_t kLargestProbe = 4 << 20;
constexpr std::size_t kShortestThatAsks = 16 << 10;
constexpr double kFastest = 200e9;  // bytes per second that no link exceeds
constexpr std::size_t kShort = 8;
constexpr int kBurst = 16;
constexpr std::uint32_t kMostRounds = 200;
constexpr std::uint32_t kRoundsAtOnce = 20;
// Of the time that a link is measured in.
constexpr double kPerShort = 1.0 / 18;
constexpr double kPerProbeSize = 1.0 / 12;
constexpr std::size_t kCheckedBytes = 64 << 10;
constexpr std::uint32_t kCheckedRounds = 8;
// A neighbour who sends as much on the same wire halves what is left of it, and goes away again; beyond this it
// is another network. A choice for one that is 2.5 times as fast or slow takes 0.6 % longer than the best on
// average, and for a factor of four 1.4 % (docs/algorithms/cost_model.md).
constexpr double kStillLike = 2.5;
// A core that somebody else had for a moment looks like a slow network, seldom so often in a row.
constexpr int kNetworkLooks = 3;

// Disturbances only add, and one undisturbed message among hundreds is enough.
double least(const std::vector<double>& seconds) {
  return *std::min_element(seconds.begin(), seconds.end());
}

// Both ends of a probe; what the leader sends the peer receives.
class Wire {
 public:
  Wire(Group& group, int peer, Nanoseconds timeout) : group_(group), peer_(peer) {
    options_.timeout = timeout;
  }

  Status send(const void* data, std::size_t bytes) {
    return group_.send(ConstBuffer{data, bytes, Dtype::u8}, peer_, kTag, options_);
  }
  Status recv(void* data, std::size_t bytes) {
    return group_.recv(Buffer{data, bytes, Dtype::u8}, peer_, kTag, options_).status();
  }
  // One message each way at once.
  Status swap(const std::byte* out, std::byte* in, std::size_t bytes) {
    Transfer transfers[] = {
        {Transfer::Kind::send, Buffer{const_cast<std::byte*>(out), bytes, Dtype::u8}, peer_, kTag},
        {Transfer::Kind::recv, Buffer{in, bytes, Dtype::u8}, peer_, kTag}};
    return group_.exchange(transfers, options_).status();
  }
  // `count` messages at once.
  Status move(Transfer::Kind kind, std::vector<std::byte>& memory, std::uint32_t count,
              std::size_t bytes) {
    std::vector<Transfer> transfers;
    for (std::uint32_t i = 0; i < count; ++i)
      transfers.push_back({kind, Buffer{memory.data() + i * bytes, bytes, Dtype::u8}, peer_, kTag});
    return group_.exchange(transfers, options_).status();
  }

 private:
  Group& group_;
  int peer_;
  CallOptions options_;
};

class Leader {
 public:
  Leader(Group& group, int peer, Nanoseconds timeout)
      : wire_(group, peer, timeout), memory_(kLargestProbe), incoming_(kLargestProbe) {}

  // Seconds of each message one way: half of there and back, or one each way at once.
  Result<std::vector<double>> one_way(Ways ways, std::size_t bytes, std::uint32_t count) {
    const bool in_turn = ways == Ways::in_turn;
    const Probe probe{in_turn ? ProbeKind::echo : ProbeKind::both, count, bytes};
    if (Status status = wire_.send(&probe, sizeof probe); !status.ok()) return status;
    std::vector<double> seconds;
    for (std::uint32_t i = 0; i < count; ++i) {
      const double start = now_s();
      const Status status =
          in_turn ? there_and_back(bytes) : wire_.swap(memory_.data(), incoming_.data(), bytes);
      if (!status.ok()) return status;
      seconds.push_back((now_s() - start) / (in_turn ? 2 : 1));
    }
    return seconds;
  }

  // Seconds until `count` short messages that went at once have been answered.
  Result<double> burst(std::uint32_t count) {
    const Probe probe{ProbeKind::burst, count, kShort};
    if (Status status = wire_.send(&probe, sizeof probe); !status.ok()) return status;
    const double start = now_s();
    if (Status status = wire_.move(Transfer::Kind::send, memory_, count, kShort); !status.ok())
      return status;
    if (Status status = wire_.recv(memory_.data(), 1); !status.ok()) return status;
    return now_s() - start;
  }

  Status end() {
    const Probe probe;
    return wire_.send(&probe, sizeof probe);
  }

 private:
  Status there_and_back(std::size_t bytes) {
    const Status sent = wire_.send(memory_.data(), bytes);
    return sent.ok() ? wire_.recv(memory_.data(), bytes) : sent;
  }

  Wire wire_;
  std::vector<std::byte> memory_;
  std::vector<std::byte> incoming_;
};

// As many rounds as fit into the part's time, a few at a time: what a few took says little of what
// the next will take on a busy machine. The first ones are for the caches.
Result<std::vector<double>> time_for(Leader& leader, Ways ways, std::size_t bytes,
                                     const Budget& part) {
  auto all = leader.one_way(ways, bytes, 2);
  bool warm = false;
  while (all.ok() && all->size() < kMostRounds) {
    const double each = std::max(1e-7, 2 * all->back());
    const double rounds = std::clamp(part.left_s() / each, 0.0, static_cast<double>(kRoundsAtOnce));
    if (rounds < 3) break;
    auto more = leader.one_way(ways, bytes, static_cast<std::uint32_t>(rounds));
    if (!more.ok()) return more.status();
    if (!std::exchange(warm, true)) all->clear();
    all->insert(all->end(), more->begin(), more->end());
  }
  return all;
}

// What one more message costs when several go at once.
Result<double> measure_message(Leader& leader, const Budget& part) {
  std::vector<double> single;
  std::vector<double> several;
  do {
    for (const auto& [count, into] : {std::pair{1, &single}, std::pair{kBurst, &several}}) {
      auto seconds = leader.burst(static_cast<std::uint32_t>(count));
      if (!seconds.ok()) return seconds.status();
      into->push_back(*seconds);
    }
  } while (part.left_s() > 0 && single.size() < kMostRounds);
  return std::max(1e-8, (least(several) - least(single)) / (kBurst - 1));
}

// Seconds one way, by size.
using Times = std::map<std::size_t, std::vector<double>>;

Result<Times> measure_sizes(Leader& leader, Ways ways, const Budget& budget) {
  Times times;
  double last = 0;
  for (const std::size_t bytes : kProbeSizes) {
    // Four times the bytes, there and back, three times at least: not if that would take too long.
    if (!times.empty() && last * 4 * 2 * 3 > budget.left_s()) break;
    auto seconds = time_for(leader, ways, bytes, budget.share(kPerProbeSize));
    if (!seconds.ok()) return seconds.status();
    times[bytes] = undisturbed(*std::move(seconds));
    last = typical(times[bytes]);
  }
  return times;
}

// A long message between two ranks asks first whether it may come; in a collective, whoever has
// arrived has said so. What the asking takes is seen where messages are long enough to ask and
// short enough not to take long.
double asking_s(const Times& times, double latency_s) {
  const auto shortest = times.find(kShortestThatAsks);
  if (shortest == times.end() || times.size() < 4) return 0;
  const auto far = std::prev(times.end());
  const auto near = std::prev(far);
  const double per_byte = std::max(0.0, typical(far->second) - typical(near->second)) /
                          static_cast<double>(far->first - near->first);
  return std::max(
      0.0, typical(shortest->second) - latency_s - per_byte * static_cast<double>(shortest->first));
}

}  // namespace

ProbePeers ProbePeers::find(const std::vector<int>& host_of) {
  ProbePeers peers;
  for (int rank = static_cast<int>(host_of.size()) - 1; rank > 0; --rank)
    (host_of[static_cast<std::size_t>(rank)] == host_of[0] ? peers.memory : peers.tcp) = rank;
  return peers;
}

Result<tuner::LinkCost> measure_link(Group& group, int peer, Ways ways, std::size_t segment_bytes,
                                     const Budget& budget, Nanoseconds timeout) {
  Leader leader(group, peer, timeout);
  tuner::LinkCost link;
  link.measured = true;
  auto latency = time_for(leader, Ways::in_turn, kShort, budget.share(kPerShort));
  if (!latency.ok()) return latency.status();
  link.latency_s = least(*latency);
  auto message = measure_message(leader, budget.share(kPerShort));
  if (!message.ok()) return message.status();
  link.message_s = *message;

  auto times = measure_sizes(leader, ways, budget);
  if (!times.ok()) return times.status();
  const double asking = asking_s(*times, link.latency_s);
  std::vector<Sample> samples;
  for (const auto& [bytes, seconds] : *times) {
    const double segments =
        std::ceil(static_cast<double>(bytes) / static_cast<double>(segment_bytes));
    const double beside = link.latency_s + (segments - 1) * link.message_s +
                          (bytes >= kShortestThatAsks ? asking : 0);
    for (const double each : seconds)
      samples.push_back({static_cast<double>(bytes),
                         std::max(static_cast<double>(bytes) / kFastest, each - beside)});
  }
  link.bytes = Curve::fit(samples);
  return link;
}

bool is_like(const tuner::LinkCost& link, double seconds) {
  const double ratio = seconds / (link.latency_s + link.bytes.seconds(kCheckedBytes));
  return ratio > 1 / kStillLike && ratio < kStillLike;
}

Result<bool> still_like(Group& group, int peer, const tuner::LinkCost& link, Nanoseconds timeout) {
  Leader leader(group, peer, timeout);
  for (int look = 0; look < kNetworkLooks; ++look) {
    auto seconds = leader.one_way(Ways::both_at_once, kCheckedBytes, kCheckedRounds);
    if (!seconds.ok()) return seconds.status();
    // Shaped links let the first bytes pass at full speed.
    seconds->erase(seconds->begin(), seconds->begin() + kCheckedRounds / 2);
    if (is_like(link, typical(*std::move(seconds)))) return true;
  }
  return false;
}

Status end_probes(Group& group, int peer, Nanoseconds timeout) {
  const Probe probe;
  return Wire(group, peer, timeout).send(&probe, sizeof probe);
}

Status serve_probes(Group& group, Nanoseconds timeout) {
  Wire wire(group, 0, timeout);
  std::vector<std::byte> memory(kLargestProbe);
  std::vector<std::byte> incoming(kLargestProbe);
  for (;;) {
    Probe probe;
    if (Status status = wire.recv(&probe, sizeof probe); !status.ok()) return status;
    if (probe.kind == ProbeKind::end) return {};
    if (probe.bytes > kLargestProbe || probe.count > kMostRounds ||
        (probe.kind == ProbeKind::burst && probe.bytes * probe.count > kLargestProbe))
      return {Code::corrupt, fmt::format("rank 0 asks for a probe of {} times {} bytes",
                                         probe.count, probe.bytes)};
    if (probe.kind == ProbeKind::burst) {
      Status status = wire.move(Transfer::Kind::recv, memory, probe.count, probe.bytes);
      if (status.ok()) status = wire.send(memory.data(), 1);
      if (!status.ok()) return status;
      continue;
    }
    for (std::uint32_t i = 0; i < probe.count; ++i) {
      if (probe.kind == ProbeKind::both) {
        if (Status status = wire.swap(memory.data(), incoming.data(), probe.bytes); !status.ok())
          return status;
        continue;
      }
      if (Status status = wire.recv(memory.data(), probe.bytes); !status.ok()) return status;
      if (Status status = wire.send(memory.data(), probe.bytes); !status.ok()) return status;
    }
  }
}

}  // namespace tutti::group
