// The reading half of tutti/train/checkpoint.hpp.
//
// Nothing of the model is touched before everything has been looked at: rank 0 finds the checkpoint
// and tells all what its manifest says, each rank hashes some of the files, and all compare the
// headers with the model. Then rank 0 reads the weights and sends them, and each rank reads from
// all state files those elements that it keeps itself.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "checkpoint/folder.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/model_tensors.hpp"
#include "checkpoint/safetensors/safetensors.hpp"
#include "checkpoint/state_ranges.hpp"
#include "train/agreement.hpp"
#include "tutti/train/checkpoint.hpp"

namespace tutti::checkpoint {
namespace {

using train::agree;
using train::CheckpointInfo;
using train::DataParallel;
using train::Parameter;
using train::share_text;
using train::StatePiece;

constexpr std::string_view kMainWeights = "main";

CheckpointInfo info_of(const Manifest& manifest) {
  return {manifest.iteration, manifest.ranks, manifest.extra, manifest.order, {}};
}

// The files that this rank hashes: the largest first, each to the rank with the least so far.
std::vector<FileFacts> share_of(std::vector<FileFacts> files, int rank, int ranks) {
  std::stable_sort(files.begin(), files.end(),
                   [](const FileFacts& a, const FileFacts& b) { return a.bytes > b.bytes; });
  std::vector<std::uint64_t> load(static_cast<std::size_t>(ranks));
  std::vector<FileFacts> mine;
  for (FileFacts& file : files) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += file.bytes + 1;
    if (least - load.begin() == rank) mine.push_back(std::move(file));
  }
  return mine;
}

class Loading {
 public:
  Loading(DataParallel& model, const std::string& path)
      : model_(model), group_(model.group()), path_(path) {}

  Result<CheckpointInfo> run() {
    if (Status status = find(); !status.ok()) return status;
    if (Status status = agree(group_, verify()); !status.ok()) return status;
    if (Status status = agree(group_, look_at_headers()); !status.ok()) return status;
    if (Status status = agree(group_, read_weights()); !status.ok()) return status;
    // Waited for on the host, also where they lie on a device.
    for (const ModelTensor& tensor : tensors_)
      if (Status status = group_.broadcast_async(tensor.value, 0).wait(); !status.ok())
        return status;
    if (Status status = agree(group_, restore_state()); !status.ok()) return status;
    if (Status status = model_.adopt_state(manifest_.iteration); !status.ok()) return status;
    CheckpointInfo info = info_of(manifest_);
    info.warnings = std::move(warnings_);
    return info;
  }

 private:
  // Rank 0's view of the folder counts: another host may see a newer `latest` already.
  Status find() {
    std::string folder, text;
    Status mine = model_.parameters_ready();
    if (mine.ok() && group_.rank() == 0) mine = find_here(folder, text);
    if (Status status = agree(group_, mine); !status.ok()) return status;
    auto shared_folder = share_text(group_, folder, 0);
    if (!shared_folder.ok()) return shared_folder.status();
    auto shared_text = share_text(group_, text, 0);
    if (!shared_text.ok()) return shared_text.status();
    folder_ = *std::move(shared_folder);
    auto manifest = parse_manifest(*shared_text);
    if (!manifest.ok()) return manifest.status().annotate(path_of(kManifest));
    manifest_ = *std::move(manifest);
    return {};
  }

  Status find_here(std::string& folder, std::string& text) const {
    std::error_code error;
    const auto found = find_checkpoint(path_);
    if (!found.ok()) return found.status();
    folder = std::filesystem::absolute(*found, error).string();
    auto read = read_manifest_text(folder);
    if (!read.ok()) return read.status();
    text = *std::move(read);
    return {};
  }

  Status verify() {
    if (Status status = check_sizes(manifest_, folder_); !status.ok()) return status;
    for (const FileFacts& file : share_of(manifest_.files, group_.rank(), group_.size())) {
      const auto digest = sha256_of_file(path_of(file.name));
      if (!digest.ok()) return digest.status();
      if (*digest != file.sha256)
        return {Code::corrupt,
                fmt::format("{}: its SHA-256 is not the one in {}: it was damaged or "
                            "replaced",
                            path_of(file.name), kManifest)};
    }
    return {};
  }

