// The writing half of tutti/train/checkpoint.hpp.
//
//   rank 0          every rank                      rank 0
//   makes .tmp_…    writes its share of the state   collects sizes and digests, writes the
//   manifest,
//                   (rank 0 the model too)          gives the folder its name, writes `latest`
//
// After each part the ranks agree, so that all go on or all stop with the same words.
#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <tuple>

#include "checkpoint/folder.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/model_tensors.hpp"
#include "checkpoint/safetensors/safetensors.hpp"
#include "checkpoint/state_ranges.hpp"
#include "core/json.hpp"
#include "train/agreement.hpp"
#include "tutti/train/checkpoint.hpp"

namespace tutti::checkpoint {
namespace {

using train::agree;
using train::CheckpointInfo;
using train::DataParallel;
using train::exchange_texts;
using train::Parameter;
using train::share_text;
using train::StatePiece;

class Saving {
 public:
  Saving(DataParallel& model, const std::string& folder, const CheckpointInfo& info, int keep)
      : model_(model), group_(model.group()), folder_(folder), info_(info), keep_(keep) {}

  Status run() {
    const Status verdict = write_all();
    if (!verdict.ok() && publication_) publication_->discard();
    return verdict;
  }

 private:
  bool is_first() const { return group_.rank() == 0; }

  Status write_all() {
    if (Status status = agree(group_, begin()); !status.ok()) return status;
    // Rank 0's folder is everybody's, wherever the others were started.
    auto target = share_text(group_, publication_ ? publication_->temporary() : "", 0);
    if (!target.ok()) return target.status();
    target_ = *std::move(target);
    auto shares = share_state();
    if (Status status = agree(group_, shares.status()); !status.ok()) return status;
    const auto rank = static_cast<std::size_t>(group_.rank());
    if (Status status = agree(group_, write_files((*shares)[rank])); !status.ok()) return status;
    auto facts = exchange_texts(group_, fmt::format("{} {}", state_.bytes, state_.sha256));
    if (!facts.ok()) return facts.status();
    return agree(group_, is_first() ? complete(*facts) : Status());
  }

  Status begin() {
    if (info_.iteration < 0)
      return {Code::invalid_argument, fmt::format("iteration {} is negative", info_.iteration)};
    if (keep_ < 0) return {Code::invalid_argument, fmt::format("keep {} is negative", keep_)};
    for (const auto& [name, value] : info_.extra)
      if (!is_utf8(name) || !is_utf8(value))
        return {Code::invalid_argument, fmt::format("extra '{}' is not UTF-8", name)};
    if (Status status = model_.parameters_ready(); !status.ok()) return status;
    if (!is_first()) return {};
    std::error_code error;
    const auto absolute = std::filesystem::absolute(folder_, error);
    if (error) return {Code::io, fmt::format("{}: {}", folder_, error.message())};
    auto publication = Publication::begin(absolute.string(), info_.iteration);
    if (!publication.ok()) return publication.status();
    publication_.emplace(*std::move(publication));
    return {};
  }

  // Who stores what; the same answer on every rank.
  Result<std::vector<std::vector<StateRange>>> share_state() {
    std::vector<StateRange> mine;
    for (const StatePiece& piece : model_.state())
      mine.push_back({piece.parameter, std::string(piece.name), piece.first, piece.values.count});
    const auto texts = exchange_texts(group_, to_text(mine));
    if (!texts.ok()) return texts.status();
    std::vector<std::vector<StateRange>> kept;
    for (const std::string& text : *texts) {
      auto ranges = parse_ranges(text);
      if (!ranges.ok()) return ranges.status();
      kept.push_back(*std::move(ranges));
    }
    std::vector<std::size_t> counts;
    for (const Parameter& parameter : model_.parameters()) counts.push_back(parameter.count());
    return share_out(kept, counts);
  }

  Status write_files(const std::vector<StateRange>& share) {
    if (Status status = write_state(share); !status.ok()) return status;
    return is_first() ? write_model() : Status();
  }

