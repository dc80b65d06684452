#include "checkpoint/saving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <tuple>

#include "checkpoint/model_tensors.hpp"
#include "core/exhausted.hpp"
#include "core/json.hpp"
#include "train/agreement.hpp"

namespace tutti::checkpoint {

using train::agree;
using train::DataParallel;
using train::exchange_texts;
using train::HeldTensor;
using train::Parameter;
using train::StatePiece;

namespace {

// Which of the state each rank of a data group stores; the same answer on all of them.
Result<std::vector<std::vector<StateRange>>> share_state(DataParallel& model) {
  const std::vector<Parameter>& parameters = model.parameters();
  std::vector<StateRange> mine;
  for (const StatePiece& piece : model.state())
    if (parameters[piece.parameter].place.counted)
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
  for (const Parameter& parameter : parameters) counts.push_back(parameter.count());
  return share_out(kept, counts);
}

// The rank that writes each tensor, of those that have it: the largest first, each to the one with the
// least so far.
std::vector<int> share_tensors(const std::vector<HeldTensor>& tensors, int ranks) {
  const auto bytes = [&](std::size_t i) { return tensors[i].count() * size_of(tensors[i].dtype); };
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return bytes(a) > bytes(b); });
  std::vector<std::size_t> load(static_cast<std::size_t>(ranks), 0);
  std::vector<int> writers(tensors.size(), 0);
  for (const std::size_t i : order) {
    const auto& owners = tensors[i].owners;
    writers[i] = *std::min_element(owners.begin(), owners.end(), [&](int a, int b) {
      return load[static_cast<std::size_t>(a)] < load[static_cast<std::size_t>(b)];
    });
    load[static_cast<std::size_t>(writers[i])] += bytes(i);
  }
  return writers;
}

// A piece of a parameter, as a state file has it.
TensorToWrite piece_of(const Parameter& parameter, std::string state, std::size_t first,
                       const ConstBuffer& values) {
  PieceName name{parameter.name, std::move(state), train::box_of(parameter), first, values.count};
  if (train::count_of(name.box.extent) == train::count_of(name.box.whole)) name.box = {};
  return {to_text(name), {static_cast<std::int64_t>(values.count)}, values};
}

// "BYTES SHA256": what rank 0 has to know of a file.
std::string text_of(const FileFacts& facts) {
  return fmt::format("{} {} ", facts.bytes, facts.sha256);
}
FileFacts take_facts(std::string_view& text, std::string name) {
  FileFacts facts{std::move(name), 0, {}};
  const std::size_t blank = text.find(' ');
  std::from_chars(text.data(), text.data() + blank, facts.bytes);
  text.remove_prefix(blank + 1);
  facts.sha256 = text.substr(0, text.find(' '));
  text.remove_prefix(facts.sha256.size() + 1);
  return facts;
}

}  // namespace

// ---- with the model

Status Saving::prepare(DataParallel& model) {
  Status verdict = prepare_all(model);
  if (!verdict.ok()) discard();
  return verdict;
}

Status Saving::prepare_all(DataParallel& model) {
  Group& group = model.everyone();
  rank_ = group.rank();
  manifest_.ranks = group.size();
  if (Status status = agree(group, begin(model)); !status.ok()) return status;
  // Rank 0's folder is everybody's, wherever the others were started.
  auto target = train::share_text(group, publication_ ? publication_->temporary() : "", 0);
  if (!target.ok()) return target.status();
  target_ = *std::move(target);
  auto shares = share_state(model);
  Status mine = shares.status();
  if (mine.ok())
    mine = list_state(model, (*shares)[static_cast<std::size_t>(model.group().rank())]);
  if (Status status = agree(group, mine); !status.ok()) return status;
  if (Status status = exchange_facts(model); !status.ok()) return status;
  if (Status status = list_weights(model); !status.ok()) return status;
  return agree(group, or_exhausted([&] { return bring_here(model); }));
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
    ConstBuffer values(data, range.count, piece->values.dtype);
    values.device = piece->values.device;
    state_.push_back(
        piece_of(model.parameters()[range.parameter], range.state, range.first, values));
  }
  return {};
}

// What the manifest says of all parts of the model: a data group's first rank tells it for that part.
Status Saving::exchange_facts(DataParallel& model) {
  manifest_.iteration = info_.iteration;
  manifest_.extra = info_.extra;
  Json facts = Json::object();
  if (model.group().rank() == 0) {
    const std::vector<std::int64_t> counts = model.step_counts();
    Json steps = Json::object();
    for (std::size_t i = 0; i < counts.size(); ++i)
      steps.append(model.parameters()[i].name, counts[i]);
    Json buffers = Json::array();
    for (const train::ModuleBuffer& buffer : model.buffers())
      buffers.push_back({{"name", buffer.name},
                         {"dtype", safetensors_word(buffer.value.dtype)},
                         {"shape", buffer.shape}});
    facts = {{"step_counts", steps}, {"order", model.order()}, {"buffers", buffers}};
  }
  const auto texts = exchange_texts(model.everyone(), facts.dump());
  if (!texts.ok()) return texts.status();
  // Later stages first, as their gradients come: ranks of a pipeline rise with their stage.
  for (std::size_t rank = texts->size(); rank-- > 0;)
    if (Status status = read_facts(rank, (*texts)[rank]); !status.ok()) return status;
  if (!info_.order.empty() && &model.everyone() == &model.group()) manifest_.order = info_.order;
  return {};
}

