// cost/site.hpp - what schedules are played on: where ranks sit, what links them, and what their
// cores are good for. A measured machine (tuner/machine.hpp) and a described cluster
// (plan/cluster.hpp) both become one.
//
//   rank's way out ─ host's way out ─ leaf's uplink ─ (spine) ─ downlink ─ host's way in ─ way in
//                    └ torus: the links of the hosts that it passes, first along the row ┘
//
// Seats are numbered from 0; a rank of a group sits on one. Switches that fold are seats beyond the
// last: half a latency away, and never in the way.
//
// Thread-safety  a value; const methods may run at once.
#pragma once

#include <vector>

#include "cost/curve.hpp"

namespace tutti::cost {

inline constexpr double kSegmentBytes = 128 << 10;  // what Config::segment_bytes is by default

// What a message between two seats costs.
struct MessageCost {
  double latency_s = 0;       // until a short one is there, handled at both ends
  double overhead_s = 0;      // of a core at either end, for every piece of it
  double send_byte_s = 0;     // of the sender's core, for every byte
  double receive_byte_s = 0;  // of the receiver's
  bool folds_read = false;    // what is received only to be folded is read where it lies
  // What its bytes take of the rank's own way out, and of the receiver's way in. Empty: there is no
  // wire, the cores' copies are all there is.
  Curve way;
  double piece_s = 0;                    // of the way out, for every piece of it
  double segment_bytes = kSegmentBytes;  // of a piece
};

struct Site {
  std::vector<int> host_of;     // of each seat; dense
  std::vector<int> leaf_of;     // the switch of each host, dense; empty: uplinks are never short
  int cores = 0;                // of a machine; 0: a core for every seat
  std::vector<int> machine_of;  // of each seat, dense; empty where every seat has its core
  bool torus = false;           // hosts are a grid as square as can be; latency counts per hop

  MessageCost within;   // a host
  MessageCost between;  // hosts
  // Seconds that a message takes of the shared ways for each second on its rank's own: of all ranks
  // of a host together, and of the uplinks of a leaf. 0: those are never short.
  double host_way = 0;
  double leaf_way = 0;
  // Long messages that reach a rank in one step from several hosts take so much longer to come in.
  double incast = 1;
  double incast_bytes = 0;

  double segment_bytes = kSegmentBytes;  // after which copies and folds hand on what they have

  double copy_byte_s = 0;  // of a core
  double fold_byte_s = 0;  // a += b, by the bytes of b
  double meet_s = 0;       // until those who meet have seen each other

  int seats() const { return static_cast<int>(host_of.size()); }
  bool is_switch(int seat) const { return seat >= seats(); }
  int host(int seat) const { return host_of[static_cast<std::size_t>(seat)]; }
  int hosts() const;
  int leaf(int host) const { return leaf_of.empty() ? 0 : leaf_of[static_cast<std::size_t>(host)]; }
  bool are_together(int a, int b) const {
    return !is_switch(a) && !is_switch(b) && host(a) == host(b);
  }
  bool climbs(int a, int b) const { return !leaf_of.empty() && leaf(host(a)) != leaf(host(b)); }
  const MessageCost& message(int a, int b) const { return are_together(a, b) ? within : between; }
  // Whether some machine has more ranks than cores.
  bool is_crowded() const;
};

// Numbers as they appear: 7 7 3 7 becomes 0 0 1 0.
std::vector<int> dense(const std::vector<int>& names);

}  // namespace tutti::cost
