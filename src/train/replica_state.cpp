// What a checkpoint needs of a replica, and how replicas are compared.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "train/agreement.hpp"
#include "train/replica.hpp"

namespace tutti::train {

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
  for (const auto& bucket : buckets_) bucket->widen_values();
  return {};
}

Status Replica::adopt_state(std::int64_t step) {
  number_ = step;
  if (Status status = copy_shard_now(); !status.ok()) return fail(status);
  return {};
}

// By name: the order in which a model defines its parameters is no part of its weights.
Digest::Value Replica::digest_of_weights() {
  std::vector<std::size_t> by_name(parameters_.size());
  std::iota(by_name.begin(), by_name.end(), std::size_t{0});
  std::sort(by_name.begin(), by_name.end(), [&](std::size_t a, std::size_t b) {
    return parameters_[a].name < parameters_[b].name;
  });
  Digest digest;
  std::vector<std::byte> bytes;
  for (const std::size_t index : by_name) {
    const Buffer values = parameter(index);
    digest.add_text(parameters_[index].name);
    digest.add_text(to_string(values.dtype));
    digest.add_number(static_cast<std::int64_t>(values.bytes()));
    if (values.device == Device::cpu) {
      digest.add(values.data, values.bytes());
      continue;
    }
    bytes.resize(values.bytes());
    workplace_->copy_now(bytes.data(), values.data, values.bytes());
    digest.add(bytes.data(), bytes.size());
  }
  return digest.value();
}

Result<std::string> Replica::weight_hash() {
  if (Status status = parameters_ready(); !status.ok()) return status;
  const Digest::Value digest = digest_of_weights();
  if (Status status = workplace_->status(); !status.ok()) return fail(status);
  return to_hex(digest);
}

Status Replica::check_weights() {
  if (Status status = parameters_ready(); !status.ok()) return status;
  auto others = ranks_that_differ(*group_, digest_of_weights());
  if (!others.ok()) return fail(others.status());
  if (others->empty()) return {};
  return fail(Status(Code::mismatch,
                     fmt::format("weights differ from rank 0's on rank{} {}; resume from the last "
                                 "checkpoint",
                                 others->size() > 1 ? "s" : "", fmt::join(*others, ", "))));
}

}  // namespace tutti::train
