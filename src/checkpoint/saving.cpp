#include "checkpoint/saving.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>

#include "checkpoint/model_tensors.hpp"
#include "core/exhausted.hpp"
#include "core/json.hpp"
#include "train/agreement.hpp"

namespace tutti::checkpoint {

using train::agree;
using train::DataParallel;
using train::exchange_texts;
using train::Parameter;
using train::StatePiece;

namespace {

// Who stores what; the same answer on every rank.
Result<std::vector<std::vector<StateRange>>> share_state(DataParallel& model) {
  std::vector<StateRange> mine;
  for (const StatePiece& piece : model.state())
    mine.push_back({piece.parameter, std::string(piece.name), piece.first, piece.values.count});
  const auto texts = exchange_texts(model.group(), to_text(mine));
  if (!texts.ok()) return texts.status();
  std::vector<std::vector<StateRange>> kept;
  for (const std::string& text : *texts) {
    auto ranges = parse_ranges(text);
    if (!ranges.ok()) return ranges.status();
    kept.push_back(*std::move(ranges));
  }
  std::vector<std::size_t> counts;
  for (const Parameter& parameter : model.parameters()) counts.push_back(parameter.count());
  return share_out(kept, counts);
}

}  // namespace

// ---- with the model

Status Saving::prepare(DataParallel& model) {
  Status verdict = prepare_all(model);
  if (!verdict.ok()) discard();
  return verdict;
}

Status Saving::prepare_all(DataParallel& model) {
  Group& group = model.group();
  rank_ = group.rank();
  manifest_.ranks = group.size();
  if (Status status = agree(group, begin(model)); !status.ok()) return status;
  // Rank 0's folder is everybody's, wherever the others were started.
  auto target = train::share_text(group, publication_ ? publication_->temporary() : "", 0);
  if (!target.ok()) return target.status();
  target_ = *std::move(target);
  auto shares = share_state(model);
  Status mine = shares.status();
  if (mine.ok()) mine = list_state(model, (*shares)[static_cast<std::size_t>(rank_)]);
  if (rank_ == 0) list_model(model);
  if (mine.ok()) mine = or_exhausted([&] { return bring_here(model); });
  if (Status status = agree(group, mine); !status.ok()) return status;
  list_facts(model);
  return {};
}

Status Saving::begin(DataParallel& model) {
  if (info_.iteration < 0)
    return {Code::invalid_argument, fmt::format("iteration {} is negative", info_.iteration)};
  if (keep_ < 0) return {Code::invalid_argument, fmt::format("keep {} is negative", keep_)};
  for (const auto& [name, value] : info_.extra)
    if (!is_utf8(name) || !is_utf8(value))
      return {Code::invalid_argument, fmt::format("extra '{}' is not UTF-8", name)};
  if (Status status = model.parameters_ready(); !status.ok()) return status;
  if (rank_ != 0) return {};
  std::error_code error;
  const auto absolute = std::filesystem::absolute(folder_, error);
  if (error) return {Code::io, fmt::format("{}: {}", folder_, error.message())};
  auto publication = Publication::begin(absolute.string(), info_.iteration);
  if (!publication.ok()) return publication.status();
  publication_.emplace(*std::move(publication));
  return {};
}

Status Saving::list_state(DataParallel& model, const std::vector<StateRange>& share) {
  const std::vector<StatePiece> pieces = model.state();
  std::map<std::tuple<std::size_t, std::string_view, std::size_t>, const StatePiece*> by_start;
  for (const StatePiece& piece : pieces)
    if (piece.values.count > 0) by_start[{piece.parameter, piece.name, piece.first}] = &piece;
  for (const StateRange& range : share) {
    // A share lies within one piece: the last that does not begin behind it.
    auto at = by_start.upper_bound({range.parameter, range.state, range.first});
    const StatePiece* piece = at == by_start.begin() ? nullptr : std::prev(at)->second;
    if (piece == nullptr || piece->parameter != range.parameter || piece->name != range.state ||
        range.end() > piece->first + piece->values.count)
      return {Code::internal, "the optimizer's state changed while it was saved"};
    const auto* data = static_cast<const std::byte*>(piece->values.data) +
                       (range.first - piece->first) * size_of(piece->values.dtype);
    const std::string& parameter = model.parameters()[range.parameter].name;
    ConstBuffer values(data, range.count, piece->values.dtype);
    values.device = piece->values.device;
    state_.push_back({piece_name(parameter, range.state, range.first, range.count),
                      {static_cast<std::int64_t>(range.count)},
                      values});
  }
  return {};
}

// Other names of a tied tensor go where safetensors' own tools look for them.
void Saving::list_model(DataParallel& model) {
  model_metadata_ = {{"format", "pt"}};
  for (const ModelTensor& tensor : model_tensors(model)) {
    model_.push_back({tensor.name, tensor.shape, tensor.value});
    if (tensor.is_buffer) manifest_.buffers->push_back(tensor.name);
  }
  for (const Parameter& parameter : model.parameters())
    for (const std::string& alias : parameter.aliases) model_metadata_[alias] = parameter.name;
}

Status Saving::bring_here(DataParallel& model) {
  for (auto* tensors : {&state_, &model_})
    for (TensorToWrite& tensor : *tensors) {
      const ConstBuffer there = tensor.values;
      if (there.device == Device::cpu) continue;
      from_device_.push_back(std::make_unique_for_overwrite<std::byte[]>(there.bytes()));
      if (Status status = model.read(there, from_device_.back().get()); !status.ok()) return status;
      tensor.values = ConstBuffer(from_device_.back().get(), there.count, there.dtype);
    }
  return {};
}

void Saving::list_facts(DataParallel& model) {
  manifest_.iteration = info_.iteration;
  manifest_.extra = info_.extra;
  manifest_.order = info_.order.empty() ? model.order() : info_.order;
  const std::vector<std::int64_t> counts = model.step_counts();
  for (std::size_t i = 0; i < counts.size(); ++i)
    manifest_.step_counts[model.parameters()[i].name] = counts[i];
}

void Saving::keep_copies(CopyMemory& memory) {
  std::size_t bytes = 0;
  for (const auto* tensors : {&state_, &model_})
    for (const TensorToWrite& tensor : *tensors) bytes += tensor.values.bytes();
  if (memory.bytes < bytes) memory = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
  std::byte* at = memory.data.get();
  for (auto* tensors : {&state_, &model_})
    for (TensorToWrite& tensor : *tensors) {
      const ConstBuffer values = tensor.values;
      if (values.bytes() > 0) std::memcpy(at, values.data, values.bytes());
      tensor.values = ConstBuffer(at, values.count, values.dtype);
      at += values.bytes();
    }
}

// ---- without it

Status Saving::finish(Group& group) {
  Status verdict = finish_all(group);
  if (!verdict.ok()) discard();
  return verdict;
}

Status Saving::finish_all(Group& group) {
  const Status written = or_exhausted([&] { return write_files(); });  // nobody waits in vain
  if (Status status = agree(group, written); !status.ok()) return status;
  auto facts = exchange_texts(group, fmt::format("{} {}", state_facts_.bytes, state_facts_.sha256));
  if (!facts.ok()) return facts.status();
  const auto end = [&] { return rank_ == 0 ? complete(*facts) : Status(); };
  return agree(group, or_exhausted(end));
}

Status Saving::write_files() {
  Status status =
      write_file(state_file_name(rank_, manifest_.ranks), state_, Metadata(), state_facts_);
  if (!status.ok() || rank_ != 0) return status;
  return write_file(std::string(kModel), model_, model_metadata_, model_facts_);
}

Status Saving::write_file(const std::string& name, const std::vector<TensorToWrite>& tensors,
                          const Metadata& metadata, FileFacts& facts) {
  auto file = SafeFile::create(target_ + "/" + name);
  if (!file.ok()) return file.status();
  if (Status status = write_safetensors(*file, tensors, metadata); !status.ok()) return status;
  facts = {name, file->bytes(), file->sha256()};
  return file->commit();
}

Status Saving::complete(const std::vector<std::string>& facts) {
  manifest_.files.push_back(model_facts_);
  for (int rank = 0; rank < manifest_.ranks; ++rank) {
    const std::string& text = facts[static_cast<std::size_t>(rank)];
    FileFacts file{state_file_name(rank, manifest_.ranks), 0, text.substr(text.find(' ') + 1)};
    std::from_chars(text.data(), text.data() + text.size(), file.bytes);
    manifest_.files.push_back(std::move(file));
  }
  Status status = write_text(fmt::format("{}/{}", target_, kManifest), to_json(manifest_));
  if (!status.ok()) return status;
  if (status = publication_->publish(); !status.ok()) return status;
  return publication_->prune(keep_);
}

void Saving::discard() {
  if (publication_) publication_->discard();
}

}  // namespace tutti::checkpoint
