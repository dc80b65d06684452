// cost/network.hpp - the cores and wires of a site in virtual time: until when each is taken.
//
// A message goes through all ways between its two ends at once (cut-through) and takes each for its
// bytes; where one is taken it queues up there, in the order in which messages begin. Ranks of a
// machine that outnumber its cores take turns on them.
//
// By symmetry many seats may stand for one: then they have one core and one way together, and take
// it for one.
#pragma once

#include <vector>

#include "cost/site.hpp"

namespace tutti::cost {

// The first piece of something is through, and the last one.
struct Flow {
  double first = 0;
  double last = 0;
};

// Who stands for whom: seats, hosts, leaf switches and machines by number.
struct Standing {
  std::vector<int> seat;
  std::vector<int> host;
  std::vector<int> leaf;
  std::vector<int> machine;

  static Standing everybody(const Site& site);
};

class Network {
 public:
  // Both are lent.
  Network(const Site& site, const Standing& standing);

  // When a core began. It works in small pieces and looks after its messages in between, so handling
  // one waits for other messages alone; whatever takes long waits for everything before it.
  struct CoreTime {
    double handling = 0;
    double working = 0;
  };
  // Takes a seat's core to handle a message for `handling` seconds and work for `working` seconds,
  // not before `from`. Switches have cores enough.
  CoreTime take_core(int seat, double from, double handling, double working);

  struct Message {
    int from = 0;
    int to = 0;
    double bytes = 0;
    double pieces = 1;
    bool collides = false;      // with others on its way in
    double latency_factor = 1;  // jitter
  };
  // Takes the ways of a message whose pieces leave the core at `begin`: when it has left, and the
  // sender may overwrite it.
  Flow pass(const Message& message, Flow begin);
  // From there until it has arrived; the receiver still has to handle it.
  double flight_s(const Message& message) const;

 private:
  enum Direction { kEast, kWest, kSouth, kNorth, kDirections };
  struct Ways {
    double out = 0;
    double in = 0;
  };
  // A message on its way.
  struct Passage {
    Flow begin;
    Flow end;
    double pieces;

    void take(double& until, double seconds);
  };

  Ways& of_seat(std::vector<Ways>& ways, int seat) {
    return ways[static_cast<std::size_t>(standing_.seat[static_cast<std::size_t>(seat)])];
  }
  void pass_between(const Message& message, double seconds, Passage& passage);
  void pass_torus(int from_host, int to_host, double seconds, Passage& passage);
  int hops(int from_host, int to_host) const;

  const Site& site_;
  const Standing& standing_;
  int rows_ = 1;
  int columns_ = 1;
  std::vector<CoreTime> cores_;             // of seats: taken until then
  std::vector<std::vector<double>> pools_;  // of machines, where ranks outnumber cores
  std::vector<Ways> near_;                  // of seats, inside their host
  std::vector<Ways> far_;                   // of seats, to other hosts
  std::vector<Ways> hosts_;                 // shared ones
  std::vector<Ways> leaves_;
  std::vector<double> links_;  // torus: by host and direction
};

}  // namespace tutti::cost
