// mesh/step_run.hpp - one step of a redistribution on one rank: packs what peers want, exchanges it, puts
// what came where it belongs. Parts that lie in one piece, in the order of ranks, are neither packed nor
// unpacked.
//
// On a GPU nothing can be packed here: a step runs there if `copies_nothing`.
#pragma once

#include <memory>
#include <vector>

#include "mesh/arrangement.hpp"
#include "mesh/step_maker.hpp"
#include "tutti/mesh.hpp"

namespace tutti::mesh {

// What one rank is to do.
struct StepTask {
  const RedistributionStep& step;
  const TensorLayout& before;
  int position = 0;  // of this rank in the mesh
  ReduceOp op = ReduceOp::sum;
};

// Parts of a box, one for each member, in memory of their own or as they lie in the box.
class PartList {
 public:
  PartList(const TensorBox& box, std::vector<TensorBox> parts);

  // Elements of each; whether these are equal is for the caller to say of all ranks.
  const std::vector<std::size_t>& counts() const { return counts_; }
  bool lies_in_order() const { return in_order_; }
  // Null: there is not exactly one.
  const TensorBox* only() const { return parts_.size() == 1 ? &parts_[0] : nullptr; }
  std::size_t count() const;  // of all
  // Between the box and memory that holds the parts one after another.
  void pack(const std::byte* box, std::byte* parts, std::size_t element_bytes) const;
  void unpack(const std::byte* parts, std::byte* box, std::size_t element_bytes) const;

 private:
  const TensorBox box_;
  const std::vector<TensorBox> parts_;
  std::vector<std::size_t> counts_;
  bool in_order_ = true;
};

// Whether every rank of the mesh can do the step without copying a part.
bool copies_nothing(const RedistributionStep& step, const TensorLayout& before);

// `along`: the group along the step's axes; null where each rank works alone. `input` and `output` are
// this rank's boxes.
Status run_collective(const StepTask& task, Group& along, ConstBuffer input, Buffer output);
// `mesh`: the group of all positions, `rank_at` its rank at each; `hosts` by position.
Status run_transfer(const StepTask& task, Group& mesh, const std::vector<int>& rank_at,
                    const std::vector<int>& hosts, ConstBuffer input, Buffer output);
// slice and make_partial.
void run_alone(const StepTask& task, ConstBuffer input, Buffer output);

}  // namespace tutti::mesh
