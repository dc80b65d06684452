#include "tuner/stage.hpp"

#include <algorithm>
#include <cmath>

#include "cost/op_graph.hpp"
#include "tuner/walk.hpp"

namespace tutti::tuner {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;
using schedule::Region;

// What one rank does in one step, in bytes.
struct Bytes {
  double shown = 0;     // to be read by others
  double copied = 0;    // from others, or within the rank
  double folded = 0;    // all operands but one
  double operands = 0;  // of the longest fold
  bool has_message = false;
};

// The ranks' bytes by step. Regions that are sent to several peers are shown once.
class Reading {
 public:
  Reading(const CallFacts& facts, const Program& program)
      : facts_(facts), chunk_(cost::chunk_bytes(program, total_bytes(facts))) {
    for (const Op& op : program.ops) add(op);
  }
  const std::vector<Bytes>& steps() const { return steps_; }

 private:
  Bytes& at(std::uint32_t step) {
    if (steps_.size() <= step) steps_.resize(step + 1);
    return steps_[step];
  }

  void add(const Op& op) {
    Bytes& now = at(op.step);
    switch (op.kind) {
      case OpKind::send: show(now, op); return;
      case OpKind::recv:
        now.has_message = true;
        if (!is_only_folded(facts_, op)) now.copied += op.dst.count * chunk_;
        return;
      case OpKind::copy: now.copied += op.dst.count * chunk_; return;
      case OpKind::reduce: {
        const double bytes = op.dst.count * chunk_;
        // Folding one operand is a copy.
        if (op.sources.size() < 2)
          now.copied += bytes;
        else
          now.folded += static_cast<double>(op.sources.size() - 1) * bytes;
        now.operands = std::max(now.operands, static_cast<double>(op.sources.size()));
        return;
      }
    }
  }

  void show(Bytes& now, const Op& op) {
    now.has_message = true;
    if (op.step != showing_step_) shown_.clear();
    showing_step_ = op.step;
    if (std::find(shown_.begin(), shown_.end(), op.src) != shown_.end()) return;
    shown_.push_back(op.src);
    now.shown += op.src.count * chunk_;
  }

  const CallFacts& facts_;
  double chunk_;
  std::vector<Bytes> steps_;
  std::uint32_t showing_step_ = 0;
  std::vector<Region> shown_;
};

// The slowest rank's time, and that of all ranks of the host together.
struct Load {
  double slowest = 0;
  double sum = 0;

  void add(double seconds, double weight) {
    slowest = std::max(slowest, seconds);
    sum += weight * seconds;
  }
  double seconds(const Machine& machine) const {
    return machine.cores > 0 ? std::max(slowest, sum / machine.cores) : slowest;
  }
};

class Stage {
 public:
  Stage(const CallFacts& facts, const Machine& machine)
      : facts_(facts),
        machine_(machine),
        total_(total_bytes(facts)),
        meet_(machine.meet_seconds(facts.ranks)) {}

  void add(const Program& program, double weight) {
    ranks_.push_back({Reading(facts_, program).steps(), weight});
    const auto& steps = ranks_.back().steps;
    double shown = 0;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      shown += steps[step].shown;
      if (steps[step].has_message) meetings_ = std::max(meetings_, step + 1);
    }
    shown_ = std::max(shown_, shown);
  }

  double seconds() const {
    if (meetings_ == 0) return alone();
    if (shown_ <= kTinyBytes) return tiny();
    const double windows = shown_ <= kSmallBytes ? small() : large();
    return facts_.symmetric ? std::min(windows, symmetric()) : windows;
  }

 private:
  struct Rank {
    std::vector<Bytes> steps;
    double weight;
  };

