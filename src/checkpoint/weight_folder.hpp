// checkpoint/weight_folder.hpp - a folder of safetensors files under other tools' names, and how a model lies in it.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors/safetensors.hpp"
#include "tutti/train/weight_folder.hpp"

namespace tutti::checkpoint {

inline constexpr std::string_view kOneFile = "model.safetensors";
inline constexpr std::string_view kFileIndex = "model.safetensors.index.json";

// The files of a folder, and what is where in them.
class WeightFolder {
 public:
  struct Place {
    std::size_t file = 0;
    std::size_t tensor = 0;  // index in that file's header
  };

  // Reads all headers. corrupt: the index and the files do not fit together.
  static Result<WeightFolder> open(const std::string& folder);
  const SafetensorsFile& file(std::size_t index) const { return files_[index]; }
  const TensorEntry& entry(const Place& place) const {
    return files_[place.file].header().tensors[place.tensor];
  }
  const std::map<std::string, Place, std::less<>>& tensors() const { return tensors_; }

 private:
  Status add_file(const std::string& name);
  Status compare(const std::map<std::string, std::string>& index) const;

  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place, std::less<>> tensors_;
};

// Which elements of its parameter a tensor has: never empty.
Result<train::TensorBox> box_in_parameter(const train::FolderTensor& tensor);

}  // namespace tutti::checkpoint
