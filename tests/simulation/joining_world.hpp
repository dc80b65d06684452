// tests/simulation/joining_world.hpp - ranks that join, one turn at a time in one thread, among
// intruders and over connections that break; some runs lose a rank.
//
// Doors, sockets and handshakes are real; the order of turns, the clock, and what goes wrong follow from
// a seed. (What the kernel does between two sockets does not, quite.)
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "simulation/intruder.hpp"
#include "simulation/relay_door.hpp"
#include "transport/doors.hpp"
#include "transport/joining.hpp"

namespace tutti::simulation {

struct Joined {
  std::vector<std::string> broken;  // promises; empty: all were kept
  std::string story;
  int refused = 0;  // intruders whose claims were
  int breaks = 0;   // connections of ranks
  bool died = false;
};

class JoiningWorld {
 public:
  explicit JoiningWorld(std::uint64_t seed);
  ~JoiningWorld();
  Joined run();

 private:
  enum class Phase : std::uint8_t { joining, joined, failed, dead };
  struct Rank {
    transport::Party party;
    transport::Doors doors;
    std::unique_ptr<RelayDoor> relay;  // before its tcp door
    std::unique_ptr<transport::LinkedEndpoint> endpoint;
    std::unique_ptr<transport::Joining> joining;
    Phase phase = Phase::joining;
    Status end;
    Nanoseconds told_at = Nanoseconds::max();  // when the others can know how it failed
    int intruders_refused = 0;
    std::string log_file;
  };

  void open(int rank);
  void gather(int rank);
  transport::Address address_of(int rank) const;
  bool turn_all();
  void turn(int rank);
  void maybe_intrude();
  std::optional<Intruder::Aim> aim(Intruder::Kind kind);
  bool step_intruders();
  void maybe_die();
  bool is_over() const;
  Status watch(int rank) const;
  void judge();
  void judge_deaths();
  void judge_links();
  void judge_logs();
  std::uint64_t told_refusals(const Rank& rank) const;
  void complain(std::string what) { outcome_.broken.push_back(std::move(what)); }
  Rank& at(int rank) { return *world_[static_cast<std::size_t>(rank)]; }
  const Rank& at(int rank) const { return *world_[static_cast<std::size_t>(rank)]; }

  std::mt19937_64 random_;
  VirtualClock clock_;
  Config config_;
  int ranks_;
  int victim_ = -1;  // -1: nobody dies
  int intrusions_;
  std::uint64_t dies_at_ = 0;  // after so many rounds
  std::uint64_t rounds_ = 0;
  std::uint64_t quiet_ = 0;  // rounds in which nothing moved
  std::string folder_;
  std::vector<const transport::Transport*> transports_;
  std::vector<std::unique_ptr<Rank>> world_;
  std::vector<std::unique_ptr<Intruder>> intruders_;
  Joined outcome_;
};

}  // namespace tutti::simulation
