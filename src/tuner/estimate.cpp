#include "tuner/estimate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "topology/topology.hpp"
#include "tuner/cost.hpp"

namespace tutti::tuner {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;

// Groups up to this size are walked whole.
constexpr int kWholeRanks = 16;
// Steps that a builder keeps for the ranks beyond a power of two.
constexpr std::size_t kUnusedSteps = 2;

enum Kind { kMemory, kTcp, kKinds };
constexpr LinkCost kLinks[kKinds] = {kMemoryLink, kTcpLink};

// One direction of what a rank exchanges in one step.
struct Traffic {
  int messages[kKinds] = {};
  double byte_seconds[kKinds] = {};

  double seconds() const {
    double sum = 0;
    for (int kind = 0; kind < kKinds; ++kind)
      sum += messages[kind] * kLinks[kind].message_s + byte_seconds[kind];
    return sum;
  }
};

// What one rank does in one step.
struct StepLoad {
  Traffic in;
  Traffic out;
  double local_seconds = 0;   // folds and copies
  bool has_long_tcp = false;  // a long message came in over tcp

  double latency() const {
    double longest = 0;
    for (int kind = 0; kind < kKinds; ++kind)
      if (in.messages[kind] + out.messages[kind] > 0)
        longest = std::max(longest, kLinks[kind].latency_s);
    return longest;
  }
  double seconds() const {
    const double collisions = has_long_tcp && in.messages[kTcp] > 1 ? kIncast : 1;
    return latency() + std::max(in.seconds() * collisions, out.seconds()) + local_seconds;
  }
};

// What all ranks of one host together have on its wire in one step.
struct Wire {
  double in = 0;
  double out = 0;
};

struct Walked {
  int rank;
  double weight;  // how many ranks of its host it stands for
};

class Walk {
 public:
  explicit Walk(const Situation& situation)
      : situation_(situation),
        total_(static_cast<double>(situation.uneven && situation.bytes == 0 ? kUnknownBytes
                                                                            : situation.bytes)) {}

  void add(const Program& program, double weight) {
    chunk_bytes_ = chunk_bytes(program);
    loads_.clear();
    for (const Op& op : program.ops) add(op, program.rank);
    const std::size_t steps = std::max(steps_.size(), loads_.size());
    steps_.resize(steps);
    wires_.resize(steps);
    for (std::size_t step = 0; step < loads_.size(); ++step) {
      steps_[step] = std::max(steps_[step], loads_[step].seconds());
      wires_[step].in += weight * loads_[step].in.byte_seconds[kTcp];
      wires_[step].out += weight * loads_[step].out.byte_seconds[kTcp];
    }
  }

  // All walked ranks of one host were added.
  void end_host() {
    for (std::size_t step = 0; step < steps_.size(); ++step) {
      const double wire = std::max(wires_[step].in, wires_[step].out);
      if (wire > 0) steps_[step] = std::max(steps_[step], kTcpLink.latency_s + wire);
    }
    wires_.assign(steps_.size(), {});
  }

  // Where not everybody was walked, a step in which nobody did anything is somebody else's turn,
  // and takes as long as the others on average; but builders leave a number or two unused as well.
  double seconds() const {
    const auto idle = static_cast<std::size_t>(std::count(steps_.begin(), steps_.end(), 0.0));
    const double sum = std::accumulate(steps_.begin(), steps_.end(), 0.0);
    const bool are_turns = situation_.ranks > kWholeRanks && idle > kUnusedSteps;
    if (!are_turns || idle == steps_.size()) return sum;
    return sum / static_cast<double>(steps_.size() - idle) * static_cast<double>(steps_.size());
  }

 private:
  double chunk_bytes(const Program& program) const {
    switch (program.collective) {
      case Collective::barrier: return 0;
      case Collective::gather: case Collective::all_gather: case Collective::scatter:
      case Collective::reduce_scatter: case Collective::all_to_all:
        return total_ / (static_cast<double>(program.cut) * program.size);
      case Collective::broadcast: case Collective::reduce: case Collective::all_reduce:
      case Collective::scan: case Collective::exclusive_scan: return total_ / program.cut;
    }
    return 0;
  }

  Kind kind(int a, int b) const {
    const auto& host_of = situation_.host_of;
    return host_of.empty() || host_of[a] == host_of[b] ? kMemory : kTcp;
  }

  StepLoad& load(std::uint32_t step) {
    if (loads_.size() <= step) loads_.resize(step + 1);
    return loads_[step];
  }

  double link_seconds(Kind kind, double bytes) const {
    return bytes * kLinks[kind].bytes.seconds_per_byte(total_);
  }

