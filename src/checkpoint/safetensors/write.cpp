// The writing half of checkpoint/safetensors/safetensors.hpp.
#include <fmt/format.h>

#include <cstring>
#include <set>

#include "checkpoint/safetensors/safetensors.hpp"
#include "core/json.hpp"

namespace tutti::checkpoint {
namespace {

constexpr std::string_view kMetadata = "__metadata__";

Status refuse(const std::string& name, std::string_view what) {
  return {Code::invalid_argument, fmt::format("tensor '{}' {}", name, what)};
}

Status check(const TensorToWrite& tensor, std::set<std::string_view>& names) {
  if (tensor.name.empty() || tensor.name == kMetadata)
    return refuse(tensor.name, "has no usable name");
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

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape)
    text += fmt::format("{}{}", text.empty() ? "" : ",", extent);
  return "[" + text + "]";
}

}  // namespace

Result<std::string> safetensors_header(std::span<const TensorToWrite> tensors,
                                       const Metadata& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += fmt::format("\"{}\":{{", kMetadata);
    for (const auto& [key, value] : metadata)
      json += fmt::format("{}:{},", json_quoted(key), json_quoted(value));
    json.back() = '}';
    json += ',';
  }
  std::uint64_t offset = 0;
  std::set<std::string_view> names;
  for (const TensorToWrite& tensor : tensors) {
    if (Status status = check(tensor, names); !status.ok()) return status;
    const std::uint64_t end = offset + tensor.values.bytes();
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}},",
                        json_quoted(tensor.name), safetensors_word(tensor.values.dtype),
                        shape_text(tensor.shape), offset, end);
    offset = end;
  }
  if (json.size() > 1) json.pop_back();  // the last comma
  json += '}';
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