  // Copies and folds cost what they cost in a private cache, and more where the call's bytes come
  // from memory or go there; `whole` says how many there are. Of that extra a copy has two parts, a
  // read and a write; a fold of two has three, and one of k operands k + 1.
  struct Cost {
    double near = 0;
    double extra = 0;
  };
  static Cost cost(const Curve& curve, double bytes, double whole) {
    const double near = curve.share(bytes, std::min(whole, kNearBytes));
    return {near, std::max(0.0, curve.share(bytes, whole) - near)};
  }
  static double crossing(double bytes, double seconds) {
    const double first = std::min(bytes, kCrossingBytes);
    return (first + (bytes - first) * kPrefetched) * seconds;
  }
  static double crossing(const Bytes& bytes) {
    return crossing(bytes.shown, kShowSeconds) +
           crossing(bytes.copied + bytes.folded, kTakeSeconds);
  }
  double copy(double bytes) const { return machine_.copy.share(bytes, total_); }
  double work(const Bytes& bytes) const {
    return copy(bytes.copied) + machine_.fold.share(bytes.folded, total_);
  }
  // Through the windows, which stay in the cache: only one side of a copy, and only the rank's own
  // operand and the result of a fold, are elsewhere.
  double windowed(const Bytes& bytes) const {
    const Cost copies = cost(machine_.copy, bytes.shown + bytes.copied, total_);
    const Cost folds = cost(machine_.fold, bytes.folded, total_);
    const double own = bytes.operands > 1 ? 1 / (bytes.operands - 1) : 0;
    return copies.near + copies.extra / 2 + folds.near + own * folds.extra * 2 / 3 +
           crossing(bytes);
  }
  // In place on symmetric memory a rank touches half of what a copy of as much would. A result that
  // was folded just before is still in the cache when it is put elsewhere.
  double direct(const Bytes& bytes) const {
    const Cost copies = cost(machine_.copy, bytes.copied, total_ / 2);
    const Cost folds = cost(machine_.fold, bytes.folded, total_ / 2);
    const double operands =
        bytes.operands > 1 ? (bytes.operands + 1) / (3 * (bytes.operands - 1)) : 0;
    const double sides = has_reduction(facts_.collective) ? 0.5 : 1;
    return copies.near + sides * copies.extra + folds.near + operands * folds.extra;
  }

  template <class Cost>
  double step_seconds(std::size_t step, Cost cost) const {
    Load load;
    for (const Rank& rank : ranks_)
      if (step < rank.steps.size()) load.add(cost(rank.steps[step]), rank.weight);
    return load.seconds(machine_);
  }

  template <class Cost>
  double whole_seconds(Cost cost) const {
    Load load;
    for (const Rank& rank : ranks_) {
      double sum = 0;
      for (const Bytes& bytes : rank.steps) sum += cost(bytes);
      load.add(sum, rank.weight);
    }
    return load.seconds(machine_);
  }

  double alone() const {
    return whole_seconds([&](const Bytes& bytes) { return work(bytes); });
  }

  double tiny() const { return static_cast<double>(meetings_) * meet_ + alone(); }

  double small() const {
    double sum = static_cast<double>(meetings_) * meet_;
    for (std::size_t step = 0; step < meetings_; ++step) {
      sum += step_seconds(step, [&](const Bytes& bytes) {
        return copy(bytes.shown) + crossing(bytes.shown, kShowSeconds);
      });
      sum += step_seconds(step, [&](const Bytes& bytes) {
        return work(bytes) + crossing(bytes.copied + bytes.folded, kTakeSeconds);
      });
    }
    return sum;
  }

  double large() const {
    const double busy = whole_seconds([&](const Bytes& bytes) { return windowed(bytes); });
    const double pieces = std::ceil(shown_ / kPieceBytes);
    const double waits = pieces * static_cast<double>(meetings_ + 1);
    const double first_piece = machine_.copy.seconds(std::min(shown_, kPieceBytes));
    return meet_ + first_piece + busy + waits * meet_;
  }

  double symmetric() const {
    return 2 * meet_ + whole_seconds([&](const Bytes& bytes) { return direct(bytes); });
  }

  const CallFacts& facts_;
  const Machine& machine_;
  double total_;
  double meet_;
  std::vector<Rank> ranks_;
  std::size_t meetings_ = 0;  // steps in which anybody says anything
  double shown_ = 0;          // by the rank that shows most
};

}  // namespace

double stage_seconds(const schedule::Entry& entry, const CallFacts& facts, int shots,
                     const Machine& machine) {
  Stage stage(facts, machine);
  for (const auto& host : ranks_to_walk(facts))
    for (const Walked& walked : host)
      stage.add(entry.build(request_of(facts, walked.rank, shots)), walked.weight);
  return stage.seconds() + (facts.ranks > 1 ? kCallSeconds : 0);
}

}  // namespace tutti::tuner
