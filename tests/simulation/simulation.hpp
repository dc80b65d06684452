// tests/simulation/simulation.hpp - the real engine, many ranks, one thread, virtual time.
//
// A scheduler with a seed steps the ranks in random order over simulated links (message links with
// latency and jitter, or inproc's memory links whose publications become visible late), stalls
// some, kills some, lets one call something else. It ends when every rank's works are done; if
// nothing can happen any more before that, the run hangs, which is what must never be.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "engine/engine.hpp"
#include "group/call.hpp"
#include "simulation/script.hpp"
#include "support/transports/inproc_endpoints.hpp"
#include "support/transports/sim_network.hpp"

namespace tutti::simulation {

enum class Fault : std::uint8_t { none, stall, kill, freeze, mismatch };
std::string to_string(Fault fault);

struct Outcome {
  bool hung = false;
  int ranks = 0;
  int victim = -1;    // of a fault
  int odd_group = 0;  // in which a mismatching rank called something else
  Fault fault = Fault::none;
  std::vector<Step> script;
  std::vector<std::vector<Status>> statuses;  // per rank, per step
  std::vector<std::vector<bool>> right;
  std::string story;       // for a failing test
  std::uint64_t hash = 0;  // of everything that happened, in order
};

class Simulation {
 public:
  Simulation(std::uint64_t seed, Fault fault, bool memory_links);
  ~Simulation();
  Outcome run();

 private:
  struct Rank {
    std::shared_ptr<engine::Engine> engine;
    std::vector<std::shared_ptr<engine::Channel>> groups;
    std::vector<Buffers> buffers;
    std::vector<std::shared_ptr<engine::WorkState>> works;
    std::size_t started = 0;
    Nanoseconds stalled_until{0};
    bool dead = false;
  };
  // Publications of memory links become visible after a random delay.
  class Delay;

  void make_ranks();
  void start_next(int rank);
  std::shared_ptr<engine::WorkState> start(int rank, std::size_t index);
  bool step_all();
  bool finished() const;
  bool advance_clock();
  void strike();
  Outcome judge(bool hung);

  std::mt19937_64 random_;
  Fault fault_;
  bool memory_links_;
  VirtualClock clock_;
  int ranks_;
  int victim_ = -1;
  std::size_t odd_step_ = 0;  // at which a mismatching rank calls something else
  Nanoseconds strike_at_ = Nanoseconds::max();
  std::vector<Step> script_;
  std::unique_ptr<transport::SimNetwork> network_;
  std::unique_ptr<Delay> delay_;
  std::vector<Rank> world_;
  group::Chooser chooser_;
  Config config_;
  std::uint64_t hash_ = 1469598103934665603ULL;
};

}  // namespace tutti::simulation
