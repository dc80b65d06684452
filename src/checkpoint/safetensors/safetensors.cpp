#include "checkpoint/safetensors/safetensors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/json.hpp"
#include "tutti/dtypes.hpp"

namespace tutti::checkpoint {
namespace {

constexpr std::uint64_t kLongestHeader = 100'000'000;  // as the format's own reader has it

Status wrong(const std::string& tensor, std::string_view what) {
  return corrupt(fmt::format("tensor '{}' {}", tensor, what));
}

Status read_shape(const Json* json, TensorEntry& entry) {
  if (json == nullptr || json->kind() != Json::Kind::array)
    return wrong(entry.name, "has no shape");
  for (const Json& item : json->items()) {
    const auto extent = item.whole();
    if (!extent || *extent < 0) return wrong(entry.name, "has an extent that is no whole number");
    entry.shape.push_back(*extent);
  }
  return {};
}

Status read_offsets(const Json* json, TensorEntry& entry, std::uint64_t data_bytes) {
  if (json == nullptr || json->kind() != Json::Kind::array || json->items().size() != 2)
    return wrong(entry.name, "has no data_offsets");
  const std::int64_t first = (*json)[0].whole().value_or(-1);
  const std::int64_t end = (*json)[1].whole().value_or(-1);
  if (first < 0 || first > end) return wrong(entry.name, "has data_offsets that mean nothing");
  entry.offset = static_cast<std::uint64_t>(first);
  entry.bytes = static_cast<std::uint64_t>(end - first);
  if (entry.offset + entry.bytes > data_bytes)
    return wrong(entry.name,
                 fmt::format("ends at byte {} of {}: the file is cut off", end, data_bytes));
  return {};
}

Status check_size(const TensorEntry& entry) {
  std::uint64_t bytes = size_of(entry.dtype);
  for (const std::int64_t extent : entry.shape)
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes))
      return wrong(entry.name, "has a shape that is too large");
  if (bytes != entry.bytes)
    return wrong(entry.name, fmt::format("has {} bytes, and by its shape {}", entry.bytes, bytes));
  return {};
}

Result<TensorEntry> read_tensor(const std::string& name, const Json& json,
                                std::uint64_t data_bytes) {
  TensorEntry entry;
  entry.name = name;
  if (json.kind() != Json::Kind::object || json.fields().size() != 3)
    return wrong(name, "is not described by dtype, shape and data_offsets");
  const Json* word = json.find("dtype");
  if (word == nullptr || word->kind() != Json::Kind::string) return wrong(name, "has no dtype");
  const auto dtype = dtype_of_safetensors_word(word->string());
  if (!dtype) return wrong(name, fmt::format("has the unknown dtype '{}'", word->string()));
  entry.dtype = *dtype;
  if (Status status = read_shape(json.find("shape"), entry); !status.ok()) return status;
  if (Status status = read_offsets(json.find("data_offsets"), entry, data_bytes); !status.ok())
    return status;
  if (Status status = check_size(entry); !status.ok()) return status;
  return entry;
}

Status read_metadata(const Json& json, Metadata& metadata) {
  if (json.kind() != Json::Kind::object) return corrupt("__metadata__ is no object");
  for (const auto& [key, value] : json.fields()) {
    if (value.kind() != Json::Kind::string)
      return corrupt(fmt::format("'{}' in __metadata__ is no string", key));
    metadata[key] = value.string();
  }
  return {};
}

// Sorted by place, each tensor must begin where the one before ended, and the last at the end.
Status check_places(std::vector<TensorEntry>& tensors, std::uint64_t data_bytes) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  std::uint64_t end = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.offset < end) return wrong(tensor.name, "overlaps with the one before");
    if (tensor.offset > end) return wrong(tensor.name, "leaves a hole before it");
    end = tensor.offset + tensor.bytes;
  }
  if (end != data_bytes)
    return corrupt(fmt::format("{} bytes follow the last tensor", data_bytes - end));
  return {};
}

Status read_at(int descriptor, const std::string& path, void* into, std::size_t bytes,
               std::uint64_t offset) {
  char* at = static_cast<char*>(into);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor, at, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_trouble(path, "cannot be read");
    if (got == 0) return corrupt(fmt::format("{}: ends at byte {}", path, offset));
    at += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace

std::string_view safetensors_word(Dtype dtype) { return info_of(dtype).safetensors; }

std::optional<Dtype> dtype_of_safetensors_word(std::string_view word) {
  return find_dtype([&](const DtypeInfo& info) { return info.safetensors == word; });
}

const TensorEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto at = index.find(name);
  return at == index.end() ? nullptr : &tensors[at->second];
}

Result<SafetensorsHeader> parse_safetensors(std::string_view json, std::uint64_t data_bytes) {
  if (json.empty() || json.front() != '{') return corrupt("the header does not begin with '{'");
  auto document = Json::parse(json);  // refuses a name that is there twice
  if (!document.ok()) return document.status().annotate("the header");
  SafetensorsHeader header;
  for (const auto& [name, value] : document->fields()) {
    if (name == "__metadata__") {
      if (Status status = read_metadata(value, header.metadata); !status.ok()) return status;
      continue;
    }
    auto tensor = read_tensor(name, value, data_bytes);
    if (!tensor.ok()) return tensor.status();
    header.tensors.push_back(*std::move(tensor));
  }
  if (Status status = check_places(header.tensors, data_bytes); !status.ok()) return status;
  for (std::size_t i = 0; i < header.tensors.size(); ++i) header.index[header.tensors[i].name] = i;
  return header;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.descriptor_.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file.descriptor_) return file_trouble(path, "cannot be opened");
  struct stat facts {};
  if (::fstat(file.descriptor_.get(), &facts) != 0)
    return file_trouble(path, "cannot be looked at");
  const auto size = static_cast<std::uint64_t>(facts.st_size);
  std::uint64_t length = 0;
  if (!S_ISREG(facts.st_mode) || size < sizeof length)
    return corrupt(fmt::format("{}: is no safetensors file: too short", path));
  Status status = read_at(file.descriptor_.get(), path, &length, sizeof length, 0);
  if (!status.ok()) return status;
  if (length > kLongestHeader || length > size - sizeof length)
    return corrupt(
        fmt::format("{}: says that its header has {} bytes: it is no safetensors file, "
                    "or cut off",
                    path, length));
  std::string json(length, '\0');
  status = read_at(file.descriptor_.get(), path, json.data(), length, sizeof length);
  if (!status.ok()) return status;
  file.data_start_ = sizeof length + length;
  auto header = parse_safetensors(json, size - file.data_start_);
  if (!header.ok()) return header.status().annotate(path);
  file.header_ = *std::move(header);
  return file;
}

Status SafetensorsFile::read(const TensorEntry& tensor, std::uint64_t first, void* into,
                             std::size_t bytes) const {
  if (first > tensor.bytes || bytes > tensor.bytes - first)
    return corrupt(
        fmt::format("{}: tensor '{}' has only {} bytes", path_, tensor.name, tensor.bytes));
  return read_at(descriptor_.get(), path_, into, bytes, data_start_ + tensor.offset + first);
}

}  // namespace tutti::checkpoint
