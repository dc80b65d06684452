// Whether the benchmark fills and checks its buffers rightly: every collective is done by hand
// here, from the ranks' calls alone, and then one element is spoilt.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tool/bench/arithmetic.hpp"
#include "tool/bench/task.hpp"

namespace tutti::tool {
namespace {

constexpr int kRanks = 3;

// i32 sums, read and written through the calls' own buffers.
class ByHand {
 public:
  explicit ByHand(const BenchCell& cell) : cell_(cell) {
    areas_.resize(kRanks, std::vector<std::int32_t>(2 * cell.count() + 2));
    for (int rank = 0; rank < kRanks; ++rank) {
      auto& area = areas_[static_cast<std::size_t>(rank)];
      tasks_.push_back(std::make_unique<Task>(cell, rank, kRanks,
                                              Areas{area.data(), area.data() + cell.count() + 1}));
      tasks_.back()->fill_and_spoil();
    }
    for (const auto& task : tasks_) inputs_.push_back(read(task->call()));
  }

  void perform() {
    for (int rank = 0; rank < kRanks; ++rank) {
      const Call& call = tasks_[static_cast<std::size_t>(rank)]->call();
      if (call.output.empty()) continue;
      auto* out = static_cast<std::int32_t*>(call.output[0].data);
      const auto result = result_of(rank);
      if (result.empty()) continue;
      ASSERT_EQ(result.size(), call.output[0].count);
      std::copy(result.begin(), result.end(), out);
    }
  }
  std::size_t wrong() const {
    std::size_t sum = 0;
    for (const auto& task : tasks_) sum += task->count_wrong();
    return sum;
  }
  // Changes the last element of a rank that has a result.
  void spoil() {
    const Call& call = tasks_[1]->call().output.empty() ? tasks_[0]->call() : tasks_[1]->call();
    static_cast<std::int32_t*>(call.output[0].data)[call.output[0].count - 1] += 1;
  }

 private:
  using Numbers = std::vector<std::int32_t>;

  Numbers read(const Call& call) const {
    if (cell_.collective == Collective::broadcast) {
      const auto* data = static_cast<const std::int32_t*>(call.output[0].data);
      return Numbers(data, data + call.output[0].count);
    }
    if (call.input.empty()) return {};
    const auto* data = static_cast<const std::int32_t*>(call.input[0].data);
    return Numbers(data, data + call.input[0].count);
  }
  Numbers fold(std::size_t last) const {
    Numbers sum = inputs_[0];
    for (std::size_t rank = 1; rank <= last; ++rank)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += inputs_[rank][i];
    return sum;
  }
  Numbers part(const Numbers& whole, std::size_t index) const {
    const std::size_t size = whole.size() / kRanks;
    return Numbers(whole.begin() + static_cast<long>(index * size),
                   whole.begin() + static_cast<long>((index + 1) * size));
  }
  Numbers result_of(int rank) const {
    const auto self = static_cast<std::size_t>(rank);
    Numbers all;
    switch (cell_.collective) {
      case Collective::barrier: return {};
      case Collective::broadcast: return inputs_[static_cast<std::size_t>(cell_.root)];
      case Collective::reduce:
      case Collective::all_reduce: return fold(kRanks - 1);
      case Collective::scan: return fold(self);
      case Collective::exclusive_scan: return rank == 0 ? Numbers() : fold(self - 1);
      case Collective::scatter: return part(inputs_[static_cast<std::size_t>(cell_.root)], self);
      case Collective::reduce_scatter: return part(fold(kRanks - 1), self);
      case Collective::gather:
      case Collective::all_gather:
        for (const Numbers& input : inputs_) all.insert(all.end(), input.begin(), input.end());
        return all;
      case Collective::all_to_all:
        for (const Numbers& input : inputs_) {
          const Numbers piece = part(input, self);
          all.insert(all.end(), piece.begin(), piece.end());
        }
        return all;
    }
    return all;
  }

