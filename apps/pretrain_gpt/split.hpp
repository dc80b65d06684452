// apps/pretrain_gpt/split.hpp - who has what of the model: the axes that ranks are laid out on, and this rank's
// place on each.
//
//   tp   ranks that share each layer         cp   ranks that share each sequence
//   pp   stages of layers                    dp   copies of all that, each with its own sequences
//
// tp · cp · pp · dp is the number of ranks. Parameters are the same along dp and cp: there gradients are summed and
// state is sharded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "flags.hpp"
#include "tutti/mesh.hpp"
#include "tutti/pipeline/schedule.hpp"
#include "tutti/train/data_parallel.hpp"

namespace pretrain {

struct SplitSizes {
  int dp = 1, tp = 1, pp = 1, cp = 1;
  int virtual_stages = 1;

  bool is_whole() const { return tp * pp * cp == 1; }
};
// What the flags make of so many ranks. invalid_argument names the flag that does not fit the model or them.
tutti::Result<SplitSizes> split_sizes(const Flags& flags, int ranks);
tutti::pipeline::PipelineKind pipeline_kind(const Flags& flags);

// Layers of the decoder.
struct LayerRange {
  int first = 0;
  int count = 0;
};
// Of each place of the pipeline (tutti/pipeline/schedule.hpp). Without flags that say more they are shared out
// evenly, the first places getting one more where they do not divide.
std::vector<LayerRange> layers_of_places(const Flags& flags, int places);

class Split {
 public:
  // Collective where the model is cut: a mesh, and a group along each axis.
  static tutti::Result<Split> create(std::shared_ptr<tutti::Group> group, const Flags& flags);

  const SplitSizes& sizes() const { return sizes_; }
  int dp_rank() const { return at_.dp; }
  int tp_rank() const { return at_.tp; }
  int pp_rank() const { return at_.pp; }
  int cp_rank() const { return at_.cp; }
  bool is_first_stage() const { return at_.pp == 0; }
  bool is_last_stage() const { return at_.pp == sizes_.pp - 1; }
  // Of the ranks that have the same part of a batch's loss, one tells it.
  bool tells_loss() const { return is_last_stage() && at_.tp == 0; }

  const std::shared_ptr<tutti::Group>& everyone() const { return everyone_; }
  // Null where the axis has one rank.
  const std::shared_ptr<tutti::Group>& tensor() const { return tensor_; }
  const std::shared_ptr<tutti::Group>& context() const { return context_; }
  const std::shared_ptr<tutti::Group>& pipeline() const { return pipeline_; }
  // Ends what other ranks wait for, along every axis.
  void abort(const std::string& reason) const;
  // What DataParallel is told. `sums`: kTensorSum, kEndsSum.
  tutti::train::Groups groups() const;
  // Who stands where; nothing where every rank has the whole model.
  std::string describe() const { return mesh_ ? mesh_->describe() : ""; }

  static constexpr int kTensorSum = 0;  // norms on a split sequence
  static constexpr int kEndsSum = 1;    // the embedding that first and last stage share

 private:
  tutti::Status make_groups(const Flags& flags);

  SplitSizes sizes_;
  SplitSizes at_;  // this rank's coordinates
  std::shared_ptr<tutti::Mesh> mesh_;
  std::shared_ptr<tutti::Group> everyone_, data_, tensor_, context_, pipeline_, ends_;
};

}  // namespace pretrain