Status Saving::read_facts(std::size_t rank, const std::string& text) {
  const auto facts = Json::parse(text);
  if (!facts.ok()) return facts.status();
  for (const auto& [name, count] : (*facts)["step_counts"].fields())
    manifest_.step_counts[name] = count.integer();
  for (const Json& name : (*facts)["order"].items())
    if (std::find(manifest_.order.begin(), manifest_.order.end(), name.string()) ==
        manifest_.order.end())
      manifest_.order.push_back(name.string());
  for (const Json& buffer : (*facts)["buffers"].items()) {
    ModelTensor tensor;
    tensor.name = buffer["name"].string();
    tensor.dtype = dtype_of_safetensors_word(buffer["dtype"].string()).value_or(Dtype::u8);
    tensor.is_buffer = true;
    for (const Json& extent : buffer["shape"].items()) tensor.shape.push_back(extent.integer());
    // The lowest rank that has it writes it; ranks come from the highest on.
    if (!buffer_writers_.contains(tensor.name)) manifest_.tensors.push_back(tensor);
    buffer_writers_[tensor.name] = static_cast<int>(rank);
  }
  return {};
}

Status Saving::list_weights(DataParallel& model) {
  const auto tensors = train::exchange_holdings(model);
  if (!tensors.ok()) return tensors.status();
  std::vector<ModelTensor> all;
  for (const HeldTensor& tensor : *tensors)
    all.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.aliases, false});
  manifest_.tensors.insert(manifest_.tensors.begin(), all.begin(), all.end());
  if (std::any_of(tensors->begin(), tensors->end(),
                  [](const HeldTensor& tensor) { return tensor.is_cut(); })) {
    list_boxes(model);
    return {};
  }
  return list_tensors(model, *tensors);
}

// Into the state file.
void Saving::list_boxes(DataParallel& model) {
  for (const StatePiece& piece : model.weights()) {
    const Parameter& parameter = model.parameters()[piece.parameter];
    if (parameter.place.counted && piece.values.count > 0)
      state_.push_back(piece_of(parameter, std::string(piece.name), piece.first, piece.values));
  }
  for (const train::ModuleBuffer& buffer : model.buffers()) {
    if (model.group().rank() != 0 || buffer_writers_[buffer.name] != rank_) continue;
    const PieceName name{buffer.name, std::string(kBufferState), {}, 0, buffer.value.count};
    state_.push_back(
        {to_text(name), {static_cast<std::int64_t>(buffer.value.count)}, buffer.value});
  }
}

// Other names of a tied tensor go where safetensors' own tools look for them.
Status Saving::list_tensors(DataParallel& model, const std::vector<HeldTensor>& tensors) {
  const std::vector<int> writers = share_tensors(tensors, manifest_.ranks);
  std::map<std::string_view, std::size_t> index;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    index[tensors[i].name] = i;
    file_of_[tensors[i].name] = writers[i];
    if (model.keeps_whole_weights()) continue;
    if (Status status = collect(model, tensors[i], writers[i]); !status.ok()) return status;
  }
  // In the model's order.
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const auto found = index.find(model.parameters()[i].name);
    if (!model.parameters()[i].place.counted || writers[found->second] != rank_) continue;
    const HeldTensor& tensor = tensors[found->second];
    if (model.keeps_whole_weights())
      model_.push_back({tensor.name, tensor.shape, model.parameter(i)});
    for (const std::string& alias : tensor.aliases) model_metadata_[alias] = tensor.name;
  }
  for (const train::ModuleBuffer& buffer : model.buffers())
    if (model.group().rank() == 0 && buffer_writers_[buffer.name] == rank_)
      model_.push_back({buffer.name, buffer.shape, buffer.value});
  file_of_.insert(buffer_writers_.begin(), buffer_writers_.end());
  if (!model_.empty()) model_metadata_["format"] = "pt";
  number_files(writers);
  return {};
}

// Of writers the lowest has the first file.
void Saving::number_files(const std::vector<int>& writers) {
  std::set<int> all(writers.begin(), writers.end());
  for (const auto& [name, writer] : buffer_writers_) all.insert(writer);
  file_writers_.assign(all.begin(), all.end());
  for (auto& [name, file] : file_of_)
    file = static_cast<int>(std::distance(all.begin(), all.find(file)));
}

