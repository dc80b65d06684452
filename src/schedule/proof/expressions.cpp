#include "schedule/proof/expressions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tutti::schedule::proof {
namespace {

// How many of so many operands a balanced fold puts together first.
std::size_t balanced_half(std::size_t operands) { return std::bit_floor(operands - 1); }

constexpr std::size_t kBuckets = 4096;  // a schedule of 64 ranks and 64 chunks has as many folds

}  // namespace

Expressions::Expressions(int ranks)
    : words_((static_cast<std::size_t>(ranks) + 63) / 64),
      nodes_(1),
      ranks_(words_, 0),
      buckets_(kBuckets, kUndefined) {}

Value Expressions::leaf(int rank, std::uint64_t extent) {
  const auto value = static_cast<Value>(nodes_.size());
  Node& node = nodes_.emplace_back();
  node.rank = rank;
  node.extent = extent;
  node.run = {rank, rank + 1, true, true};
  ranks_.resize(ranks_.size() + words_, 0);
  const auto bit = static_cast<std::size_t>(rank);
  ranks_[value * words_ + bit / 64] |= 1ull << (bit % 64);
  return value;
}

bool Expressions::is_leaf_of(Value value, int rank, std::uint64_t extent) const {
  const Node& node = nodes_[value];
  return value != kUndefined && is_leaf(value) && node.rank == rank && node.extent == extent;
}

bool Expressions::covers(Value value, int ranks, int& odd_one) const {
  for (std::size_t w = 0; w < words_; ++w) {
    const int below = std::clamp(ranks - static_cast<int>(w * 64), 0, 64);
    const std::uint64_t wanted = below == 64 ? ~0ull : (1ull << below) - 1;
    const std::uint64_t wrong = ranks_[value * words_ + w] ^ wanted;
    if (wrong == 0) continue;
    odd_one = static_cast<int>(w * 64) + std::countr_zero(wrong);
    return false;
  }
  return true;
}

Value Expressions::lookup(std::uint64_t hash, std::span<const Value> wanted, How how) const {
  Value value = buckets_[hash % kBuckets];
  for (; value != kUndefined; value = nodes_[value].next_in_bucket) {
    const Node& node = nodes_[value];
    if (node.finished == how.finish && node.balanced == how.balanced &&
        std::ranges::equal(operands(node), wanted))
      break;
  }
  return value;
}

void Expressions::join(Value into, Value from, int& twice) {
  for (std::size_t w = 0; w < words_; ++w) {
    std::uint64_t& mine = ranks_[into * words_ + w];
    const std::uint64_t theirs = ranks_[from * words_ + w];
    if (mine & theirs) twice = static_cast<int>(w * 64) + std::countr_zero(mine & theirs);
    mine |= theirs;
  }
}

Expressions::Run Expressions::Run::and_then(const Run& next) const {
  if (first < 0 || next.first < 0 || last != next.first) return {};
  const int size_of_both = next.last - first;
  const auto before = static_cast<int>(std::bit_floor(static_cast<unsigned>(size_of_both - 1)));
  return {first, next.last, left && next.size() == 1,
          balanced && next.balanced && size() == before};
}

Expressions::Run Expressions::run_of(std::span<const Value> wanted, bool balanced) const {
  if (balanced && wanted.size() > 1) {
    const std::size_t half = balanced_half(wanted.size());
    return run_of(wanted.first(half), true).and_then(run_of(wanted.subspan(half), true));
  }
  Run run = nodes_[wanted[0]].run;
  for (Value operand : wanted.subspan(1)) run = run.and_then(nodes_[operand].run);
  return run;
}

Value Expressions::fold(std::span<const Value> wanted, How how, int& twice) {
  std::uint64_t hash = (how.finish ? 0x9e3779b97f4a7c15ull : 0) + (how.balanced ? 0x51ull : 0);
  for (Value operand : wanted) hash = (hash ^ operand) * 0xff51afd7ed558ccdull + (hash >> 29);
  hash ^= hash >> 32;
  if (const Value known = lookup(hash, wanted, how); known != kUndefined) return known;

  const auto value = static_cast<Value>(nodes_.size());
  Node node;
  node.first = static_cast<std::uint32_t>(operands_.size());
  node.count = static_cast<std::uint32_t>(wanted.size());
  node.finished = how.finish;
  node.balanced = how.balanced;
  node.whole = true;
  node.run = run_of(wanted, how.balanced);
  ranks_.resize(ranks_.size() + words_, 0);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Node& operand = nodes_[wanted[i]];
    node.whole &= operand.count == 0 && operand.rank == static_cast<int>(i);
    operands_.push_back(wanted[i]);
    join(value, wanted[i], twice);
  }
  Value& bucket = buckets_[hash % kBuckets];
  node.next_in_bucket = bucket;
  bucket = value;
  nodes_.push_back(node);
  return value;
}

std::string Expressions::print(Value value) const {
  if (value == kUndefined) return "undefined";
  const Node& node = nodes_[value];
  if (is_leaf(value)) return fmt::format("x{}", node.rank);
  return (node.finished ? "finish[" : "[") + print(operands(node), node.balanced) + ']';
}

std::string Expressions::print(std::span<const Value> wanted, bool balanced) const {
  if (balanced && wanted.size() > 2) {
    const std::size_t half = balanced_half(wanted.size());
    const auto group = [&](std::span<const Value> some) {
      return some.size() == 1 ? print(some[0]) : '(' + print(some, true) + ')';
    };
    return group(wanted.first(half)) + ' ' + group(wanted.subspan(half));
  }
  std::string text;
  for (Value operand : wanted) {
    if (!text.empty()) text += ' ';
    text += print(operand);
  }
  return text;
}

}  // namespace tutti::schedule::proof
