// The reading half of tutti/train/checkpoint.hpp.
//
// Nothing of the model is touched before everything has been looked at: rank 0 finds the checkpoint
// and tells all what its manifest says, each rank hashes some of the files, and all compare the
// headers with the model. Then each rank reads those weights that it answers for, which the layer hands on
// to whoever has copies of them, and those elements of the state that it keeps itself.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "checkpoint/archive.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/state_ranges.hpp"
#include "train/agreement.hpp"
#include "tutti/train/checkpoint.hpp"

namespace tutti::checkpoint {
namespace {

using train::agree;
using train::CheckpointInfo;
using train::DataParallel;
using train::ModuleBuffer;
using train::Parameter;
using train::share_text;
using train::StatePiece;

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
      : model_(model), group_(model.everyone()), path_(path) {}

  Result<CheckpointInfo> run() {
    if (Status status = find(); !status.ok()) return status;
    if (Status status = agree(group_, verify()); !status.ok()) return status;
    if (Status status = agree(group_, open_archive()); !status.ok()) return status;
    if (Status status = compare_models(folder_, archive_->tensors(), ours(), group_); !status.ok())
      return status;
    if (Status status = agree(group_, check_stored()); !status.ok()) return status;
    if (Status status = agree(group_, read_weights()); !status.ok()) return status;
    if (Status status = model_.adopt_parameters(); !status.ok()) return status;
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

  Status open_archive() {
    auto archive = Archive::open(folder_, manifest_);
    if (!archive.ok()) return archive.status();
    archive_.emplace(*std::move(archive));
    buffers_ = model_.buffers();
    return {};
  }

  std::vector<ModelTensor> ours() {
    std::vector<ModelTensor> tensors = model_tensors(model_);
    if (manifest_.version == 1) leave_buffers_out(tensors);
    return tensors;
  }

  // They stay as they are.
  void leave_buffers_out(std::vector<ModelTensor>& tensors) {
    std::vector<std::string> names;
    for (const ModelTensor& tensor : tensors)
      if (tensor.is_buffer) names.push_back("'" + tensor.name + "'");
    std::erase_if(tensors, [](const ModelTensor& tensor) { return tensor.is_buffer; });
    buffers_.clear();
    if (names.empty()) return;
    warnings_.push_back(
        fmt::format("{} is of version 1, which holds no module buffers: {} {} not "
                    "loaded",
                    folder_, fmt::join(names, ", "), names.size() == 1 ? "was" : "were"));
  }

  Wanted wanted(const StatePiece& piece) const {
    const Parameter& parameter = model_.parameters()[piece.parameter];
    return {parameter.name, std::string(piece.name), train::box_of(parameter),
            piece.first,    piece.values.count,      piece.values.dtype};
  }
  static Wanted wanted(const ModuleBuffer& buffer) {
    const auto count = static_cast<std::int64_t>(buffer.value.count);
    return {buffer.name, std::string(kBufferState), {{count}, {0}, {count}},
            0,           buffer.value.count,        buffer.value.dtype};
  }

  Status check_stored() {
    for (const Parameter& parameter : model_.parameters())
      if (!manifest_.step_counts.contains(parameter.name))
        return {Code::corrupt,
                fmt::format("{}: has no step count of '{}'", path_of(kManifest), parameter.name)};
    for (const StatePiece& piece : model_.weights())
      if (Status status = archive_->check(wanted(piece)); !status.ok()) return status;
    for (const StatePiece& piece : model_.state())
      if (Status status = check_state(piece); !status.ok()) return status;
    for (const ModuleBuffer& buffer : buffers_)
      if (Status status = archive_->check(wanted(buffer)); !status.ok()) return status;
    return {};
  }

  Status check_state(const StatePiece& piece) const {
    const Wanted mine = wanted(piece);
    if (mine.count == 0) return {};
    if (archive_->has(mine.tensor, mine.state)) return archive_->check(mine);
    // Main weights follow the weights; what was never updated has a state of zeros.
    if (piece.name == kMainState || manifest_.step_counts.at(mine.tensor) == 0) return {};
    return {Code::mismatch, fmt::format("{}: has no {} of parameter '{}': it was saved with "
                                        "another optimizer",
                                        folder_, piece.name, mine.tensor)};
  }

  Status read_weights() {
    for (const StatePiece& piece : model_.weights())
      if (Status status = read_into(wanted(piece), piece.values); !status.ok()) return status;
    for (const ModuleBuffer& buffer : buffers_)
      if (Status status = read_into(wanted(buffer), buffer.value); !status.ok()) return status;
    return {};
  }

  // Into memory of the model's, wherever that lies.
  Status read_into(const Wanted& wanted, const Buffer& into) const {
    if (into.device == Device::cpu)
      return archive_->read(wanted, static_cast<std::byte*>(into.data));
    std::vector<std::byte> here(into.bytes());
    if (Status status = archive_->read(wanted, here.data()); !status.ok()) return status;
    return model_.write(into, here.data());
  }

  Status restore_state() {
    std::vector<std::int64_t> counts;
    for (const Parameter& parameter : model_.parameters())
      counts.push_back(manifest_.step_counts.at(parameter.name));
    if (Status status = model_.set_step_counts(counts); !status.ok()) return status;
    for (const StatePiece& piece : model_.state())
      if (Status status = restore(piece); !status.ok()) return status;
    return {};
  }

  Status restore(const StatePiece& piece) const {
    const Wanted mine = wanted(piece);
    if (archive_->has(mine.tensor, mine.state)) return read_into(mine, piece.values);
    if (piece.name == kMainState || mine.count == 0) return {};
    return model_.write(piece.values, std::vector<std::byte>(piece.values.bytes()).data());
  }

  std::string path_of(std::string_view name) const { return fmt::format("{}/{}", folder_, name); }

  DataParallel& model_;
  Group& group_;
  const std::string& path_;
  std::string folder_;
  Manifest manifest_;
  std::vector<std::string> warnings_;
  std::optional<Archive> archive_;
  std::vector<ModuleBuffer> buffers_;  // of the model, where they are loaded to
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
