// Every element type with every reduction that has a meaning on it, on every collective.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/trial.hpp"
#include "support/worlds.hpp"

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
