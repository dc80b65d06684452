// The writing half of checkpoint/safetensors/safetensors.hpp.
#include <fmt/format.h>

#include <cstring>
#include <set>

#include "checkpoint/safetensors/safetensors.hpp"
#include "core/json.hpp"

namespace tutti::checkpoint {
namespace {

constexpr const char* kMetadata = "__metadata__";

Status refuse(const std::string& name, std::string_view what) {
  return {Code::invalid_argument, fmt::format("tensor '{}' {}", name, what)};
}

Status check(const TensorToWrite& tensor, std::set<std::string_view>& names) {
  if (tensor.name.empty() || tensor.name == kMetadata)
    return refuse(tensor.name, "has no usable name");
  if (!is_utf8(tensor.name)) return refuse(tensor.name, "has a name that is not UTF-8");
  if (!names.insert(tensor.name).second) return refuse(tensor.name, "is there twice");
  std::uint64_t count = 1;
  for (const std::int64_t extent : tensor.shape) {
    if (extent < 0) return refuse(tensor.name, "has a negative extent");
    if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(extent), &count))
      return refuse(tensor.name, "has a shape that is too large");
  }
  if (count != tensor.values.count)
    return refuse(tensor.name,
                  fmt::format("has {} elements, and its shape {}", tensor.values.count, count));
  return {};
}

}  // namespace

Result<std::string> safetensors_header(std::span<const TensorToWrite> tensors,
                                       const Metadata& metadata) {
  Json document = Json::object();
  if (!metadata.empty()) document.append(kMetadata, metadata);
  std::uint64_t offset = 0;
  std::set<std::string_view> names;
  for (const TensorToWrite& tensor : tensors) {
    if (Status status = check(tensor, names); !status.ok()) return status;
    const std::uint64_t end = offset + tensor.values.bytes();
    document.append(tensor.name, {{"dtype", safetensors_word(tensor.values.dtype)},
                                  {"shape", tensor.shape},
                                  {"data_offsets", Json::array({offset, end})}});
    offset = end;
  }
  std::string json = document.dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  const std::uint64_t length = json.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

Status write_safetensors(SafeFile& file, std::span<const TensorToWrite> tensors,
                         const Metadata& metadata) {
  const auto header = safetensors_header(tensors, metadata);
  if (!header.ok()) return header.status().annotate(file.path());
  if (Status status = file.write(header->data(), header->size()); !status.ok()) return status;
  for (const TensorToWrite& tensor : tensors)
    if (Status status = file.write(tensor.values.data, tensor.values.bytes()); !status.ok())
      return status;
  return {};
}

}  // namespace tutti::checkpoint
