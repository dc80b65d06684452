// What a checkpoint needs of a replica, and how replicas are compared.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "train/agreement.hpp"
#include "train/replica.hpp"

namespace tutti::train {
namespace {

// What a tensor's values are in a hash of weights.
void add_heading(const std::string& name, Dtype dtype, std::size_t count, Digest& digest) {
  digest.add_text(name);
  digest.add_text(to_string(dtype));
  digest.add_number(static_cast<std::int64_t>(count * size_of(dtype)));
}

}  // namespace

std::vector<StatePiece> Replica::state() {
  learning_ = false;  // whoever holds pieces of the state holds the layout as well
  is_pristine_ = false;
  const auto names = moment_names(options_.optimizer);
  std::vector<StatePiece> pieces;
  for (const auto& bucket : buckets_) {
    for (std::size_t index : bucket->plan().parameters) {
      const Range whole = range_of(index);
      const Range part = overlap_of(whole, bucket->own());
      if (part.count == 0) continue;
      const std::size_t at = part.first - bucket->own().first;
      const auto add = [&](std::string_view name, float* values) {
        const Buffer piece{values + at, part.count, Dtype::f32, workplace_->device()};
        pieces.push_back({index, part.first - whole.first, name, piece});
      };
      if (bucket->has_main_copy()) add("main", bucket->main_weights());
      for (std::size_t m = 0; m < names.size(); ++m)
        add(names[m], bucket->moment(static_cast<int>(m)));
    }
  }
  return pieces;
}

// Shards, in every mode. Frozen ones lie outside of buckets: they are the first rank's.
std::vector<StatePiece> Replica::weights() {
  std::vector<StatePiece> pieces;
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    if (!layout_.place[index]) {
      if (group_->rank() == 0) pieces.push_back({index, 0, "weight", parameters_[index].value});
      continue;
    }
    const Range whole = range_of(index);
    const Range part = overlap_of(whole, bucket_of(index).shard());
    if (part.count > 0)
      pieces.push_back(
          {index, part.first - whole.first, "weight", bucket_of(index).shard_values(part)});
  }
  return pieces;
}

Status Replica::read(const ConstBuffer& view, void* to) {
  if (view.device == Device::cpu) return DataParallel::read(view, to);
  workplace_->copy_now(to, view.data, view.bytes());
  return workplace_->status();
}

Status Replica::write(const Buffer& view, const void* from) {
  if (view.device == Device::cpu) return DataParallel::write(view, from);
  workplace_->copy_now(view.data, from, view.bytes());
  return workplace_->status();
}

Status Replica::set_step_counts(std::span<const std::int64_t> counts) {
  if (counts.size() != steps_.size())
    return Status(Code::invalid_argument,
                  fmt::format("{} step counts for {} parameters", counts.size(), steps_.size()));
  steps_.assign(counts.begin(), counts.end());
  return {};
}

Status Replica::adopt_parameters() {
  if (Status status = parameters_ready(); !status.ok()) return status;
  if (Status status = end_gathers(); !status.ok()) return fail(status);  // of the values before
  for (const auto& bucket : buckets_) {
    if (keeps_whole_weights()) {
      const Buffer values = bucket->values();
      Status status = group_->all_gather(bucket->values(bucket->shard()), values, call_on(values));
      if (!status.ok()) return fail(status);
    }
    bucket->widen_values();
  }
  if (Status status = broadcast_frozen(*group_); !status.ok()) return fail(status);
  return workplace_->status();
}

Status Replica::adopt_state(std::int64_t step) {
  number_ = step;
  if (Status status = copy_shard_now(); !status.ok()) return fail(status);
  return {};
}

// The order in which a model defines its parameters is no part of its weights.
std::vector<std::size_t> Replica::by_name() const {
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return parameters_[a].name < parameters_[b].name;
  });
  return order;
}

Status Replica::add_values(std::size_t index, Digest& digest) {
  if (!keeps_whole_weights() && layout_.place[index])
    if (Status status = gatherer_.need(index); !status.ok()) return status;
  const Buffer values = parameter(index);
  if (values.device == Device::cpu) {
    digest.add(values.data, values.bytes());
  } else {
    std::vector<std::byte> bytes(values.bytes());
    workplace_->copy_now(bytes.data(), values.data, values.bytes());
    digest.add(bytes.data(), bytes.size());
  }
  if (!keeps_whole_weights()) (void)gatherer_.done(index);
  return {};
}

Result<Digest::Value> Replica::digest_of_weights() {
  Digest digest;
  for (const std::size_t index : by_name()) {
    add_heading(parameters_[index].name, parameters_[index].value.dtype, parameters_[index].count(),
                digest);
    if (Status status = add_values(index, digest); !status.ok()) return status;
  }
  return digest.value();
}