  Status write_state(const std::vector<StateRange>& share) {
    const std::vector<StatePiece> pieces = model_.state();
    std::map<std::tuple<std::size_t, std::string_view, std::size_t>, const StatePiece*> by_start;
    for (const StatePiece& piece : pieces)
      if (piece.values.count > 0) by_start[{piece.parameter, piece.name, piece.first}] = &piece;
    std::vector<TensorToWrite> tensors;
    for (const StateRange& range : share) {
      // A share lies within one piece: the last that does not begin behind it.
      auto at = by_start.upper_bound({range.parameter, range.state, range.first});
      const StatePiece* piece = at == by_start.begin() ? nullptr : std::prev(at)->second;
      if (piece == nullptr || piece->parameter != range.parameter || piece->name != range.state ||
          range.end() > piece->first + piece->values.count)
        return {Code::internal, "the optimizer's state changed while it was saved"};
      const auto* data = static_cast<const std::byte*>(piece->values.data) +
                         (range.first - piece->first) * size_of(piece->values.dtype);
      const std::string& parameter = model_.parameters()[range.parameter].name;
      tensors.push_back({piece_name(parameter, range.state, range.first, range.count),
                         {static_cast<std::int64_t>(range.count)},
                         ConstBuffer(data, range.count, piece->values.dtype)});
    }
    return write_file(state_file_name(group_.rank(), group_.size()), tensors, {}, state_);
  }

  // Other names of a tied tensor go where safetensors' own tools look for them.
  Status write_model() {
    std::vector<TensorToWrite> tensors;
    Metadata metadata{{"format", "pt"}};
    for (const ModelTensor& tensor : model_tensors(model_)) {
      tensors.push_back({tensor.name, tensor.shape, tensor.value});
      if (tensor.is_buffer) buffers_.push_back(tensor.name);
    }
    for (const Parameter& parameter : model_.parameters())
      for (const std::string& alias : parameter.aliases) metadata[alias] = parameter.name;
    return write_file(std::string(kModel), tensors, metadata, weights_);
  }

  Status write_file(const std::string& name, const std::vector<TensorToWrite>& tensors,
                    const Metadata& metadata, FileFacts& facts) {
    auto file = SafeFile::create(target_ + "/" + name);
    if (!file.ok()) return file.status();
    if (Status status = write_safetensors(*file, tensors, metadata); !status.ok()) return status;
    facts = {name, file->bytes(), file->sha256()};
    return file->commit();
  }

  Status complete(const std::vector<std::string>& facts) {
    Manifest manifest;
    manifest.iteration = info_.iteration;
    manifest.ranks = group_.size();
    manifest.extra = info_.extra;
    manifest.order = info_.order.empty() ? model_.order() : info_.order;
    manifest.buffers = buffers_;
    manifest.files.push_back(weights_);
    for (int rank = 0; rank < group_.size(); ++rank) {
      const std::string& text = facts[static_cast<std::size_t>(rank)];
      FileFacts file{state_file_name(rank, group_.size()), 0, text.substr(text.find(' ') + 1)};
      std::from_chars(text.data(), text.data() + text.size(), file.bytes);
      manifest.files.push_back(std::move(file));
    }
    const std::vector<std::int64_t> counts = model_.step_counts();
    for (std::size_t i = 0; i < counts.size(); ++i)
      manifest.step_counts[model_.parameters()[i].name] = counts[i];
    Status status = write_text(fmt::format("{}/{}", target_, kManifest), to_json(manifest));
    if (!status.ok()) return status;
    if (status = publication_->publish(); !status.ok()) return status;
    return publication_->prune(keep_);
  }

  DataParallel& model_;
  Group& group_;
  const std::string& folder_;
  const CheckpointInfo& info_;
  int keep_;
  std::optional<Publication> publication_;  // on rank 0
  std::string target_;
  FileFacts state_, weights_;
  std::vector<std::string> buffers_;  // names, on rank 0
};

}  // namespace
}  // namespace tutti::checkpoint

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

Status save_checkpoint(DataParallel& model, const std::string& folder, const CheckpointInfo& info,
                       int keep) {
  return checkpoint::Saving(model, folder, info, keep).run().annotate("saving a checkpoint");
}

}  // namespace v1
}  // namespace tutti::train
