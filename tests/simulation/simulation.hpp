// tests/simulation/simulation.hpp - the real engine, many ranks, one thread, virtual time.
//
// A scheduler with a seed steps the ranks in random order over simulated links, stalls one, kills one,
// lets one call something else. It ends when every rank's works are done; if nothing can happen any more
// before that, the run hangs, which is what must never be.
#pragma once

#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "engine/engine.hpp"
#include "group/call.hpp"
#include "simulation/delay.hpp"
#include "simulation/late_memory.hpp"
#include "simulation/script.hpp"
#include "support/transports/inproc_endpoints.hpp"
#include "support/transports/sim_network.hpp"
#include "support/transports/wire_network.hpp"

namespace tutti::simulation {

enum class Fault : std::uint8_t {
  none,
  stall,     // a rank does nothing for a while
  kill,      // a rank is gone
  freeze,    // a rank does nothing any more
  mismatch,  // a rank calls something else
  cut,       // nothing gets through between two ranks, or a connection breaks; no memory links
  one_way,   // the same, from one rank to another alone
  jump,      // the clock jumps
};
inline constexpr Fault kFaults[] = {Fault::none,     Fault::stall, Fault::kill,    Fault::freeze,
                                    Fault::mismatch, Fault::cut,   Fault::one_way, Fault::jump};
std::string to_string(Fault fault);

enum class Links : std::uint8_t {
  message,  // simulated, with latency and jitter
  memory,   // inproc's, whose publications become visible late
  host,     // those, with host memory besides, whose lines and marks do
  uneven,   // message links whose latencies differ ten-thousandfold
  wire,     // production's tcp links, over sockets with a relay between
};
inline constexpr Links kLinks[] = {Links::message, Links::memory, Links::host, Links::uneven,
                                   Links::wire};
std::string to_string(Links links);
constexpr bool are_in_memory(Links links) { return links == Links::memory || links == Links::host; }
constexpr bool can_happen(Fault fault, Links links) {
  return !are_in_memory(links) || (fault != Fault::cut && fault != Fault::one_way);
}
// The network of such links, which are not in memory.
std::unique_ptr<transport::VirtualNetwork> make_network(Links links, transport::SimOptions options,
                                                        std::size_t segment_bytes,
                                                        VirtualClock& clock);

struct Outcome {
  bool hung = false;
  int ranks = 0;
  int victim = -1;    // of a fault
  int other = -1;     // the rank from which it was cut
  int odd_group = 0;  // in which a mismatching rank called something else
  Fault fault = Fault::none;
  bool struck = false;                     // the fault happened, with work left for the victim
  std::size_t started_by_victim = 0;       // steps, when it did
  std::vector<std::string> left_too_soon;  // ends of collectives that not all had come to, in words
  bool woke_in_vain = false;               // a rank wanted to wake for a deadline that was over
  bool left_open = false;                  // groups were still given way to after their end
  std::vector<Step> script;
  std::vector<std::vector<Status>> statuses;  // per rank, per step
  std::vector<std::vector<bool>> right;
  std::string story;       // for a failing test
  std::uint64_t hash = 0;  // of everything that happened, in order
};

class Simulation {
 public:
  Simulation(std::uint64_t seed, Fault fault, Links links);
  ~Simulation();
  Outcome run();

 private:
  struct Rank {
    std::shared_ptr<engine::Engine> engine;
    std::vector<std::shared_ptr<engine::Channel>> groups;
    std::vector<Buffers> buffers;
    std::vector<std::shared_ptr<engine::WorkState>> works;
    Arena arena;  // memory that all others have mapped
    std::size_t started = 0;
    std::size_t ended = 0;    // of those started, in the order in which they did
    std::vector<bool> noted;  // which of them
    Nanoseconds stalled_until{0};
    bool dead = false;
  };
  std::vector<std::unique_ptr<transport::Endpoint>> make_endpoints();
  void make_ranks();
  void share_memory();
  void make_host_memory();
  void start_next(int rank);
  std::shared_ptr<engine::WorkState> start(int rank, std::size_t index);
  bool step_all();
  void note_ends(int rank);
  bool is_time_to_strike();
  bool finished() const;
  bool advance_clock();
  void strike();
  Outcome judge(bool hung);

  std::mt19937_64 random_;
  Fault fault_;
  Links links_;
  VirtualClock clock_;
  int ranks_;
  int victim_ = -1;
  int other_ = -1;
  std::size_t odd_step_ = 0;  // at which a mismatching rank calls something else
  // A fault strikes so many rounds after the victim has ended so many of its steps, unless it has
  // ended all by then.
  std::size_t strike_after_ = 0;
  std::size_t strike_rounds_ = 0;
  bool struck_ = false;
  std::size_t started_by_victim_ = 0;
  std::vector<std::string> left_too_soon_;
  bool woke_in_vain_ = false;
  std::vector<Step> script_;
  std::array<Urgency, 2> urgencies_{};  // of the two groups
  std::unique_ptr<transport::VirtualNetwork> network_;
  std::unique_ptr<Delay> delay_;
  std::vector<std::unique_ptr<LateMemory>> host_memory_;  // of each group
  std::vector<Rank> world_;
  group::Chooser chooser_;
  Config config_;
  std::uint64_t hash_ = 1469598103934665603ULL;
};

}  // namespace tutti::simulation
