// apps/pretrain_gpt/returns.hpp - ranks that were lost and come back while the others train.
//
// `tutti run --max-restarts` starts a lost rank again and keeps the store in which it waits. One of the
// others looks there now and then, and the next step's all_reduce tells all of them that somebody is there.
#pragma once

#include <chrono>
#include <memory>

#include "tutti/group.hpp"

namespace pretrain {

// Whether this process was started in place of a rank that the others went on without.
bool has_returned();

// The returning rank's part: waits until the others take it in, as long as any of them is left.
tutti::Result<std::shared_ptr<tutti::Group>> come_back(const tutti::GroupOptions& options);

// The others' part.
class Returns {
 public:
  // `full`: how many ranks there are when nobody is missing.
  Returns(tutti::GroupOptions options, int full) : options_(std::move(options)), full_(full) {}

  // Whether somebody waits that a group of so many ranks is to take in. Asks a few times a second at
  // most, and not at all while nobody is missing.
  bool somebody_waits(int ranks);
  // Collective: the larger group, or null where nobody came after all. The smaller one stays as it is,
  // also when it fails, which is the same on all ranks.
  tutti::Result<std::shared_ptr<tutti::Group>> take_in(tutti::Group& group);

 private:
  using Clock = std::chrono::steady_clock;
  tutti::Result<std::shared_ptr<tutti::Store>> store();

  tutti::GroupOptions options_;
  int full_;
  std::shared_ptr<tutti::Store> store_;
  Clock::time_point look_at_{};
};

}  // namespace pretrain
