// tool/bench/meeting.hpp - where the ranks of a benchmark wait for each other and compare times.
//
// On one host: bench/protocol.hpp's Meeting in memory that rank 0 made and everybody mapped (an
// anonymous file, reached through /proc; it leaves no name behind). The library under test is
// used once, to tell the others where. Across hosts there is no such memory: then the group itself
// synchronises, outside of what is timed, and the times are gathered by it after the loop.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "bench/protocol.hpp"
#include "tutti/group.hpp"

namespace tutti::tool {

class BenchMeeting {
 public:
  // Collective.
  static Result<std::unique_ptr<BenchMeeting>> create(Group& group);
  ~BenchMeeting();
  BenchMeeting(const BenchMeeting&) = delete;

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  bool shared() const { return shared_.has_value(); }
  bool crowded() const { return crowded_; }  // more ranks than cores

  void sync();
  void sync_asleep();
  // Only where shared(); elsewhere the group's barrier.
  void exchange_flags();
  std::vector<double> largest(const std::vector<double>& mine);
  double largest(double mine) { return largest(std::vector<double>{mine}).front(); }
  double sum(double mine);

  // The first failure of the group while it synchronised.
  const Status& health() const { return health_; }

 private:
  explicit BenchMeeting(Group& group) : group_(group) {}
  Status open_shared();
  void note(const Status& status) {
    if (health_.ok()) health_ = status;
  }

  Group& group_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::optional<bench::Meeting> shared_;
  bool crowded_ = false;
  Status health_;
};

}  // namespace tutti::tool
