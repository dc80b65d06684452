// tests/simulation/late_memory.hpp - host memory whose flags are seen late.
//
// A rank's lines and mark fill the first page of its part. Every reader has that page as it was some
// time ago, and everything behind it as it is now: a publication may reach one rank long after
// another, and a slot that is overwritten too early is overwritten for everybody.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

#include "engine/engine.hpp"
#include "engine/host_memory.hpp"

namespace tutti::simulation {

class LateMemory {
 public:
  explicit LateMemory(int ranks);
  ~LateMemory();
  LateMemory(const LateMemory&) = delete;
  LateMemory& operator=(const LateMemory&) = delete;

  int ranks() const { return ranks_; }
  // The channel of a group of so many ranks meets here from now on.
  void meet_in(engine::Channel& channel, engine::Engine& engine,
               const schedule::HostFacts& facts) const;
  // `owner`'s part as `reader` sees it.
  engine::RankMemory* part(int owner, int reader) const {
    return views_[static_cast<std::size_t>(owner * ranks_ + reader)];
  }
  // Lets some of what others published become visible to `reader`; all of it, if `all`. True if
  // anything did.
  bool refresh(int reader, std::mt19937_64& random, bool all);

 private:
  int ranks_;
  std::vector<int> files_;                  // of each owner
  std::vector<engine::RankMemory*> views_;  // by owner, then reader
};

}  // namespace tutti::simulation
