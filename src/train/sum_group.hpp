// train/sum_group.hpp - ranks of several data groups whose gradients of some parameters are parts of one
// sum (ParameterPlace::sum). They add them up before their data groups do.
//
// All of them have the same such parameters, in buckets of their own that are alike: by name, whatever
// order of use a data group has learned. What one of them used, all have used.
//
// Thread-safety  one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tutti/group.hpp"
#include "tutti/train/parameter.hpp"

namespace tutti::train {

class SumGroup {
 public:
  // Collective on `group`; `sum` is its index. mismatch names a rank that has other such parameters, or
  // a data group of another size.
  static Result<std::unique_ptr<SumGroup>> create(Group& group,
                                                  const std::vector<Parameter>& parameters, int sum,
                                                  int data_ranks);

  // Carries the buckets.
  Group& group() const { return *group_; }
  // Those whose gradients are summed here, by name.
  const std::vector<std::size_t>& members() const { return members_; }

  // Collective: which of this rank's parameters its backward has used …
  void start_uses(const std::vector<bool>& used);
  // … and which any rank's has: those are marked, too. Waits.
  Status take_uses(std::vector<bool>& used);

 private:
  SumGroup(std::shared_ptr<Group> group, std::vector<std::size_t> members)
      : group_(std::move(group)), members_(std::move(members)) {}

  std::shared_ptr<Group> group_;
  std::vector<std::size_t> members_;
  std::vector<std::int64_t> uses_;  // by member
  Work work_;
};

// Indices of the parameters with that sum, by name.
std::vector<std::size_t> summed_parameters(const std::vector<Parameter>& parameters, int sum);

}  // namespace tutti::train
