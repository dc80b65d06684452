// checkpoint/manifest.hpp - checkpoint.json: what a checkpoint consists of.
// docs/formats/checkpoint.md.
//
// Its last field is the SHA-256 of all text before it, so that no bit of it can flip unseen.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_tensors.hpp"
#include "tutti/status.hpp"

namespace tutti::checkpoint {

inline constexpr std::string_view kManifest = "checkpoint.json";
inline constexpr std::string_view kIndex = "model.safetensors.index.json";
// Of several, as other tools number them: model-00001-of-00004.safetensors. One is model.safetensors.
std::string model_file_name(int file, int files);
std::string state_file_name(int rank, int ranks);

struct FileFacts {
  std::string name;
  std::uint64_t bytes = 0;
  std::string sha256;
  bool operator==(const FileFacts&) const = default;
};

struct Manifest {
  std::int64_t iteration = 0;
  int ranks = 0;
  int version = 3;
  // The model, if it is in files of its own; what lists them, if they are several; the states by rank.
  std::vector<FileFacts> files;
  std::map<std::string, std::int64_t> step_counts;
  std::vector<std::string> order;
  std::map<std::string, std::string> extra;
  std::vector<ModelTensor> tensors;
  // Of version 2: names of the module buffers in the model's file. Version 1 saved none.
  std::vector<std::string> buffers;

  // How many files the model is in; 0: in the states.
  int model_files() const;
  bool operator==(const Manifest&) const = default;
};

// Of the newest version.
std::string to_json(const Manifest& manifest);
// Code::corrupt says what is wrong. The files listed are exactly those that `ranks` ranks write.
Result<Manifest> parse_manifest(std::string_view text);
// Reads FOLDER/checkpoint.json. Code::io when there is none.
Result<std::string> read_manifest_text(const std::string& folder);
// Every file is there and has its size.
Status check_sizes(const Manifest& manifest, const std::string& folder);

}  // namespace tutti::checkpoint
