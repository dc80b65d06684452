#include "checkpoint/manifest.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "checkpoint/safe_file.hpp"
#include "core/json.hpp"

namespace tutti::checkpoint {
namespace {

constexpr std::string_view kFormat = "tutti checkpoint";
constexpr int kVersion = 3;
constexpr int kFirstVersion = 1;  // that can still be read
constexpr int kFirstWithBuffers = 2;
constexpr int kFirstWithTensors = 3;
constexpr std::string_view kModelPrefix = "model";
constexpr std::size_t kMostBytes = 256 << 20;
constexpr std::string_view kSealBefore = "  \"sha256\": \"";
constexpr std::string_view kSealAfter = "\"\n}\n";
constexpr std::size_t kDigest = 64;

// ---- writing

template <class Items, class Print>
std::string joined(const Items& items, const Print& print) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "\n    " : ",\n    ") + print(item);
  return text;
}

std::string file_text(const FileFacts& file) {
  return fmt::format("{{\"name\": {}, \"bytes\": {}, \"sha256\": {}}}", json_quoted(file.name),
                     file.bytes, json_quoted(file.sha256));
}

std::string tensor_text(const ModelTensor& tensor) {
  std::string text =
      fmt::format("{{\"name\": {}, \"dtype\": \"{}\", \"shape\": [{}]", json_quoted(tensor.name),
                  safetensors_word(tensor.dtype), fmt::join(tensor.shape, ", "));
  if (tensor.is_buffer) text += ", \"buffer\": true";
  if (!tensor.aliases.empty()) text += ", \"aliases\": " + Json(tensor.aliases).dump();
  return text + "}";
}

// ---- reading

Result<const Json*> field(const Json& json, std::string_view name, Json::Kind kind) {
  const Json* found = json.find(name);
  if (found == nullptr || found->kind() != kind)
    return corrupt(fmt::format("'{}' is missing or not of its kind", name));
  return found;
}

// Before version 3 the model is in one file.
std::vector<std::string> expected_files(const Manifest& manifest) {
  std::vector<std::string> expected;
  const int files = manifest.version < kFirstWithTensors ? 1 : manifest.model_files();
  for (int file = 0; file < files; ++file) expected.push_back(model_file_name(file, files));
  if (files > 1) expected.emplace_back(kIndex);
  for (int rank = 0; rank < manifest.ranks; ++rank)
    expected.push_back(state_file_name(rank, manifest.ranks));
  return expected;
}

Status read_files(const Json& list, Manifest& manifest) {
  for (const Json& item : list.items()) {
    const std::int64_t bytes = item["bytes"].whole().value_or(-1);
    const std::string& digest = item["sha256"].string();
    if (item.find("name") == nullptr || bytes < 0 || digest.size() != kDigest)
      return corrupt("an entry of 'files' lacks its name, bytes or sha256");
    manifest.files.push_back({item["name"].string(), static_cast<std::uint64_t>(bytes), digest});
  }
  const std::vector<std::string> expected = expected_files(manifest);
  for (std::size_t i = 0; i < std::max(expected.size(), manifest.files.size()); ++i)
    if (i >= manifest.files.size() || i >= expected.size() || manifest.files[i].name != expected[i])
      return corrupt(fmt::format("'files' are not those of {} ranks: {}", manifest.ranks,
                                 i < expected.size() ? expected[i] + " is not in its place"
                                                     : manifest.files[i].name + " is too many"));
  return {};
}

// The text up to the seal, when that is right.
Result<std::string_view> unsealed(std::string_view text) {
  const std::size_t tail = kSealBefore.size() + kDigest + kSealAfter.size();
  if (text.size() < tail) return corrupt("it is cut off");
  const std::string_view body = text.substr(0, text.size() - tail);
  const std::string_view seal = text.substr(body.size());
  if (!seal.starts_with(kSealBefore) || !seal.ends_with(kSealAfter))
    return corrupt("it does not end with its sha256: it is cut off, or something else");
  if (seal.substr(kSealBefore.size(), kDigest) != sha256_of(body))
    return corrupt("its sha256 is not that of its text: it was damaged or changed");
  return body;
}

Result<int> read_version(const Json& document) {
  if (document["format"].string() != kFormat) return corrupt("it is no tutti checkpoint");
  const std::int64_t version = document["version"].whole().value_or(-1);
  if (version < kFirstVersion || version > kVersion)
    return corrupt(fmt::format("it has version {}, and this build reads {} to {}", version,
                               kFirstVersion, kVersion));
  return static_cast<int>(version);
}

Status read_numbers(const Json& document, Manifest& manifest) {
  const auto iteration = document["iteration"].whole();
  const auto ranks = document["ranks"].whole();
  if (!iteration || *iteration < 0) return corrupt("'iteration' is no whole number");
  if (!ranks || *ranks < 1 || *ranks > 1'000'000) return corrupt("'ranks' is no number of ranks");
  manifest.iteration = *iteration;
  manifest.ranks = static_cast<int>(*ranks);
  return {};
}

