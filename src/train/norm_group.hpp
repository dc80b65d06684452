// train/norm_group.hpp - what the data groups of one model agree on before they update.
//
// Where a model is cut over ranks (tensor, pipeline parallelism), each data group trains a part of
// it. The norm that clips is that of the whole model's gradient; what is wrong in one part skips
// the step in all of them.
//
//      data groups {0 2} and {1 3}        everyone {0 1 2 3}
//
// Each data group counts once: its lowest rank among everyone speaks for it. Tokens must agree: every
// part sees the same batch.
#pragma once

#include <memory>
#include <vector>

#include "train/exact_sum.hpp"
#include "tutti/group.hpp"
#include "tutti/train/data_parallel.hpp"

namespace tutti::train {

class NormGroup {
 public:
  // Collective on both groups. Null when everyone is this data group: then there is nothing to add.
  // invalid_argument: not all ranks of some data group are among everyone. `part`: Groups::part.
  static Result<std::unique_ptr<NormGroup>> create(Group& data, Group& everyone,
                                                   const std::string& part);

  Group& group() const { return *group_; }
  // Collective: what this rank's data group has agreed on. The memory is this object's.
  Work start(const ExactSum& norm, std::int64_t tokens, bool has_faults, bool stop);
  std::size_t bytes() const noexcept { return words_.size() * sizeof(std::int64_t); }

  // ---- once the work is done
  double norm_squared() const;
  // Some rank of some data group wants to end with this step.
  bool stop() const { return words_.back() > 0; }
  // mismatch names two data groups.
  Status check_tokens() const;
  // The faults of all data groups, the same list on every rank. Collective where there are any.
  Result<std::vector<Fault>> faults(const std::vector<Fault>& mine);

 private:
  NormGroup(std::shared_ptr<Group> group, const std::vector<std::uint64_t>& keys,
            std::vector<std::string> parts);
  std::string name_of(std::size_t data_group) const;

  std::shared_ptr<Group> group_;
  std::vector<int> speakers_;       // the lowest rank of each data group
  std::vector<std::string> parts_;  // what each of them is called, by rank; perhaps nothing
  std::size_t mine_ = 0;            // this rank's data group
  // [ norm limbs | tokens of each data group | whether it has faults | how many want to stop ]
  std::vector<std::int64_t> words_;
};

}  // namespace tutti::train
