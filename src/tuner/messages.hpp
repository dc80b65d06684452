// tuner/messages.hpp - what a schedule costs when its sends are messages on links, in large groups.
//
//   step   0    1    2        Each rank's ops are added up by step. With one segment per message
//   the rank 0 ███  ██   █        steps follow one another, each as long as its slowest rank: the
//   sum of rank 1 ██   ███  ██       the longest bars. With k segments only the first segment
//   passes through sum    ███  ███  ██       every step so (the fill of the pipeline); the rest of
//   each step,
//                             1 - 1/k of it, overlaps with the others, and what is left to wait for
//   is whatever is busiest: a rank's way in or out of the network, its core, or its host's wire.
//
// Every segment costs its core a message, so more of them are not always better.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/catalog.hpp"
#include "tuner/choose.hpp"
#include "tuner/links.hpp"
#include "tuner/machine.hpp"

namespace tutti::tuner {

// One direction of what a rank exchanges in one step.
struct Traffic {
  int messages[kKinds] = {};
  double bytes_s[kKinds] = {};  // seconds for the bytes alone
};

// What one rank does in one step.
struct StepLoad {
  Traffic in;
  Traffic out;
  double local_s = 0;  // folds and copies
  double core_s = 0;   // of the core, for bytes that are on their way
  double largest = 0;  // bytes of its longest message
  bool has_long_tcp = false;

  bool idle() const;
};

// The programs of a schedule, read once; then costed for any size of segment.
class Messages {
 public:
  Messages(const schedule::Entry& entry, const Situation& situation, int shots,
           const Machine& machine);

  double longest_message() const;
  bool uses_tcp() const { return uses_tcp_; }
  double seconds(std::size_t segment_bytes, const StreamGain& streams = {}) const;

 private:
  struct Rank {
    std::size_t host;
    double weight;
    int company;      // ranks on its machine
    double crowding;  // of that
    std::vector<StepLoad> steps;
  };
  // A step of one rank, cut into k segments: seconds.
  struct StepCost {
    double in = 0;  // its way in: the network, and handling what comes
    double out = 0;
    double core = 0;      // folds, copies and what moves through shared memory
    double handling = 0;  // of tcp messages, by the core
    double wire_in = 0;   // the network alone, which ranks of a host share
    double wire_out = 0;
    double segments = 1;
  };
  struct Wire {
    double in = 0;
    double out = 0;
  };

  void read(const schedule::Program& program, Rank& rank);
  void read(const schedule::Op& op, int self, StepLoad& load);
  void read_fold(const schedule::Op& op, int self, StepLoad& load);
  void add_in(StepLoad& load, LinkKind kind, double bytes);
  void add_out(StepLoad& load, LinkKind kind, double bytes);
  StepCost cost(const StepLoad& load, double crowding, std::size_t segment_bytes,
                const StreamGain& streams) const;
  double latency(const StepLoad& load, int company) const;
  double sum_of_turns(const std::vector<double>& steps) const;

  const Situation& situation_;
  const Machine& machine_;
  Links links_;
  double chunk_ = 0;
  bool uses_tcp_ = false;
  std::size_t steps_ = 0;
  std::size_t hosts_ = 0;
  std::vector<Rank> ranks_;
};

}  // namespace tutti::tuner
