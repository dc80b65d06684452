// checkpoint/saving.hpp - one checkpoint on its way to disk.
//
//   prepare (with the model)                finish (without it)
//   rank 0 makes .tmp_…                     every rank writes its share of the state, and of the
//   ranks agree who stores what             model; rank 0 collects sizes and digests, writes the
//   each lists its tensors                  manifest, gives the folder its name, writes `latest`
//
// Where some rank has the whole of each tensor, or all ranks have together without a cut, tensors are
// shared out and written whole, for other tools to read. Else each rank writes the boxes that it answers
// for into its state file.
//
// After each part the ranks agree, so that all go on or all stop with the same words. Between the
// two the tensors are the model's own memory, or with keep_copies the saving's: then the model may
// train on while another thread finishes. Those on a device are copied in any case.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/folder.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/safetensors/safetensors.hpp"
#include "checkpoint/state_ranges.hpp"
#include "train/holdings.hpp"
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

  // Collective among everyone of the model; finish on `group`, whose ranks are the same. A failure of
  // either leaves nothing in the folder.
  Status prepare(train::DataParallel& model);
  // `memory` is the caller's, to be used again for the next one. Throws where there is none.
  void keep_copies(CopyMemory& memory);
  Status finish(Group& group);

 private:
  Status prepare_all(train::DataParallel& model);
  Status begin(train::DataParallel& model);
  Status list_state(train::DataParallel& model, const std::vector<StateRange>& share);
  Status exchange_facts(train::DataParallel& model);
  Status read_facts(std::size_t rank, const std::string& text);
  Status list_weights(train::DataParallel& model);
  void list_boxes(train::DataParallel& model);
  Status list_tensors(train::DataParallel& model, const std::vector<train::HeldTensor>& tensors);
  void number_files(const std::vector<int>& writers);
  Status collect(train::DataParallel& model, const train::HeldTensor& tensor, int writer);
  Status bring_here(train::DataParallel& model);
  std::byte* copy_memory(std::size_t bytes);
  Status finish_all(Group& group);
  Status write_files();
  Status write_file(const std::string& name, const std::vector<TensorToWrite>& tensors,
                    const Metadata& metadata, FileFacts& facts);
  Status write_index();
  Status complete(const std::vector<std::string>& facts);
  void discard();

  std::string folder_;
  train::CheckpointInfo info_;
  int keep_;
  int rank_ = 0;                            // among everyone
  std::optional<Publication> publication_;  // on rank 0
  std::string target_;
  std::vector<TensorToWrite> state_, model_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;  // of what lies on a device, or on other ranks
  std::set<const void*> copied_;                      // where they are
  Status unread_;
  Metadata model_metadata_;
  std::map<std::string, int> buffer_writers_;
  std::map<std::string, int> file_of_;  // by tensor: in which of the model's files it is
  std::vector<int> file_writers_;       // ranks, by the model's files
  FileFacts state_facts_, model_facts_;
  Manifest manifest_;  // without the files
};

}  // namespace tutti::checkpoint