  BenchCell cell_;
  std::vector<std::vector<std::int32_t>> areas_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::vector<Numbers> inputs_;
};

TEST(BenchTask, right_results_pass_and_one_wrong_element_is_counted) {
  for (int c = 0; c < kCollectives; ++c)
    for (const bool in_place : {false, true})
      for (const std::size_t count : {3UL, 3000UL}) {
        const auto collective = static_cast<Collective>(c);
        if (!has_placement(collective, in_place) || collective == Collective::barrier) continue;
        SCOPED_TRACE(std::string(to_string(collective)) + (in_place ? " in place" : ""));
        BenchCell cell{.collective = collective, .bytes = count * 4, .in_place = in_place};
        cell.dtype = Dtype::i32;
        cell.root = has_root(collective) ? 1 : 0;
        ByHand hand(cell);
        EXPECT_GT(hand.wrong(), 0U) << "before anything was done";
        hand.perform();
        EXPECT_EQ(hand.wrong(), 0U);
        hand.spoil();
        EXPECT_EQ(hand.wrong(), 1U);
      }
}

TEST(BenchValues, small_numbers_have_the_bytes_of_every_type) {
  const auto bits = [](long value, Dtype dtype) {
    std::uint64_t word = 0;
    encode(value, dtype, reinterpret_cast<std::byte*>(&word));
    return word;
  };
  EXPECT_EQ(bits(1, Dtype::f16), 0x3C00U);
  EXPECT_EQ(bits(2047, Dtype::f16), 0x67FFU);
  EXPECT_EQ(bits(3, Dtype::bf16), 0x4040U);
  EXPECT_EQ(bits(1, Dtype::f8e4m3), 0x38U);
  EXPECT_EQ(bits(15, Dtype::f8e4m3), 0x57U);
  EXPECT_EQ(bits(1, Dtype::f8e5m2), 0x3CU);
  EXPECT_EQ(bits(7, Dtype::f8e5m2), 0x47U);
  EXPECT_EQ(bits(5, Dtype::i64), 5U);
  EXPECT_EQ(bits(0, Dtype::f32), 0U);
}

// No partial sum, in whatever order, may need more than the type holds exactly.
TEST(BenchValues, sums_stay_within_what_a_type_holds_exactly) {
  for (int d = 0; d < kDtypes; ++d)
    for (const int ranks : {1, 2, 8, 16, 64}) {
      const auto dtype = static_cast<Dtype>(d);
      if (dtype == Dtype::boolean) continue;
      const Values values(dtype, ReduceOp::sum, ranks);
      Period sum = values.folded(ranks - 1);
      long largest = 0;
      std::byte limit[8]{};
      const std::size_t size = size_of(dtype);
      for (std::size_t i = 0; i < Values::kPeriod; ++i) {
        long number = -1;
        for (long candidate = 0; number < 0 && candidate <= exact_limit(dtype); ++candidate) {
          encode(candidate, dtype, limit);
          if (std::memcmp(limit, &sum[i * size], size) == 0) number = candidate;
        }
        ASSERT_GE(number, 0) << to_string(dtype) << " of " << ranks << ": more than is exact";
        largest = std::max(largest, number);
      }
      EXPECT_GT(largest, 0) << to_string(dtype) << " of " << ranks << ": nothing to fold";
    }
}

TEST(BenchValues, what_has_no_exact_result_is_refused) {
  EXPECT_TRUE(Values::check(Collective::all_reduce, Dtype::f32, ReduceOp::avg, 8).ok());
  EXPECT_FALSE(Values::check(Collective::scan, Dtype::f32, ReduceOp::avg, 8).ok());
  EXPECT_FALSE(Values::check(Collective::all_reduce, Dtype::f8e5m2, ReduceOp::avg, 8).ok());
  EXPECT_FALSE(Values::check(Collective::all_reduce, Dtype::f32, ReduceOp::bxor, 8).ok());
  EXPECT_FALSE(Values::check(Collective::all_reduce, Dtype::f32, ReduceOp::user, 8).ok());
  EXPECT_TRUE(Values::check(Collective::all_gather, Dtype::f32, ReduceOp::user, 8).ok());
}

}  // namespace
}  // namespace tutti::tool