// Where nobody has the whole of it.
Status Saving::collect(DataParallel& model, const HeldTensor& tensor, int writer) {
  const std::size_t size = size_of(tensor.dtype);
  const bool is_mine = writer == rank_;
  Buffer whole{is_mine ? copy_memory(tensor.count() * size) : nullptr, is_mine ? tensor.count() : 0,
               tensor.dtype};
  if (is_mine) model_.push_back({tensor.name, tensor.shape, whole});
  // What is wrong with this rank's part is told when all are through.
  return train::collect(model, tensor, writer, whole, unread_);
}

std::byte* Saving::copy_memory(std::size_t bytes) {
  copies_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
  copied_.insert(copies_.back().get());
  return copies_.back().get();
}

Status Saving::bring_here(DataParallel& model) {
  if (!unread_.ok()) return unread_;
  for (auto* tensors : {&state_, &model_})
    for (TensorToWrite& tensor : *tensors) {
      const ConstBuffer there = tensor.values;
      if (there.device == Device::cpu) continue;
      std::byte* here = copy_memory(there.bytes());
      if (Status status = model.read(there, here); !status.ok()) return status;
      tensor.values = ConstBuffer(here, there.count, there.dtype);
    }
  return {};
}

void Saving::keep_copies(CopyMemory& memory) {
  const auto is_copied = [&](const TensorToWrite& tensor) {
    return copied_.contains(tensor.values.data);
  };
  std::size_t bytes = 0;
  for (const auto* tensors : {&state_, &model_})
    for (const TensorToWrite& tensor : *tensors)
      if (!is_copied(tensor)) bytes += tensor.values.bytes();
  if (memory.bytes < bytes) memory = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
  std::byte* at = memory.data.get();
  for (auto* tensors : {&state_, &model_})
    for (TensorToWrite& tensor : *tensors) {
      const ConstBuffer values = tensor.values;
      if (is_copied(tensor)) continue;
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
  auto facts = exchange_texts(group, text_of(state_facts_) + text_of(model_facts_));
  if (!facts.ok()) return facts.status();
  const auto end = [&] { return rank_ == 0 ? complete(*facts) : Status(); };
  return agree(group, or_exhausted(end));
}

Status Saving::write_files() {
  Status status =
      write_file(state_file_name(rank_, manifest_.ranks), state_, Metadata(), state_facts_);
  const auto mine = std::find(file_writers_.begin(), file_writers_.end(), rank_);
  if (!status.ok() || mine == file_writers_.end()) return status;
  const auto file = static_cast<int>(mine - file_writers_.begin());
  return write_file(model_file_name(file, static_cast<int>(file_writers_.size())), model_,
                    model_metadata_, model_facts_);
}

Status Saving::write_file(const std::string& name, const std::vector<TensorToWrite>& tensors,
                          const Metadata& metadata, FileFacts& facts) {
  auto file = SafeFile::create(target_ + "/" + name);
  if (!file.ok()) return file.status();
  if (Status status = write_safetensors(*file, tensors, metadata); !status.ok()) return status;
  facts = {name, file->bytes(), file->sha256()};
  return file->commit();
}

// Which file each tensor is in, as other tools want it.
Status Saving::write_index() {
  std::uint64_t bytes = 0;
  for (const ModelTensor& tensor : manifest_.tensors)
    bytes += train::count_of(tensor.shape) * size_of(tensor.dtype);
  Json files = Json::object();
  for (const auto& [name, file] : file_of_)
    files.append(name, model_file_name(file, static_cast<int>(file_writers_.size())));
  const std::string text =
      Json{{"metadata", Json{{"total_size", bytes}}}, {"weight_map", files}}.dump(2) + "\n";
  manifest_.files.push_back({std::string(kIndex), text.size(), sha256_of(text)});
  return write_text(fmt::format("{}/{}", target_, kIndex), text);
}

Status Saving::complete(const std::vector<std::string>& facts) {
  const auto files = static_cast<int>(file_writers_.size());
  std::vector<FileFacts> states;
  for (int rank = 0; rank < manifest_.ranks; ++rank) {
    std::string_view text = facts[static_cast<std::size_t>(rank)];
    states.push_back(take_facts(text, state_file_name(rank, manifest_.ranks)));
    const auto writer = std::find(file_writers_.begin(), file_writers_.end(), rank);
    if (writer == file_writers_.end()) continue;
    const auto file = static_cast<int>(writer - file_writers_.begin());
    manifest_.files.push_back(take_facts(text, model_file_name(file, files)));
  }
  if (Status status = files > 1 ? write_index() : Status(); !status.ok()) return status;
  manifest_.files.insert(manifest_.files.end(), states.begin(), states.end());
  Status status = write_text(fmt::format("{}/{}", target_, kManifest), to_json(manifest_));
  if (!status.ok()) return status;
  if (status = publication_->publish(); !status.ok()) return status;
  return publication_->prune(keep_);
}

void Saving::discard() {
  if (publication_) publication_->discard();
}

}  // namespace tutti::checkpoint
