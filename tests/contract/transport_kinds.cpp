// The transports that keep the contract.
#include <cstdlib>
#include <map>
#include <set>

#include "contract/transport_contract.hpp"
#include "support/transports/sim_network.hpp"
#include "transport/ofi/providers.hpp"

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

#ifdef TUTTI_RAW_KEYS_FOLDER
// Before libfabric looks for its providers; it sees those of the system all the same.
const bool kFindsRawKeys = ::setenv("FI_PROVIDER_PATH", TUTTI_RAW_KEYS_FOLDER, 1) == 0;
#else
const bool kFindsRawKeys = false;
#endif

// Ofi over every provider of libfabric that runs without a fabric, over two rails of one, and over one whose keys are
// no numbers.
std::vector<TransportKind> over_libfabric(const std::set<std::string>& wanted = {"tcp;ofi_rxm",
                                                                                 "udp;ofi_rxd",
                                                                                 "shm"},
                                          bool rails = true) {
  std::vector<TransportKind> kinds;
  const auto all = ofi::providers();
  if (!all.ok()) return kinds;
  const auto enrol = [&](const std::string& variant, const std::string& provider,
                         const std::vector<std::string>& domains) {
    const auto make = [=](int ranks) {
      auto made = std::make_unique<Ranks>(ranks, "ofi", [=](int, OpeningOptions& options) {
        options.config.ofi_provider = provider;
        options.config.ofi_domains = domains;
      });
      made->leave_together = true;
      return made;
    };
    kinds.push_back({"ofi", make, variant});
  };
  const std::map<std::string, std::string> variants = {
      {"tcp;ofi_rxm", "_tcp"}, {"udp;ofi_rxd", "_udp"}, {"shm", "_shm"}};
  for (const ofi::Provider& provider : *all) {
    if (wanted.count(provider.name) == 0) continue;
    enrol(variants.at(provider.name), provider.name, {});
    if (rails && provider.name == "tcp;ofi_rxm" && provider.domains.size() > 1)
      enrol("_rails", provider.name, {provider.domains[0], provider.domains[1]});
  }
  if (rails && kFindsRawKeys) enrol("_raw_keys", "raw_keys", {});
  return kinds;
}

TEST(TransportsOverLibfabric, are_asked_to_keep_the_contract) {
  if (const auto all = ofi::providers(); !all.ok()) GTEST_SKIP() << all.status().message();
  EXPECT_GE(over_libfabric().size(), 3u);
}

TEST(TransportsOverLibfabric, are_asked_about_keys_that_are_no_numbers) {
  if (!kFindsRawKeys) GTEST_SKIP() << "libfabric.so was not found when this was built";
  const auto found = ofi::providers("raw_keys");
  ASSERT_TRUE(found.ok()) << found.status().message();
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().name, "raw_keys");
}

INSTANTIATE_TEST_SUITE_P(Ofi, TransportContract, testing::ValuesIn(over_libfabric()), name_of_kind);
// Providers that tell when something has come, and those that do not.
INSTANTIATE_TEST_SUITE_P(Ofi, SleepingContract,
                         testing::ValuesIn(over_libfabric({"tcp;ofi_rxm", "udp;ofi_rxd"}, false)),
                         name_of_kind);
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
