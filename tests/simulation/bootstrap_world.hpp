// tests/simulation/bootstrap_world.hpp - how many ranks meet: the rounds in the store and the first links, as
// group/bootstrap.cpp has them, under a virtual clock.
//
// Real are the rounds (group/store_rounds) with a leader for each host of eight ranks, the store's table, the addresses' bytes, who is linked to whom
// (transport/overlay) and the handshakes (core/auth). What is a model is what they take: a way between two
// ranks or to the store, the server's time for a request and for each byte, a handshake's on a core.
#pragma once

#include <cstdint>
#include <string>

#include "core/clock.hpp"

namespace tutti::simulation {

struct BootstrapCosts {
  Nanoseconds way{25'000};          // from anywhere to anywhere
  Nanoseconds request{4'000};       // of a server, the store's or a leader's, one after the other
  double bytes_per_second = 1.2e9;  // out of a server
  Nanoseconds handshake{60'000};    // each side's share of one, one after the other
};

struct Bootstrapped {
  int ranks = 0;
  std::string broken;  // empty: all ranks came together, and know the same
  Nanoseconds took{0};
  struct Load {
    std::uint64_t requests = 0;  // and as many answers
    std::uint64_t bytes = 0;     // of the answers
  };
  Load store;
  Load leaders;                     // of all hosts
  std::uint64_t link_messages = 0;  // of handshakes, and of the barrier at the end
  int most_links = 0;               // of a rank
  int most_requests = 0;            // of a rank, to the store
  std::string text() const;
};

Bootstrapped simulate_bootstrap(int ranks, const BootstrapCosts& costs = {});

}  // namespace tutti::simulation
