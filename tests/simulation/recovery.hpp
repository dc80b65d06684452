// tests/simulation/recovery.hpp - ranks that go on after failures: shrink under fire, in virtual time.
//
// Ranks sum over and over. Some are killed, one is stopped for longer than the others wait, often while
// the others agree on who is left. Whoever fails shrinks its group and goes on in the new one. A run
// is over when everybody that lives, and was not shut out for having been stopped, works in one group
// with all the others, and with nobody else.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "engine/engine.hpp"
#include "group/call.hpp"
#include "simulation/delay.hpp"
#include "simulation/late_memory.hpp"
#include "simulation/simulation.hpp"
#include "support/transports/sim_network.hpp"

namespace tutti::simulation {

struct Recovered {
  std::vector<std::string> broken;  // promises; empty: all were kept
  std::string story;
  int shrinks = 0;  // groups that were left behind
  int struck_while_agreeing = 0;
  bool shut_out = false;  // the stopped rank
  std::uint64_t hash = 0;
};

class Recovery {
 public:
  Recovery(std::uint64_t seed, Links links);
  ~Recovery();
  Recovered run();

 private:
  enum class Phase : std::uint8_t { working, agreeing, shut_out, dead };
  struct Rank {
    std::shared_ptr<engine::Engine> engine;
    std::shared_ptr<engine::Channel> group;
    std::shared_ptr<engine::Channel> previous;           // until all have met in the new group
    std::vector<std::shared_ptr<engine::Channel>> left;  // groups that it keeps after they failed
    std::shared_ptr<engine::WorkState> work;
    std::vector<std::int64_t> values;
    std::uint64_t sums = 0;  // in this group
    Phase phase = Phase::working;
    Nanoseconds patience{0};
    std::uint64_t changes = 0;
    Nanoseconds stopped_until{0};
    bool was_stopped = false;
  };

  void make_ranks();
  Rank& at(int rank) { return world_[static_cast<std::size_t>(rank)]; }
  bool step_all();
  bool step(int rank);
  void work(int rank);
  void start_sum(int rank);
  void check_sum(int rank);
  void leave_previous(int rank);
  void shut_out(int rank);
  bool was_given_up(int rank);
  void agree(int rank);
  void go_on(int rank);
  void meet(int rank);
  LateMemory* memory_of(const engine::Channel* group);
  bool refresh(int rank, bool all);
  void maybe_strike();
  void kill(int rank);
  bool is_agreeing() const;
  bool advance_clock();
  bool is_over();
  bool work_together(const std::vector<int>& well);
  void complain(std::string what);

  std::mt19937_64 random_;
  Links links_;
  VirtualClock clock_;
  Config config_;
  int ranks_;
  int deaths_ = 0;
  int stops_ = 0;
  std::unique_ptr<transport::VirtualNetwork> network_;
  std::unique_ptr<Delay> delay_;
  // Of groups whose members meet in it: by id and members, for ranks that disagree have different ones.
  std::map<std::pair<std::uint32_t, std::vector<int>>, std::unique_ptr<LateMemory>> host_memory_;
  std::vector<Rank> world_;
  group::Chooser chooser_;
  Recovered outcome_;
};

}  // namespace tutti::simulation
