// plan/network.hpp - the wires of a cluster in virtual time: what a message meets on its way, and
// until when each of those is taken.
//
//   rank's way out ─ host's way out ─ switch's uplink ─ (spine) ─ downlink ─ host's way in ─ way in
//                    └ torus: the links of the hosts that it passes, first along the row ┘
//
// A message goes through all of them at once (cut-through) and takes each for its bytes; where one
// is taken it queues up there, in the order in which messages begin. Seats are ranks of the
// cluster. By symmetry many seats may stand for one: then they have one way together, and take it
// for one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/cluster.hpp"

namespace tutti::plan {

// The first piece of something is through, and the last one.
struct Flow {
  double first = 0;
  double last = 0;
};

// Takes `until` for `seconds` from when it is free, but not before `from`; returns when it began.
double take(double& until, double from, double seconds);

// Who stands for whom: seats, hosts and leaf switches by number.
struct Standing {
  std::vector<int> seat;
  std::vector<int> host;
  std::vector<int> leaf;
};

class Network {
 public:
  // Everybody for itself.
  Network(const Cluster& cluster, int seats);
  Network(const Cluster& cluster, Standing standing);

  // Switches that fold are seats beyond the others; half a latency away, and never in the way.
  int seats() const { return static_cast<int>(standing_.seat.size()); }
  int host_of(int seat) const { return seat / cluster_.ranks_per_host; }
  bool is_switch(int seat) const { return seat >= seats(); }
  // Seats this far from each other have like ways.
  std::uint32_t seats_alike() const {
    return static_cast<std::uint32_t>(cluster_.ranks_per_host *
                                      (has_uplinks_ ? cluster_.hosts_per_switch : 1));
  }
  double overhead(int from, int to) const { return wire(from, to).overhead; }
  // Until when a seat's core is taken. Switches have cores enough.
  double& core(int seat);
  // Whether two messages meet the same kinds of ways: what symmetry has to keep.
  int kind(int from, int to) const;

  struct Passage {
    Flow left;     // the sender may overwrite it
    Flow arrived;  // at the receiver, who still has to handle it
  };
  Passage send(int from, int to, double bytes, double pieces, Flow ready, double latency_factor);

 private:
  enum Direction { kEast, kWest, kSouth, kNorth, kDirections };

  const Wire& wire(int from, int to) const;
  double latency(int from, int to) const;
  void take_between(int from, int to);
  void take_torus(int from_host, int to_host);
  void pass(double& until, double bandwidth);
  int leaf_of(int host) const { return host / std::max(1, cluster_.hosts_per_switch); }

  Cluster cluster_;
  Standing standing_;
  bool has_uplinks_;
  int rows_ = 1;
  int columns_ = 1;
  struct Ways {
    double out = 0;
    double in = 0;
  };
  std::vector<double> cores_;
  double switches_core_ = 0;
  std::vector<Ways> near_;   // of seats, inside their host
  std::vector<Ways> far_;    // of seats, to other hosts
  std::vector<Ways> hosts_;  // shared ones
  std::vector<Ways> leaves_;
  std::vector<double> links_;  // torus: by host and direction

  // Of the message on its way.
  double bytes_ = 0;
  double pieces_ = 1;
  Flow begin_;
  Flow end_;
};

}  // namespace tutti::plan
