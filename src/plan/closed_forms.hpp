// plan/closed_forms.hpp - the textbooks' formulas of collective algorithms, for two kinds of wire.
//
// p ranks, g to a host on H hosts; α, o, 1/β of each wire; γ to fold a byte. Where all ranks are on
// one kind of wire these are the formulas of docs/algorithms/simulator.md, and the simulation gives
// the same; on two kinds each step counts the wire that it goes over, and what ranks of a host
// share.
#pragma once

#include <optional>

#include "plan/cost.hpp"

namespace tutti::plan {

class ClosedForms {
 public:
  ClosedForms(const Cluster& cluster, const Placement& placement);

  std::optional<CollectiveCost> of(Collective collective, Algorithm algorithm, double bytes) const;
  // all_gather and reduce_scatter inside hosts and, on every rank's own way out, between them: what
  // libraries do on machines with a way out per rank. The catalog has it for all_reduce alone.
  std::optional<CollectiveCost> by_rails(Collective collective, double bytes) const;
  // Switches that fold: one way up and one way down for what is left after folding inside hosts.
  CollectiveCost in_network(double bytes) const;
  double lower_bound(Collective collective, double bytes) const;
  double send(int distance, double bytes) const;

 private:
  // One way of a message: its wire, and the bandwidth that is left on it.
  struct Way {
    double latency, overhead, bandwidth;
    double message(double bytes) const { return latency + bytes / bandwidth; }
    // Between two messages of one rank.
    double gap(double bytes) const;
  };
  struct Sum {
    double seconds = 0;
    double bytes = 0;  // sent by the busiest rank
    int steps = 0;

    Sum operator+(const Sum& other) const;
  };
  using Maybe = std::optional<Sum>;

  bool stays_inside(int distance, bool in_pairs) const;
  Way way(int distance, bool in_pairs) const;
  const Way& farthest() const { return hosts_ > 1 ? far_ : near_; }
  double fold(double bytes) const { return bytes * fold_s_; }

  // Pieces that algorithms are made of. `folds`: what arrives is folded.
  // Everybody with its partner, whose rank differs in one bit (in_pairs), or is that much higher.
  Sum exchange(int distance, double bytes, bool folds, bool in_pairs = true) const;
  Sum fan(int peers, double bytes) const;           // one rank with many others
  Sum everyone(double bytes, double folded) const;  // each pair at once
  Sum line(int steps, double bytes, bool folds) const;
  Sum round(int ranks, double bytes, bool folds) const;  // once round a ring of them
  Sum pairs(double bytes) const;                         // p-1 perfect exchanges
  Sum doubling(int ranks, double first, double factor, bool folds, bool in_pairs = true) const;
  Sum tree(int ranks, int spacing, double bytes, bool folds) const;  // binomial, whole messages
  Sum chain(double bytes, bool folds) const;
  Sum double_tree(double bytes, int ways, bool folds) const;
  Sum rails(double bytes, int ways, bool folds) const;  // inside hosts, and by every rank between

  Maybe broadcast(Algorithm algorithm, double bytes, bool folds) const;
  Maybe all_reduce(Algorithm algorithm, double bytes) const;
  Maybe scatter(Algorithm algorithm, double bytes) const;
  Maybe gather(Algorithm algorithm, double bytes) const;
  Maybe all_gather(Algorithm algorithm, double bytes) const;
  Maybe reduce_scatter(Algorithm algorithm, double bytes) const;
  Maybe all_to_all(Algorithm algorithm, double bytes) const;
  Maybe barrier(Algorithm algorithm) const;
  Maybe scan(Algorithm algorithm, double bytes) const;
  Maybe of_collective(Collective collective, Algorithm algorithm, double bytes) const;

  int ranks_;
  int per_host_;
  int hosts_;
  bool even_;       // every host has as many
  int leaf_hosts_;  // under one switch; 0: no oversubscription
  Way near_{};
  Way far_{};           // one rank of a host sends
  Way crowd_{};         // all of them do
  Way beyond_{};        // and further than their switch
  double way_out_ = 0;  // of a rank, while its whole host sends
  double fold_s_ = 0;
  bool switches_fold_ = false;
};

}  // namespace tutti::plan
