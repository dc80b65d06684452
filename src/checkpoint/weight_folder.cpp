#include "checkpoint/weight_folder.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "core/json.hpp"
#include "train/tensor_box.hpp"

namespace tutti::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestIndex = 100'000'000;

// Tensor to file.
Result<std::map<std::string, std::string>> read_index(const std::string& path) {
  const auto text = read_bounded(path, kLongestIndex);
  if (!text.ok()) return text.status();
  const auto json = Json::parse(*text);
  if (!json.ok()) return json.status().annotate(path);
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : (*json)["weight_map"].fields()) {
    const std::string& name = file.string();
    if (name.empty() || name.find('/') != std::string::npos)
      return corrupt(fmt::format("{}: weight_map does not name a file for '{}'", path, tensor));
    files[tensor] = name;
  }
  if (files.empty()) return corrupt(fmt::format("{}: has no weight_map", path));
  return files;
}

}  // namespace

Result<WeightFolder> WeightFolder::open(const std::string& folder) {
  WeightFolder opened;
  opened.folder_ = folder;
  std::error_code error;
  if (fs::exists(fs::path(folder) / kOneFile, error)) {
    if (Status status = opened.add_file(std::string(kOneFile)); !status.ok()) return status;
    return opened;
  }
  const std::string path = fmt::format("{}/{}", folder, kFileIndex);
  if (!fs::exists(path, error))
    return Status(Code::io, fmt::format("{}: has neither {} nor {}", folder, kOneFile, kFileIndex));
  const auto index = read_index(path);
  if (!index.ok()) return index.status();
  std::set<std::string> names;
  for (const auto& [tensor, file] : *index) names.insert(file);
  for (const std::string& name : names)
    if (Status status = opened.add_file(name); !status.ok()) return status;
  if (Status status = opened.compare(*index); !status.ok()) return status;
  return opened;
}

Status WeightFolder::add_file(const std::string& name) {
  auto file = SafetensorsFile::open(folder_ + "/" + name);
  if (!file.ok()) return file.status();
  for (std::size_t i = 0; i < file->header().tensors.size(); ++i) {
    const std::string& tensor = file->header().tensors[i].name;
    if (!tensors_.emplace(tensor, Place{files_.size(), i}).second)
      return corrupt(fmt::format("{}: tensor '{}' is in another file, too", file->path(), tensor));
  }
  files_.push_back(*std::move(file));
  return {};
}

Status WeightFolder::compare(const std::map<std::string, std::string>& index) const {
  for (const auto& [tensor, name] : index) {
    const auto found = tensors_.find(tensor);
    const std::string path = folder_ + "/" + name;
    if (found == tensors_.end() || files_[found->second.file].path() != path)
      return corrupt(
          fmt::format("{}: has no tensor '{}', though {} says so", path, tensor, kFileIndex));
  }
  return {};
}

Result<train::TensorBox> box_in_parameter(const train::FolderTensor& tensor) {
  const std::size_t count = train::count_of(tensor.shape);
  if (tensor.box.whole.empty()) {
    const auto whole = static_cast<std::int64_t>(count);
    return train::TensorBox{{whole}, {0}, {whole}};
  }
  const train::TensorBox& box = tensor.box;
  bool fits = box.first.size() == box.whole.size() && box.extent.size() == box.whole.size() &&
              train::count_of(box.extent) == count;
  for (std::size_t d = 0; fits && d < box.whole.size(); ++d)
    fits = box.first[d] >= 0 && box.extent[d] > 0 && box.first[d] + box.extent[d] <= box.whole[d];
  if (!fits)
    return Status(Code::invalid_argument,
                  fmt::format("tensor '{}' of shape {} is no such box of '{}'", tensor.name,
                              train::to_text(tensor.shape), tensor.parameter));
  return train::simplified(box);
}

}  // namespace tutti::checkpoint