Status read_tensors(const Json& document, Manifest& manifest) {
  const auto tensors = field(document, "tensors", Json::Kind::array);
  if (!tensors.ok()) return tensors.status();
  for (const Json& item : (*tensors)->items()) {
    ModelTensor tensor;
    tensor.name = item["name"].string();
    const auto dtype = dtype_of_safetensors_word(item["dtype"].string());
    std::int64_t elements = 1;
    bool is_good = dtype && !tensor.name.empty() && item["shape"].kind() == Json::Kind::array;
    for (const Json& extent : item["shape"].items()) {
      tensor.shape.push_back(extent.whole().value_or(-1));
      is_good = is_good && tensor.shape.back() >= 0 &&
                !__builtin_mul_overflow(elements, std::max<std::int64_t>(tensor.shape.back(), 1),
                                        &elements);
    }
    if (!is_good) return corrupt("an entry of 'tensors' lacks its name, dtype or shape");
    tensor.dtype = *dtype;
    tensor.is_buffer = item["buffer"].boolean();
    for (const Json& alias : item["aliases"].items()) tensor.aliases.push_back(alias.string());
    manifest.tensors.push_back(std::move(tensor));
  }
  return {};
}

Status read_lists(const Json& document, Manifest& manifest) {
  const auto files = field(document, "files", Json::Kind::array);
  if (!files.ok()) return files.status();
  if (Status status = read_files(**files, manifest); !status.ok()) return status;
  const auto counts = field(document, "step_counts", Json::Kind::object);
  if (!counts.ok()) return counts.status();
  for (const auto& [name, value] : (*counts)->fields()) {
    const auto count = value.whole();
    if (!count || *count < 0)
      return corrupt(fmt::format("the step count of '{}' is no whole number", name));
    manifest.step_counts[name] = *count;
  }
  const auto order = field(document, "order", Json::Kind::array);
  if (!order.ok()) return order.status();
  for (const Json& name : (*order)->items()) manifest.order.push_back(name.string());
  if (manifest.version == kFirstWithBuffers) {
    const auto buffers = field(document, "buffers", Json::Kind::array);
    if (!buffers.ok()) return buffers.status();
    for (const Json& name : (*buffers)->items()) manifest.buffers.push_back(name.string());
  }
  if (manifest.version >= kFirstWithTensors)
    if (Status status = read_tensors(document, manifest); !status.ok()) return status;
  const auto extra = field(document, "extra", Json::Kind::object);
  if (!extra.ok()) return extra.status();
  for (const auto& [name, value] : (*extra)->fields()) manifest.extra[name] = value.string();
  return {};
}

}  // namespace

std::string model_file_name(int file, int files) {
  if (files == 1) return fmt::format("{}.safetensors", kModelPrefix);
  return fmt::format("{}-{:05d}-of-{:05d}.safetensors", kModelPrefix, file + 1, files);
}

int Manifest::model_files() const {
  return static_cast<int>(std::count_if(files.begin(), files.end(), [](const FileFacts& file) {
    return file.name.starts_with(kModelPrefix) && file.name != kIndex;
  }));
}

std::string state_file_name(int rank, int ranks) {
  return fmt::format("state_{:05d}_of_{:05d}.safetensors", rank, ranks);
}

std::string to_json(const Manifest& manifest) {
  const auto pair = [](const auto& item) {
    return fmt::format("{}: {}", json_quoted(item.first), item.second);
  };
  const auto quoted = [](const std::string& name) { return json_quoted(name); };
  const auto quoted_pair = [](const auto& item) {
    return json_quoted(item.first) + ": " + json_quoted(item.second);
  };
  std::string text = fmt::format(
      "{{\n  \"format\": \"{}\", \"version\": {},\n  \"iteration\": {}, \"ranks\": {},\n"
      "  \"files\": [{}\n  ],\n  \"tensors\": [{}\n  ],\n  \"step_counts\": {{{}\n  }},\n"
      "  \"order\": [{}\n  ],\n  \"extra\": {{{}\n  }},\n",
      kFormat, kVersion, manifest.iteration, manifest.ranks, joined(manifest.files, file_text),
      joined(manifest.tensors, tensor_text), joined(manifest.step_counts, pair),
      joined(manifest.order, quoted), joined(manifest.extra, quoted_pair));
  return text + std::string(kSealBefore) + sha256_of(text) + std::string(kSealAfter);
}

Result<Manifest> parse_manifest(std::string_view text) {
  if (const auto body = unsealed(text); !body.ok()) return body.status();
  const auto document = Json::parse(text);
  if (!document.ok()) return document.status();
  const auto version = read_version(*document);
  if (!version.ok()) return version.status();
  Manifest manifest;
  manifest.version = *version;
  if (Status status = read_numbers(*document, manifest); !status.ok()) return status;
  if (Status status = read_lists(*document, manifest); !status.ok()) return status;
  return manifest;
}

Result<std::string> read_manifest_text(const std::string& folder) {
  return read_bounded(fmt::format("{}/{}", folder, kManifest), kMostBytes);
}

Status check_sizes(const Manifest& manifest, const std::string& folder) {
  for (const FileFacts& file : manifest.files) {
    const std::string path = folder + "/" + file.name;
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) return file_trouble(path, "cannot be found");
    if (static_cast<std::uint64_t>(facts.st_size) != file.bytes)
      return corrupt(fmt::format("{}: has {} bytes, and should have {}: it is torn", path,
                                 facts.st_size, file.bytes));
  }
  return {};
}

}  // namespace tutti::checkpoint
