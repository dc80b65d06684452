// tuner/timeline.hpp - when each op of a schedule begins and ends, for groups that are walked
// whole.
//
//   rank 0  out ██████                 Ops begin as soon as what they read is there and what they
//   rank 1   in   ██████               need is free: a rank's core, its way in, its way out, its
//          core     ▓▓▓▓▓▓             host's wire. With k segments an op hands on its first k-th
//           out       ██████           early, and ends a k-th after the op it follows at the
//           soonest.
//   rank 2   in         ██████
//
// Steps are labels here: ops of different steps that do not depend on each other overlap. What
// depends on what is said by schedule/hazards.hpp, as for the engine.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/catalog.hpp"
#include "tuner/choose.hpp"
#include "tuner/links.hpp"
#include "tuner/machine.hpp"

namespace tutti::tuner {

// The programs of a schedule, read once; then costed for any size of segment.
class Timeline {
 public:
  Timeline(const schedule::Entry& entry, const Situation& situation, int shots,
           const Machine& machine);

  double longest_message() const { return longest_; }
  bool uses_tcp() const { return uses_tcp_; }
  double seconds(std::size_t segment_bytes, const StreamGain& streams = {}) const;

 private:
  enum class Does : std::uint8_t { sends, receives, works };
  // An op.
  struct Event {
    Does does = Does::works;
    LinkKind link = kMemory;
    bool collides = false;  // with other long messages on the way in
    int rank = 0;
    double bytes = 0;
    double seconds = 0;                 // for its bytes
    std::vector<std::uint32_t> before;  // those that wait for it
    std::uint32_t waits_for = 0;        // how many it waits for
    std::uint32_t sent_by = ~0U;        // receives: the send
  };
  struct Flow {
    double first = 0;  // the first segment is through
    double last = 0;
  };
  // Until when a resource is taken.
  struct Rank {
    double core = 0;
    double in = 0;
    double out = 0;
  };
  struct Run;

  void read(const std::vector<schedule::Program>& programs);
  static bool is_long_arrival(const Event& event);
  void lead_to(std::uint32_t earlier, std::uint32_t later);
  Event event_of(const schedule::Program& program, const schedule::Op& op) const;
  Flow send(const Event& event, Flow ready, double k, double gain, Run& run) const;
  Flow receive(const Event& event, Flow ready, Flow sent, double k, double gain, Run& run) const;
  Flow work(const Event& event, Flow ready, double k, Run& run) const;

  const Situation& situation_;
  const Machine& machine_;
  Links links_;
  std::vector<std::size_t> host_;  // of each rank
  std::vector<int> company_;       // ranks on the machine of each
  std::size_t hosts_ = 0;
  std::vector<Event> events_;
  double longest_ = 0;
  bool uses_tcp_ = false;
};

}  // namespace tutti::tuner
