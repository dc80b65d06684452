#include "train/fake_replica.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::test {
namespace {

// Not a number that a zeroed or shifted array would have; exact in f32.
float value_of(int version, std::size_t parameter, const std::string& kind, std::size_t element) {
  if (version == 0) return 0;
  const std::size_t seed = parameter * 131 + kind.size() * 17 + static_cast<std::size_t>(kind[0]);
  return static_cast<float>(
      (seed * 7919 + element * 31 + static_cast<std::size_t>(version) * 613) % 16'000'000 + 1);
}

void put(Dtype dtype, std::byte* at, float value) {
  if (dtype == Dtype::f32) {
    std::memcpy(at, &value, sizeof value);
  } else {  // any 16 bits will do
    const auto bits = static_cast<std::uint16_t>(static_cast<std::uint32_t>(value));
    std::memcpy(at, &bits, sizeof bits);
  }
}

std::size_t count_of(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

std::vector<std::byte> weights_of(int version, std::size_t parameter, Dtype dtype,
                                  std::size_t count) {
  std::vector<std::byte> bytes(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i)
    put(dtype, bytes.data() + i * size_of(dtype), value_of(version, parameter, "weight", i));
  return bytes;
}

}  // namespace

const char* to_string(Split split) {
  switch (split) {
    case Split::everything: return "everything";
    case Split::shards: return "shards";
    case Split::scattered: return "scattered";
  }
  return "?";
}

std::vector<FakeParameter> fake_parameters() {
  return {{"embedding.weight", {37, 11}, Dtype::f32, false, {"head.weight"}},
          {"first", {5}},
          {"layers.0|odd \"name\" \xc3\xa9", {7, 3, 2}},
          {"layers.1.bf16", {129}, Dtype::bf16},
          {"scalar", {}},
          {"empty", {0, 4}},
          {"frozen", {19}, Dtype::f32, true},
          {"last", {1000}}};
}

FakeReplica::FakeReplica(Group& group, Split split, const std::vector<FakeParameter>& parameters)
    : group_(group), steps_(parameters.size(), 0) {
  std::size_t all = 0;
  for (const FakeParameter& fake : parameters) {
    const std::size_t count = count_of(fake.shape);
    memory_.emplace_back(count * size_of(fake.dtype));
    parameters_.push_back({fake.name,
                           fake.aliases,
                           fake.shape,
                           {memory_.back().data(), count, fake.dtype},
                           0,
                           fake.frozen});
    all += count;
  }
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::size_t>(group.rank());
  const std::size_t shard = all / ranks + 1;
  std::size_t start = 0, turn = 0;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const std::size_t count = parameters_[p].count();
    if (split == Split::everything) keep(p, 0, count);
    if (split == Split::shards) {
      const std::size_t first = std::clamp(rank * shard, start, start + count);
      keep(p, first - start, std::clamp((rank + 1) * shard, start, start + count) - first);
    }
    for (std::size_t at = 0; split == Split::scattered && at < count; ++turn) {
      const std::size_t size = std::min(count - at, 3 + turn * 7 % 50);
      if (turn % ranks == rank) keep(p, at, size);
      at += size;
    }
    start += count;
  }
}

void FakeReplica::keep(std::size_t parameter, std::size_t first, std::size_t count) {
  if (parameters_[parameter].frozen || count == 0) return;
  if (parameters_[parameter].value.dtype == Dtype::bf16)
    pieces_.push_back({parameter, first, "main", std::vector<float>(count)});
  for (const char* name : {"exp_avg", "exp_avg_sq"})
    pieces_.push_back({parameter, first, name, std::vector<float>(count)});
}

void FakeReplica::fill(int version) {
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const auto bytes = weights_of(version, p, parameters_[p].value.dtype, parameters_[p].count());
    std::copy(bytes.begin(), bytes.end(), memory_[p].begin());
    steps_[p] = version * 10 + static_cast<int>(p);
  }
  for (Piece& piece : pieces_)
    for (std::size_t i = 0; i < piece.values.size(); ++i)
      piece.values[i] = value_of(version, piece.parameter, piece.name, piece.first + i);
}

int FakeReplica::wrong(int version) const {
  int wrong = 0;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    wrong +=
        memory_[p] != weights_of(version, p, parameters_[p].value.dtype, parameters_[p].count());
    wrong += steps_[p] != version * 10 + static_cast<int>(p);
  }
  for (const Piece& piece : pieces_)
    for (std::size_t i = 0; i < piece.values.size(); ++i)
      if (piece.values[i] != value_of(version, piece.parameter, piece.name, piece.first + i)) {
        ++wrong;
        break;
      }
  return wrong;
}

std::vector<train::StatePiece> FakeReplica::state() {
  if (on_state) on_state(++state_calls_);
  std::vector<train::StatePiece> list;
  for (Piece& piece : pieces_)
    list.push_back({piece.parameter, piece.first, piece.name, Buffer::of(piece.values)});
  return list;
}

Status FakeReplica::set_step_counts(std::span<const std::int64_t> counts) {
  steps_.assign(counts.begin(), counts.end());
  return {};
}

Buffer FakeReplica::part_of(std::size_t parameter, int rank, std::size_t& first) {
  const auto ranks = static_cast<std::size_t>(group_.size());
  Buffer part = parameters_[parameter].value;
  first = part.count * static_cast<std::size_t>(rank) / ranks;
  part.count = part.count * static_cast<std::size_t>(rank + 1) / ranks - first;
  part.data = static_cast<std::byte*>(part.data) + first * size_of(part.dtype);
  return part;
}

std::vector<train::StatePiece> FakeReplica::weights() {
  std::vector<train::StatePiece> list;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    std::size_t first = 0;
    const Buffer part = part_of(p, group_.rank(), first);
    if (part.count > 0) list.push_back({p, first, "weight", part});
  }
  return list;
}

// Copies follow. Overwrites main weights, as the real one does: they must be restored after it.
Status FakeReplica::adopt_parameters() {
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    for (int rank = 0; rank < group_.size(); ++rank) {
      std::size_t first = 0;
      const Buffer part = part_of(p, rank, first);
      if (Status status = group_.broadcast(part, rank); !status.ok()) return status;
    }
  for (Piece& piece : pieces_)
    if (piece.name == "main") std::fill(piece.values.begin(), piece.values.end(), -1.0F);
  return {};
}

}  // namespace tutti::test