  Status look_at_headers() {
    auto weights = SafetensorsFile::open(path_of(kModel));
    if (!weights.ok()) return weights.status();
    tensors_ = model_tensors(model_);
    if (!manifest_.buffers) leave_buffers_out();
    if (Status status = compare_models(*weights, tensors_); !status.ok()) return status;
    weights_.emplace(*std::move(weights));
    for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
      const std::string& name = model_.parameters()[i].name;
      if (!manifest_.step_counts.contains(name))
        return {Code::corrupt,
                fmt::format("{}: has no step count of '{}'", path_of(kManifest), name)};
      index_of_[name] = i;
    }
    if (Status status = index_states(); !status.ok()) return status;
    for (const StatePiece& piece : model_.state())
      if (Status status = check_stored(piece); !status.ok()) return status;
    return {};
  }

  // They stay as they are.
  void leave_buffers_out() {
    std::vector<std::string> names;
    for (const ModelTensor& tensor : tensors_)
      if (tensor.is_buffer) names.push_back("'" + tensor.name + "'");
    std::erase_if(tensors_, [](const ModelTensor& tensor) { return tensor.is_buffer; });
    if (names.empty()) return;
    warnings_.push_back(
        fmt::format("{} is of version 1, which holds no module buffers: {} {} not "
                    "loaded",
                    folder_, fmt::join(names, ", "), names.size() == 1 ? "was" : "were"));
  }

  Status index_states() {
    for (int rank = 0; rank < manifest_.ranks; ++rank) {
      auto file = SafetensorsFile::open(path_of(state_file_name(rank, manifest_.ranks)));
      if (!file.ok()) return file.status();
      files_.push_back(*std::move(file));
      for (std::size_t i = 0; i < files_.back().header().tensors.size(); ++i)
        if (Status status = index_piece(files_.size() - 1, i); !status.ok()) return status;
    }
    for (auto& [key, state] : stored_)
      if (!state.finish())
        return {Code::corrupt, fmt::format("{}: elements of {} of '{}' are stored twice", folder_,
                                           key.second, key.first)};
    return {};
  }

  Status index_piece(std::size_t file, std::size_t tensor) {
    const TensorEntry& entry = files_[file].header().tensors[tensor];
    const auto name = parse_piece_name(entry.name);
    const auto index = name ? index_of_.find(name->parameter) : index_of_.end();
    const bool fits = index != index_of_.end() &&
                      name->first + name->count <= model_.parameters()[index->second].count() &&
                      entry.bytes == name->count * size_of(entry.dtype);
    if (!fits)
      return {Code::corrupt, fmt::format("{}: '{}' is no piece of the state of this model",
                                         files_[file].path(), entry.name)};
    stored_[{name->parameter, name->state}].add({name->first, name->count, file, tensor});
    return {};
  }

  const StoredState* stored(const StatePiece& piece) const {
    const auto at =
        stored_.find({model_.parameters()[piece.parameter].name, std::string(piece.name)});
    return at == stored_.end() ? nullptr : &at->second;
  }

  Status check_stored(const StatePiece& piece) const {
    const std::string& name = model_.parameters()[piece.parameter].name;
    const StoredState* state = stored(piece);
    if (piece.values.count == 0) return {};
    if (state == nullptr) {
      // Main weights follow the weights; what was never updated has a state of zeros.
      if (piece.name == kMainWeights || manifest_.step_counts.at(name) == 0) return {};
      return {Code::mismatch, fmt::format("{}: has no {} of parameter '{}': it was saved with "
                                          "another optimizer",
                                          folder_, piece.name, name)};
    }
    if (!state->covers(piece.first, piece.values.count))
      return {Code::corrupt, fmt::format("{}: elements of {} of parameter '{}' are missing",
                                         folder_, piece.name, name)};
    for (const Stored& part : state->overlapping(piece.first, piece.values.count))
      if (tensor_of(part).dtype != piece.values.dtype)
        return {Code::mismatch,
                fmt::format("{}: {} of parameter '{}' is {} there and {} here",
                            files_[part.file].path(), piece.name, name,
                            to_string(tensor_of(part).dtype), to_string(piece.values.dtype))};
    return {};
  }