  void add_in(StepLoad& load, Kind kind, double bytes) {
    ++load.in.messages[kind];
    load.in.byte_seconds[kind] += link_seconds(kind, bytes);
    if (kind == kTcp && bytes >= kLongMessageBytes) load.has_long_tcp = true;
  }

  // Over memory the receivers do the reading, all at once; over tcp the sender pays for each.
  void add_out(StepLoad& load, Kind kind, double bytes) {
    ++load.out.messages[kind];
    double& seconds = load.out.byte_seconds[kind];
    seconds = kind == kTcp ? seconds + link_seconds(kind, bytes)
                           : std::max(seconds, link_seconds(kind, bytes));
  }

  void add(const Op& op, int rank) {
    StepLoad& now = load(op.step);
    switch (op.kind) {
      case OpKind::send: case OpKind::put:
        return add_out(now, kind(rank, op.peer), op.src.count * chunk_bytes_);
      case OpKind::recv: {
        // What is received only to be folded is read over a memory link by the fold itself.
        const Kind link = kind(rank, op.peer);
        const bool folded_in_place = link == kMemory && op.dst.space == schedule::Space::scratch &&
                                     has_reduction(situation_.collective);
        return add_in(now, link, folded_in_place ? 0 : op.dst.count * chunk_bytes_);
      }
      case OpKind::copy:
        now.local_seconds += op.dst.count * chunk_bytes_ * kCopy.seconds_per_byte(total_);
        return;
      case OpKind::reduce: return add_fold(now, op, rank);
    }
  }

  void add_fold(StepLoad& now, const Op& op, int rank) {
    const double bytes = op.dst.count * chunk_bytes_;
    for (const auto& source : op.sources)
      if (source.peer != schedule::kLocal) add_in(now, kind(rank, source.peer), 0);
    // Folding one operand is a copy.
    const double folds = std::max<double>(1, static_cast<double>(op.sources.size()) - 1);
    now.local_seconds += folds * bytes * kFold.seconds_per_byte(total_);
  }

  const Situation& situation_;
  double total_;
  double chunk_bytes_ = 0;
  std::vector<StepLoad> loads_;  // of the rank being walked, by step
  std::vector<double> steps_;    // the slowest rank's seconds, by step
  std::vector<Wire> wires_;      // of the host being walked, by step
};

std::vector<std::vector<int>> hosts_in(const Situation& situation) {
  if (!situation.host_of.empty()) return topology::ranks_by_host(situation.host_of);
  std::vector<int> all(static_cast<std::size_t>(situation.ranks));
  std::iota(all.begin(), all.end(), 0);
  return {all};
}

std::vector<Walked> everyone(const std::vector<int>& ranks) {
  std::vector<Walked> walked;
  for (const int rank : ranks) walked.push_back({rank, 1});
  return walked;
}

// The ranks of one host that stand for all of them: a leader has work of its own in some schedules.
std::vector<Walked> stand_ins(const std::vector<int>& ranks) {
  if (ranks.size() <= 4) return everyone(ranks);
  const double share = (static_cast<double>(ranks.size()) - 1) / 3;
  const int middle = ranks[ranks.size() / 2];
  return {{ranks[0], 1}, {ranks[1], share}, {middle, share}, {ranks.back(), share}};
}

// By host: all of them, or the first, the middle and the last.
std::vector<std::vector<Walked>> ranks_to_walk(const Situation& situation) {
  const auto hosts = hosts_in(situation);
  std::vector<std::vector<Walked>> walked;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    const bool stands_out = host == 0 || host == hosts.size() / 2 || host == hosts.size() - 1;
    if (situation.ranks <= kWholeRanks)
      walked.push_back(everyone(hosts[host]));
    else if (stands_out)
      walked.push_back(stand_ins(hosts[host]));
  }
  return walked;
}

}  // namespace

schedule::Request request_of(const Situation& situation, int rank, int shots) {
  schedule::Request request;
  request.collective = situation.collective;
  request.size = situation.ranks;
  request.rank = rank;
  request.shots = shots;
  request.host_of = situation.host_of;
  return request;
}

Nanoseconds estimate(const schedule::Entry& entry, const Situation& situation, int shots) {
  Walk walk(situation);
  for (const auto& host : ranks_to_walk(situation)) {
    for (const Walked& walked : host)
      walk.add(entry.build(request_of(situation, walked.rank, shots)), walked.weight);
    walk.end_host();
  }
  return Nanoseconds(static_cast<Nanoseconds::rep>(std::llround(walk.seconds() * 1e9)));
}

}  // namespace tutti::tuner
