// checkpoint/saving.hpp - one checkpoint on its way to disk.
//
//   prepare (with the model)                finish (without it)
//   rank 0 makes .tmp_…                     every rank writes its share of the state, rank 0 the
//   ranks agree who stores what             model too; rank 0 collects sizes and digests, writes the
//   each lists its tensors                  manifest, gives the folder its name, writes `latest`
//
// After each part the ranks agree, so that all go on or all stop with the same words. Between the
// two the tensors are the model's own memory, or with keep_copies the saving's: then the model may
// train on while another thread finishes. Those on a device are copied in any case.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/folder.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/safetensors/safetensors.hpp"
#include "checkpoint/state_ranges.hpp"
#include "tutti/train/checkpoint.hpp"

namespace tutti::checkpoint {

// Not zeroed: each page is touched once.
struct CopyMemory {
  std::unique_ptr<std::byte[]> data;
  std::size_t bytes = 0;
};

class Saving {
 public:
  Saving(std::string folder, train::CheckpointInfo info, int keep)
      : folder_(std::move(folder)), info_(std::move(info)), keep_(keep) {}

  // Collective on the model's group; finish on `group`, whose ranks are the same. A failure of
  // either leaves nothing in the folder.
  Status prepare(train::DataParallel& model);
  // `memory` is the caller's, to be used again for the next one. Throws where there is none.
  void keep_copies(CopyMemory& memory);
  Status finish(Group& group);

 private:
  Status prepare_all(train::DataParallel& model);
  Status begin(train::DataParallel& model);
  Status list_state(train::DataParallel& model, const std::vector<StateRange>& share);
  void list_model(train::DataParallel& model);
  void list_facts(train::DataParallel& model);
  Status bring_here(train::DataParallel& model);
  Status finish_all(Group& group);
  Status write_files();
  Status write_file(const std::string& name, const std::vector<TensorToWrite>& tensors,
                    const Metadata& metadata, FileFacts& facts);
  Status complete(const std::vector<std::string>& facts);
  void discard();

  std::string folder_;
  train::CheckpointInfo info_;
  int keep_;
  int rank_ = 0;
  std::optional<Publication> publication_;  // on rank 0
  std::string target_;
  std::vector<TensorToWrite> state_, model_;               // of the latter rank 0 alone has any
  std::vector<std::unique_ptr<std::byte[]>> from_device_;  // what lies on a device, copied
  Metadata model_metadata_;
  FileFacts state_facts_, model_facts_;
  Manifest manifest_;  // without the files
};

}  // namespace tutti::checkpoint
