// The transports that keep the contract.
#include "contract/transport_contract.hpp"
#include "support/transports/sim_network.hpp"

namespace tutti::test {
namespace {

// Two ranks in virtual time, which moves on whenever somebody looks.
std::unique_ptr<Ranks> simulated(int ranks) {
  struct Simulation {
    VirtualClock clock;
    SimNetwork network;
    explicit Simulation(int ranks) : network({.ranks = ranks, .seed = 1}, clock) {}
  };
  auto simulation = std::make_shared<Simulation>(ranks);
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (int rank = 0; rank < ranks; ++rank) endpoints.push_back(simulation->network.endpoint(rank));
  auto made = std::make_unique<Ranks>(std::move(endpoints));
  made->before_poll = [simulation] {
    const Nanoseconds next = simulation->network.next_event();
    if (next != Nanoseconds::max()) simulation->clock.advance_to(next);
  };
  made->end = [simulation](int rank) { simulation->network.kill(rank); };
  return made;
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportContract,
                         testing::Values(forced("inproc"), forced("shm"), forced("tcp"),
                                         TransportKind{"sim", simulated}),
                         name_of_kind);
// Nobody sleeps in a simulation.
INSTANTIATE_TEST_SUITE_P(Transports, SleepingContract,
                         testing::Values(forced("inproc"), forced("shm"), forced("tcp")),
                         name_of_kind);

}  // namespace
}  // namespace tutti::test