// Tensor by tensor, on rank 0 of everyone.
Result<Digest::Value> Replica::digest_of_the_whole() {
  const std::vector<StatePiece> pieces = weights();
  const auto tensors = exchange_holdings(*this);
  if (!tensors.ok()) return tensors.status();
  const bool is_root = everyone().rank() == 0;
  Digest digest;
  std::vector<std::byte> mine, whole;
  for (const HeldTensor& tensor : *tensors) {
    std::vector<const StatePiece*> parts;
    for (const StatePiece& piece : pieces)
      if (parameters_[piece.parameter].name == tensor.name &&
          parameters_[piece.parameter].place.counted)
        parts.push_back(&piece);
    if (Status status = read_pieces(parts, mine); !status.ok()) return status;
    if (is_root) whole.resize(tensor.count() * size_of(tensor.dtype));
    Status status = train::collect(everyone(), tensor,
                                   {mine.data(), mine.size() / size_of(tensor.dtype), tensor.dtype},
                                   0, {whole.data(), is_root ? tensor.count() : 0, tensor.dtype});
    if (!status.ok()) return status;
    if (!is_root) continue;
    add_heading(tensor.name, tensor.dtype, tensor.count(), digest);
    digest.add(whole.data(), whole.size());
  }
  Digest::Value value = digest.value();
  Status status = everyone().broadcast(Buffer::of(value), 0);
  if (!status.ok()) return status;
  return value;
}

Status Replica::read_pieces(const std::vector<const StatePiece*>& pieces,
                            std::vector<std::byte>& bytes) {
  bytes.clear();
  for (const StatePiece* piece : pieces) {
    const std::size_t at = bytes.size();
    bytes.resize(at + piece->values.bytes());
    if (Status status = read(piece->values, bytes.data() + at); !status.ok()) return status;
  }
  return {};
}

Result<std::string> Replica::weight_hash() {
  if (Status status = parameters_ready(); !status.ok()) return status;
  if (norm_group_) {
    const auto digest = digest_of_the_whole();
    if (!digest.ok()) return fail(digest.status());
    return to_hex(*digest);
  }
  const auto digest = digest_of_weights();
  if (!digest.ok()) return fail(digest.status());
  if (Status status = workplace_->status(); !status.ok()) return fail(status);
  return to_hex(*digest);
}

Status Replica::check_weights() {
  if (Status status = parameters_ready(); !status.ok()) return status;
  const auto digest = digest_of_weights();
  if (!digest.ok()) return fail(digest.status());
  auto others = ranks_that_differ(*group_, *digest);
  if (!others.ok()) return fail(others.status());
  Status mine;
  if (!others->empty())
    mine = {Code::mismatch,
            fmt::format("weights differ from rank 0's on rank{} {}; resume from the "
                        "last checkpoint",
                        others->size() > 1 ? "s" : "", fmt::join(*others, ", "))};
  if (norm_group_) {
    if (Status status = train::agree(everyone(), mine); !status.ok()) return fail(status);
    mine = compare_data_groups();
  }
  return mine.ok() ? mine : fail(mine);
}

// Boxes that several data groups have: whoever drifts apart there trains another model.
Status Replica::compare_data_groups() {
  // Of each parameter: which box of which tensor, and its values.
  std::string mine;
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    Digest which, values;
    which.add_text(parameters_[index].name);
    const TensorBox box = box_of(parameters_[index]);
    for (const auto* numbers : {&box.whole, &box.first, &box.extent})
      which.add_text(to_text(*numbers));
    if (Status status = add_values(index, values); !status.ok()) return status;
    for (Digest* digest : {&which, &values}) {
      const Digest::Value value = digest->value();
      mine.append(reinterpret_cast<const char*>(value.data()), value.size());
    }
  }
  const auto texts = exchange_texts(everyone(), mine);
  if (!texts.ok()) return texts.status();
  constexpr std::size_t kDigest = sizeof(Digest::Value);
  std::map<std::string_view, std::pair<std::string_view, std::size_t>>
      here;  // values, and parameter
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::string_view pair = std::string_view(mine).substr(2 * kDigest * i, 2 * kDigest);
    here[pair.substr(0, kDigest)] = {pair.substr(kDigest), i};
  }
  Status verdict;
  for (std::size_t rank = 0; rank < texts->size() && verdict.ok(); ++rank)
    for (std::size_t at = 0; at < (*texts)[rank].size(); at += 2 * kDigest) {
      const std::string_view pair = std::string_view((*texts)[rank]).substr(at, 2 * kDigest);
      const auto same = here.find(pair.substr(0, kDigest));
      if (same == here.end() || same->second.first == pair.substr(kDigest)) continue;
      verdict = {
          Code::mismatch,
          fmt::format("parameter {} has other values on rank {}, which holds the same part of "
                      "it; resume from the last checkpoint",
                      parameters_[same->second.second].name, rank)};
    }
  return train::agree(everyone(), verdict);
}

}  // namespace tutti::train
