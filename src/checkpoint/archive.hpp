// checkpoint/archive.hpp - the files of a checkpoint, of any version, and what lies where in them.
//
// Thread-safety  one thread at a time; several may read.
// Failure        corrupt names the file or the tensor; io the file.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/model_tensors.hpp"
#include "checkpoint/safetensors/safetensors.hpp"
#include "checkpoint/stored_pieces.hpp"

namespace tutti::checkpoint {

// Elements [first, first + count) of a box of one kind of state of a tensor.
struct Wanted {
  std::string tensor;
  std::string state;
  train::TensorBox box;
  std::size_t first = 0;
  std::size_t count = 0;
  Dtype dtype = Dtype::f32;
};

class Archive {
 public:
  // Reads all headers.
  static Result<Archive> open(const std::string& folder, const Manifest& manifest);

  // Of the model that was saved.
  const std::vector<ModelTensor>& tensors() const { return tensors_; }
  // Whether anything of it is there.
  bool has(const std::string& tensor, const std::string& state) const {
    return stored_.contains({tensor, state});
  }
  // Whether every element is there, once: corrupt; and of that type: mismatch.
  Status check(const Wanted& wanted) const;
  // What check() found to be there.
  Status read(const Wanted& wanted, std::byte* into) const;

 private:
  Status index_tensor(std::size_t file, std::size_t entry);
  Status index_piece(std::size_t file, std::size_t entry);
  const TensorEntry& entry_of(const StoredPiece& piece) const {
    return files_[piece.file].header().tensors[piece.tensor];
  }

  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::vector<ModelTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;               // into tensors_
  std::map<std::pair<std::string, std::string>, StoredPieces> stored_;  // by tensor and state
};

}  // namespace tutti::checkpoint
