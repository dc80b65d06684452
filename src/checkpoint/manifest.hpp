// checkpoint/manifest.hpp - checkpoint.json: what a checkpoint consists of.
// docs/formats/checkpoint.md.
//
// Its last field is the SHA-256 of all text before it, so that no bit of it can flip unseen.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::checkpoint {

inline constexpr std::string_view kManifest = "checkpoint.json";
inline constexpr std::string_view kModel = "model.safetensors";
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
  std::vector<FileFacts> files;  // the model, then the states by rank
  std::map<std::string, std::int64_t> step_counts;
  std::vector<std::string> order;
  std::map<std::string, std::string> extra;
  // Names of the module buffers in the model's file. Absent: version 1, which saved none.
  std::optional<std::vector<std::string>> buffers = std::vector<std::string>();
  bool operator==(const Manifest&) const = default;
};

std::string to_json(const Manifest& manifest);
// Code::corrupt says what is wrong. The files listed are exactly those that `ranks` ranks write.
Result<Manifest> parse_manifest(std::string_view text);
// Reads FOLDER/checkpoint.json. Code::io when there is none.
Result<std::string> read_manifest_text(const std::string& folder);
// Every file is there and has its size.
Status check_sizes(const Manifest& manifest, const std::string& folder);

}  // namespace tutti::checkpoint
