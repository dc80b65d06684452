// tutti/train/checkpoint.hpp - training state on disk, whatever the number of ranks and the way in which
// the model is cut over them.
//
//   DIR/iter_0000020/model-00001-of-00004.safetensors   whole tensors, shared out over the ranks, names as
//                    …                                  in the model's modules; module buffers with them
//                    model.safetensors.index.json       which is where, as other tools want it
//                    state_00000_of_00004.safetensors   rank 0's share of the optimizer's state
//                    checkpoint.json           sizes and SHA-256 of the files, tensors, step counts,
//                                              order, and what the trainer adds (data position, seed)
//   DIR/latest                                 the newest complete one; written last
//
// State is stored by tensor and range of elements, so a run saved on 4 ranks resumes on 3, 1 or 8. Where
// tensors are cut over ranks (ParameterPlace) weights are stored in boxes, in the state files, and any
// layout of the model loads what any other has saved.
// Files are written under a temporary name, synced and renamed; a folder is complete when its
// checkpoint.json is there. docs/formats/checkpoint.md.
//
// Failure        io names the file; corrupt a file that is torn, or not what it claims. A failed save
//                leaves earlier checkpoints as they were. Every rank returns the same verdict.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tutti/train/data_parallel.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

struct CheckpointInfo {
  std::int64_t iteration = 0;
  int ranks = 0;  // that wrote it
  // What the trainer wants to find again: plain words and numbers.
  std::map<std::string, std::string> extra;
  std::vector<std::string> order;  // DataParallelOptions::order_hint of the next run
  // Of a loaded one: what it lacks because an older version wrote it, in words for the user.
  std::vector<std::string> warnings;
};

// Collective among everyone of the model (DataParallel::everyone), as all that takes one. Keeps the newest `keep` checkpoints of `folder`; 0: all.
Status save_checkpoint(DataParallel& model, const std::string& folder, const CheckpointInfo& info,
                       int keep = 0);

// Saves beside training: the step is held up while this rank's share is copied, a thread writes it,
// and `latest` names it when every rank's files are whole. One at most is under way.
//
// Buffers        a copy of the share is kept for the next one, too: of the state and of the weights that a
//                rank stores.
// Failure        of writing: told by wait(), with the same verdict on every rank, though done() may
//                be true on one rank earlier than on another. Training is not disturbed.
//
//   if (auto status = writer->start(model, folder, info); !status.ok()) return status;
//   …steps…
//   if (auto status = writer->wait(); !status.ok()) return status;
class CheckpointWriter {
 public:
  // Collective: makes a copy of `group`, which must be everyone of the models or hold the same ranks.
  static Result<std::unique_ptr<CheckpointWriter>> create(Group& group);
  // Waits for what is under way.
  virtual ~CheckpointWriter() = default;
  // Collective. As save_checkpoint; waits for the one before, and returns its failure.
  virtual Status start(DataParallel& model, const std::string& folder, const CheckpointInfo& info,
                       int keep = 0) = 0;
  // Nothing is under way here: wait() will not block.
  virtual bool done() const = 0;
  // How the last one ended; ok where there was none.
  virtual Status wait() = 0;
};

// Collective: the newest whole checkpoint of `folder`, as rank 0 sees it; empty where there is none.
// Whole: its manifest can be read and its files have their sizes; loading compares the digests. What
// a save that was killed left in the folder is removed.
Result<std::string> newest_checkpoint(Group& group, const std::string& folder);
// What `path` holds: a folder of checkpoints (its latest is taken) or one checkpoint.
Result<CheckpointInfo> inspect_checkpoint(const std::string& path);
// Collective. The model must have the same parameters and buffers; its layout and ranks may differ.
Result<CheckpointInfo> load_checkpoint(DataParallel& model, const std::string& path);

}  // namespace v1
}  // namespace tutti::train