  Status read_weights() {
    if (group_.rank() != 0) return {};
    for (const ModelTensor& tensor : tensors_) {
      const TensorEntry& stored = *weights_->header().find(tensor.name);
      if (Status status = read_into(*weights_, stored, 0, tensor.value); !status.ok())
        return status;
    }
    return {};
  }

  // Bytes of a stored tensor, from `first` on, into memory of the model's wherever that lies.
  Status read_into(const SafetensorsFile& file, const TensorEntry& stored, std::size_t first,
                   const Buffer& into) const {
    if (into.device == Device::cpu) return file.read(stored, first, into.data, into.bytes());
    std::vector<std::byte> here(into.bytes());
    if (Status status = file.read(stored, first, here.data(), here.size()); !status.ok())
      return status;
    return model_.write(into, here.data());
  }

  Status restore_state() {
    if (Status status = model_.adopt_parameters(); !status.ok()) return status;
    std::vector<std::int64_t> counts;
    for (const Parameter& parameter : model_.parameters())
      counts.push_back(manifest_.step_counts.at(parameter.name));
    if (Status status = model_.set_step_counts(counts); !status.ok()) return status;
    for (const StatePiece& piece : model_.state())
      if (Status status = restore(piece); !status.ok()) return status;
    return {};
  }

  Status restore(const StatePiece& piece) const {
    const StoredState* state = stored(piece);
    if (state == nullptr) {
      if (piece.name == kMainWeights || piece.values.count == 0) return {};
      return model_.write(piece.values, std::vector<std::byte>(piece.values.bytes()).data());
    }
    const std::size_t size = size_of(piece.values.dtype);
    for (const Stored& part : state->overlapping(piece.first, piece.values.count)) {
      const std::size_t first = std::max(part.first, piece.first);
      const std::size_t end = std::min(part.first + part.count, piece.first + piece.values.count);
      Buffer into = piece.values;
      into.data = static_cast<std::byte*>(into.data) + (first - piece.first) * size;
      into.count = end - first;
      Status status =
          read_into(files_[part.file], tensor_of(part), (first - part.first) * size, into);
      if (!status.ok()) return status;
    }
    return {};
  }

  std::string path_of(std::string_view name) const { return fmt::format("{}/{}", folder_, name); }
  const TensorEntry& tensor_of(const Stored& part) const {
    return files_[part.file].header().tensors[part.tensor];
  }

  DataParallel& model_;
  Group& group_;
  const std::string& path_;
  std::string folder_;
  Manifest manifest_;
  std::vector<std::string> warnings_;
  std::vector<ModelTensor> tensors_;  // of the model, where they are loaded to
  std::optional<SafetensorsFile> weights_;
  std::vector<SafetensorsFile> files_;  // by rank that wrote them
  std::map<std::string, std::size_t, std::less<>> index_of_;
  std::map<std::pair<std::string, std::string>, StoredState> stored_;  // (parameter, state)
};

Result<CheckpointInfo> inspect(const std::string& path) {
  const auto folder = find_checkpoint(path);
  if (!folder.ok()) return folder.status();
  const auto text = read_manifest_text(*folder);
  if (!text.ok()) return text.status();
  const auto manifest = parse_manifest(*text);
  if (!manifest.ok()) return manifest.status().annotate(fmt::format("{}/{}", *folder, kManifest));
  if (Status status = check_sizes(*manifest, *folder); !status.ok()) return status;
  return info_of(*manifest);
}

}  // namespace
}  // namespace tutti::checkpoint

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

Result<CheckpointInfo> inspect_checkpoint(const std::string& path) {
  return checkpoint::inspect(path);
}

Result<CheckpointInfo> load_checkpoint(DataParallel& model, const std::string& path) {
  auto info = checkpoint::Loading(model, path).run();
  if (!info.ok()) return info.status().annotate("loading a checkpoint");
  return info;
}

}  // namespace v1
}  // namespace tutti::train
