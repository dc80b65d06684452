// Every element type with every reduction that has a meaning on it, on every collective.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/trial.hpp"
#include "support/worlds.hpp"
#include "tutti/dtypes.hpp"

namespace tutti::test {
namespace {

class Types : public WorldTest {};

Reduction reduction_of(ReduceOp op) {
  if (op == ReduceOp::premul_sum) return Reduction::premul_sum(2.0);
  if (op == ReduceOp::user) return Reduction::by(composition());
  return op;
}

bool is_tried(ReduceOp op, Dtype dtype) {
  return is_sensible(op, dtype) && (op != ReduceOp::user || dtype == Dtype::u64);
}

template <class Visit>
void for_each_collective_and_type(Visit visit) {
  for (int c = 0; c < kCollectives; ++c)
    for (int d = 0; d < kDtypes; ++d) visit(static_cast<Collective>(c), static_cast<Dtype>(d));
}

void try_every_type(Group& group, Values values) {
  std::uint64_t turn = 0;
  for_each_collective_and_type([&](Collective collective, Dtype dtype) {
    Case what{.collective = collective, .dtype = dtype, .count = 37, .values = values};
    for (int op = 0; op < (has_reduction(collective) ? kReduceOps : 1); ++op) {
      if (has_reduction(collective) && !is_tried(static_cast<ReduceOp>(op), dtype)) continue;
      what.reduction = reduction_of(static_cast<ReduceOp>(op));
      what.root = static_cast<int>(turn % static_cast<std::uint64_t>(group.size()));
      what.in_place = turn % 3 == 0;
      what.seed = ++turn;
      try_out(group, what);
    }
  });
}

TEST_P(Types, fold_with_every_sensible_operation_on_every_collective) {
  in_world([](Context& here) { try_every_type(*here.group, Values::exact); });
}

TEST_P(Types, fold_arbitrary_values_to_the_bit_in_rank_order) {
  World world = GetParam();
  world.order = ReductionOrder::rank;
  run(world, [](Context& here) { try_every_type(*here.group, Values::arbitrary); });
}

// What is folded is narrow, and what comes out is not rounded: a plain fold in f32, to the bit, whatever
// carries it. Also twice in a row, when the call is remembered.
void try_every_wide_sum(Group& group, std::size_t count, Arena* arena) {
  std::uint64_t turn = count;
  for_each_collective_and_type([&](Collective collective, Dtype dtype) {
    if (!has_reduction(collective) || accumulation_of(dtype) == dtype) return;
    Case what{.collective = collective, .dtype = dtype, .count = count};
    what.widens = true;
    what.values = Values::arbitrary;
    for (int op = 0; op < kReduceOps; ++op) {
      if (!is_tried(static_cast<ReduceOp>(op), dtype)) continue;
      what.reduction = reduction_of(static_cast<ReduceOp>(op));
      what.root = static_cast<int>(++turn % static_cast<std::uint64_t>(group.size()));
      what.misalign = turn % 3 == 0 ? 1 + turn % 7 : 0;
      what.shape =
          collective == Collective::reduce_scatter ? static_cast<Shape>(turn % 4) : Shape::even;
      if (arena != nullptr) arena->reset();
      if (turn % 2 == 0)
        try_out_async(group, what, arena);
      else
        try_out(group, what, arena);
    }
  });
}

TEST_P(Types, of_narrow_floats_fold_into_f32_that_is_not_rounded) {
  in_world([](Context& here) {
    Arena arena(*here.group, 8 << 20);
    for (const std::size_t count : {0, 37, 1021}) try_every_wide_sum(*here.group, count, nullptr);
    for (const std::size_t count : {1, 257}) try_every_wide_sum(*here.group, count, &arena);
  });
}

// Through slots, piece by piece, where a piece's result is up to four times as long; in segments; and in
// buffers of which some are symmetric.
TEST_P(Types, of_narrow_floats_fold_into_f32_in_pieces_too) {
  in_world([](Context& here) {
    Arena arena(*here.group, 32 << 20);
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce, Collective::scan})
      for (const Dtype dtype : {Dtype::bf16, Dtype::f8e4m3}) {
        Case what{.collective = collective, .dtype = dtype, .count = 100'003};
        what.widens = true;
        what.values = Values::arbitrary;
        what.root = here.size - 1;
        const Bytes expected = Trial(*here.group, what).expected();
        for (const int symmetric : {0, 1, 2}) {
          arena.reset();
          const bool own = symmetric == 2 || (symmetric == 1 && here.rank == 0);
          Trial trial(*here.group, what, own ? &arena : nullptr);
          trial.check(trial.run(), expected);
        }
      }
  });
}

// Ranks that get nothing may pass any output: what they remember of a call is the type of its input.
TEST_P(Types, of_a_call_like_the_last_but_for_its_type_are_looked_at) {
  in_world([](Context& here) {
    for (int again = 0; again < 2; ++again) {
      std::vector<float> reals(7, 1);
      std::vector<std::int32_t> integers(7, 1);
      const auto output = [&](const Buffer& own) { return here.rank == 0 ? own : Buffer(); };
      const Buffer real = Buffer::of(reals);
      const Buffer integer = Buffer::of(integers);
      const Status first = here.group->reduce(real, output(real), ReduceOp::sum, 0);
      EXPECT_TRUE(first.ok()) << first.to_string();
      const Status second = here.group->reduce(integer, output(integer), ReduceOp::sum, 0);
      EXPECT_TRUE(second.ok()) << second.to_string();
    }
  });
}

TEST_P(Types, folds_into_f32_are_forced_only_by_algorithms_that_fold_once) {
  in_world([](Context& here) {
    Case what{.dtype = Dtype::bf16, .count = 100};
    what.widens = true;
    what.algorithm = Algorithm::pairwise;
    try_out(*here.group, what);
    what.algorithm = Algorithm::ring;
    Trial trial(*here.group, what);
    const Status status = trial.run();
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    EXPECT_NE(status.message().find("partial folds"), std::string::npos) << status.to_string();
  });
}

// Every rank contributes one column of a row of values; `results` is what all_reduce must give.
template <class T>
void expect_row(Group& group, ReduceOp op, const std::vector<T>& row, T result) {
  const auto column = static_cast<std::size_t>(group.rank()) % row.size();
  std::vector<T> value{row[column]};
  const Status status = group.all_reduce(Buffer::of(value), op);
  ASSERT_TRUE(status.ok()) << status.to_string();
  if (value[0] != value[0] && result != result) return;  // any NaN is as good as any other
  EXPECT_EQ(std::memcmp(value.data(), &result, sizeof(T)), 0)
      << to_string(op) << " gave " << +value[0] << " instead of " << +result;
}

TEST(Numerics, are_as_documented) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    Group& group = *here.group;
    expect_row<float>(group, ReduceOp::min, {1.0F, kNan}, kNan);
    expect_row<float>(group, ReduceOp::max, {kNan, 1.0F}, kNan);
    expect_row<float>(group, ReduceOp::min, {0.0F, -0.0F}, -0.0F);
    expect_row<float>(group, ReduceOp::max, {-0.0F, 0.0F}, 0.0F);
    expect_row<std::int8_t>(group, ReduceOp::sum, {127, 2}, -127);
    expect_row<std::uint8_t>(group, ReduceOp::prod, {16, 17}, 16);
    expect_row<std::int32_t>(group, ReduceOp::avg, {-3, -4}, -3);
    expect_row<std::int64_t>(group, ReduceOp::avg, {7, -2}, 2);
  });
}

TEST(Numerics, small_floats_saturate_or_overflow_as_documented) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    const auto sum = [&](Dtype dtype, double value) {
      std::byte element;
      encode(dtype, value, &element);
      const Status status = here.group->all_reduce(Buffer{&element, 1, dtype}, ReduceOp::sum);
      EXPECT_TRUE(status.ok()) << status.to_string();
      return decode(dtype, &element);
    };
    EXPECT_EQ(sum(Dtype::f8e4m3, 448), 448);
    EXPECT_EQ(sum(Dtype::f8e4m3, -448), -448);
    EXPECT_EQ(sum(Dtype::f8e5m2, 57344), std::numeric_limits<double>::infinity());
    EXPECT_EQ(sum(Dtype::f8e5m2, 1.5), 3.0);
  });
}

INSTANTIATE_TEST_SUITE_P(World, Types, testing::ValuesIn(one_world_of_each()), name_of);

}  // namespace
}  // namespace tutti::test
