// checkpoint/safetensors/safetensors.hpp - the safetensors file format: named tensors that anybody's
// reader can read.
//
//   8 bytes    length of the header, little endian
//   header     JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …,
//              "__metadata__": {"word": "word", …}}, padded with blanks to a multiple of 8
//   data       the tensors one after another, little endian, without gaps
//
// Writing streams: the header is made from names, types and shapes, then each tensor's bytes
// follow. Reading believes nothing: a header must lie within the file, and its tensors must fill
// the rest of it exactly, without overlap or hole, each of the size that its type and shape say.
//
// Failure        Code::corrupt names the file and the tensor; Code::io the file.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safe_file.hpp"
#include "tutti/buffer.hpp"
#include "tutti/status.hpp"

namespace tutti::checkpoint {

static_assert(std::endian::native == std::endian::little,
              "tensors are written as they lie in memory");

struct TensorToWrite {
  std::string name;
  std::vector<std::int64_t> shape;
  ConstBuffer values;
};
using Metadata = std::map<std::string, std::string>;

// Length and header. invalid_argument names a tensor whose shape is not its count, or whose name is
// there twice.
Result<std::string> safetensors_header(std::span<const TensorToWrite> tensors,
                                       const Metadata& metadata);
// Header and tensors; the caller commits.
Status write_safetensors(SafeFile& file, std::span<const TensorToWrite> tensors,
                         const Metadata& metadata);

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // of its first byte in the data
  std::uint64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // as their bytes lie
  Metadata metadata;
  const TensorEntry* find(std::string_view name) const;
  std::map<std::string, std::size_t, std::less<>> index;  // into tensors, by name
};
// `json` is the header without its length; `data_bytes` follow it.
Result<SafetensorsHeader> parse_safetensors(std::string_view json, std::uint64_t data_bytes);

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  // Bytes [first, first + bytes) of a tensor.
  Status read(const TensorEntry& tensor, std::uint64_t first, void* into, std::size_t bytes) const;

 private:
  std::string path_;
  Descriptor descriptor_;
  SafetensorsHeader header_;
  std::uint64_t data_start_ = 0;
};

std::string_view safetensors_word(Dtype dtype);
std::optional<Dtype> dtype_of_safetensors_word(std::string_view word);

}  // namespace tutti::checkpoint
