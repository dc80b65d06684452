#include "support/trial.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <sstream>

namespace tutti::test {
namespace {

constexpr std::size_t kGuard = 64;
constexpr std::byte kGuardByte{0xA5};
constexpr std::byte kUnwritten{0x5A};

bool is_list(Shape shape) { return shape == Shape::list || shape == Shape::uneven_list; }

std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::size_t before_part(const std::vector<std::size_t>& counts, int part) {
  return std::accumulate(counts.begin(), counts.begin() + part, std::size_t{0});
}

Bytes concatenate(const std::vector<Buffer>& buffers) {
  Bytes whole;
  for (const Buffer& buffer : buffers) {
    const auto* data = static_cast<const std::byte*>(buffer.data);
    whole.insert(whole.end(), data, data + buffer.bytes());
  }
  return whole;
}

const char* word(Shape shape) {
  switch (shape) {
    case Shape::even: return "";
    case Shape::uneven: return " uneven";
    case Shape::list: return " list";
    case Shape::uneven_list: return " uneven list";
  }
  return "";
}

}  // namespace

std::string describe(const Case& what) {
  std::ostringstream text;
  text << to_string(what.collective) << word(what.shape) << " of " << what.count << " "
       << to_string(what.dtype) << (what.widens ? " into f32" : "");
  if (has_reduction(what.collective)) text << ", " << to_string(what.reduction.op);
  if (has_root(what.collective)) text << ", root " << what.root;
  text << ", " << to_string(what.algorithm) << (what.in_place ? ", in place" : "");
  if (what.misalign) text << ", misaligned by " << what.misalign;
  text << ", seed " << what.seed;
  return text.str();
}

Arena::Arena(Group& group, std::size_t bytes) {
  auto memory = group.allocate(bytes);
  if (memory.ok()) memory_ = *std::move(memory);
  EXPECT_TRUE(memory.ok()) << "allocate: " << memory.status().to_string();
}

std::byte* Arena::take(std::size_t bytes) {
  const std::size_t rounded = (bytes + 63) / 64 * 64;
  if (rounded > memory_.bytes - used_) return nullptr;
  used_ += rounded;
  return static_cast<std::byte*>(memory_.data) + used_ - rounded;
}

Block::Block(std::size_t bytes, std::size_t misalign, Arena* arena) : bytes_(bytes) {
  const std::size_t whole = bytes + 2 * kGuard + 128;
  std::byte* memory = arena ? arena->take(whole) : nullptr;
  EXPECT_EQ(memory != nullptr, arena != nullptr) << "the arena is too small for this test";
  if (!memory) {
    own_.resize(whole);
    memory = own_.data();
  }
  const auto address = reinterpret_cast<std::uintptr_t>(memory + kGuard);
  data_ = memory + kGuard + (64 - address % 64) % 64 + misalign % 64;
  std::memset(data_ - kGuard, static_cast<int>(kGuardByte), kGuard);
  std::memset(data_ + bytes, static_cast<int>(kGuardByte), kGuard);
  if (bytes) std::memset(data_, static_cast<int>(kUnwritten), bytes);
}

void Block::fill(const Bytes& content) {
  if (!content.empty()) std::memcpy(data_, content.data(), content.size());
}

bool Block::guards_intact() const {
  const auto intact = [](std::byte value) { return value == kGuardByte; };
  return std::all_of(data_ - kGuard, data_, intact) &&
         std::all_of(data_ + bytes_, data_ + bytes_ + kGuard, intact);
}

Trial::Trial(Group& group, const Case& what, Arena* arena)
    : group_(group),
      what_(what),
      rank_(group.rank()),
      size_(group.size()),
      input_counts_(input_parts(what, size_, rank_)),
      output_counts_(output_parts(what, size_, rank_)) {
  what_.order = group.reduction_order();
  if (what_.collective == Collective::broadcast) what_.in_place = true;
  if (what_.in_place)
    lay_out_in_place(arena);
  else
    lay_out(arena);
  for (const Buffer& buffer : inputs_) const_inputs_.emplace_back(buffer);
  fill();
}

void Trial::lay_out(Arena* arena) {
  const auto add = [&](std::vector<Buffer>& side, std::size_t count, Dtype dtype) {
    blocks_.emplace_back(count * size_of(dtype), what_.misalign, arena);
    side.push_back({blocks_.back().data(), count, dtype});
  };
  const auto add_side = [&](std::vector<Buffer>& side, const std::vector<std::size_t>& counts,
                            Dtype dtype) {
    if (is_list(what_.shape) && counts.size() > 1)
      for (std::size_t count : counts) add(side, count, dtype);
    else if (!counts.empty())
      add(side, total(counts), dtype);
  };
  add_side(inputs_, input_counts_, what_.dtype);
  add_side(outputs_, output_counts_, result_dtype(what_));
}

// One block, as large as the larger side; the smaller one is this rank's part of it, or all of it.
void Trial::lay_out_in_place(Arena* arena) {
  const std::size_t width = size_of(what_.dtype);
  const std::size_t in = total(input_counts_), out = total(output_counts_);
  blocks_.emplace_back(std::max(in, out) * width, what_.misalign, arena);
  const auto side = [&](const std::vector<std::size_t>& counts,
                        const std::vector<std::size_t>& other) {
    const bool is_part = counts.size() == 1 && other.size() == static_cast<std::size_t>(size_);
    const std::size_t skip = is_part && size_ > 1 ? before_part(other, rank_) * width : 0;
    return std::vector{Buffer{blocks_.back().data() + skip, total(counts), what_.dtype}};
  };
  if (!input_counts_.empty()) inputs_ = side(input_counts_, output_counts_);
  if (!output_counts_.empty()) outputs_ = side(output_counts_, input_counts_);
}

void Trial::fill() {
  const Bytes input = input_of(what_, size_, rank_);
  std::size_t at = 0;
  for (const Buffer& buffer : inputs_) {
    if (buffer.bytes() > 0) std::memcpy(buffer.data, input.data() + at, buffer.bytes());
    at += buffer.bytes();
  }
  input_before_ = input;
  output_before_ = concatenate(outputs_);
}

CallOptions Trial::options() const {
  CallOptions options;
  options.algorithm = what_.algorithm;
  return options;
}

Bytes Trial::output() const { return concatenate(outputs_); }

void Trial::check(const Status& status) { check(status, status.ok() ? expected() : Bytes()); }

void Trial::check(const Status& status, const Bytes& expected) {
  const std::string which = describe(what_) + " on " + std::to_string(size_) + " ranks";
  ASSERT_TRUE(status.ok()) << which << ": " << status.to_string();
  const Bytes got = concatenate(outputs_);
  ASSERT_EQ(expected.size(), got.size()) << which << ": a mistake of the test itself";
  if (const auto wrong = difference(result_dtype(what_), expected, got.data()))
    ADD_FAILURE() << which << ", output: " << *wrong;
  if (!what_.in_place && concatenate(inputs_) != input_before_)
    ADD_FAILURE() << which << " changed its input";
  for (const Block& block : blocks_)
    if (!block.guards_intact()) ADD_FAILURE() << which << " wrote beside its buffers";
}

void try_out(Group& group, const Case& what, Arena* arena) {
  Trial trial(group, what, arena);
  trial.check(trial.run());
}

void try_out_async(Group& group, const Case& what, Arena* arena) {
  Trial trial(group, what, arena);
  Work work = trial.start();
  trial.check(work.wait());
}

}  // namespace tutti::test
