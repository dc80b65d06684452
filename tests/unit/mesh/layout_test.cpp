#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/tensor_layout.hpp"
#include "unit/mesh/random_layouts.hpp"
#include "unit/mesh/reference_layout.hpp"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(TensorLayout, gives_later_ranks_less_or_nothing) {
  const TensorLayout layout{{{"dp", 4}}, {shard(0)}, {5, 3}, Dtype::f32};
  const std::int64_t first[] = {0, 2, 4, 5}, length[] = {2, 2, 1, 0};
  for (int c = 0; c < 4; ++c) {
    EXPECT_THAT(layout.box({c}).first, ElementsAre(first[c], 0));
    EXPECT_THAT(layout.box({c}).shape, ElementsAre(length[c], 3));
  }
}

TEST(TensorLayout, lets_the_earlier_axis_cut_first_unless_told_otherwise) {
  TensorLayout layout{{{"dp", 2}, {"tp", 2}}, {shard(0), shard(0)}, {8}, Dtype::f32};
  EXPECT_THAT(layout.box({1, 0}).first, ElementsAre(4));
  layout.nesting = {1, 0};
  EXPECT_THAT(layout.box({1, 0}).first, ElementsAre(2));
  EXPECT_EQ(to_string(layout), "(shard(0), shard(0)) of 8 f32, cut by tp dp");
}

TEST(TensorLayout, gives_boxes_that_are_what_lists_of_indices_say) {
  test::RandomLayouts random(1);
  for (int round = 0; round < 1000; ++round) {
    const TensorLayout layout = random.placed(random.tensor(16), ReduceOp::sum);
    ASSERT_TRUE(layout.check().ok()) << layout.check().to_string();
    for (int position = 0; position < ranks_of(layout.axes); ++position)
      ASSERT_EQ(test::elements_of(layout.box(position), layout.shape),
                test::held(layout, coordinates_of(layout.axes, position)))
          << to_string(layout) << " at " << position << ", round " << round;
  }
}

TEST(TensorLayout, that_cannot_be_is_refused_with_what_contradicts_what) {
  const MeshAxes axes{{"dp", 2}, {"tp", 2}};
  const auto why = [&](std::vector<AxisPlacement> placements, std::vector<std::int64_t> shape,
                       Dtype dtype = Dtype::f32, std::vector<int> nesting = {}) {
    return TensorLayout{axes, std::move(placements), std::move(shape), dtype, std::move(nesting)}
        .check()
        .message();
  };
  EXPECT_EQ(why({partial(), shard(1)}, {2, 2}), "");
  EXPECT_THAT(why({shard(0)}, {2}), HasSubstr("1 placements (shard(0)) for 2 axes"));
  EXPECT_THAT(why({shard(1), replicate()}, {2}), HasSubstr("shard(1) along 'dp'"));
  EXPECT_THAT(why({replicate(), shard(-1)}, {2}), HasSubstr("shard(-1) along 'tp'"));
  EXPECT_THAT(why({partial(ReduceOp::max), partial()}, {2}), HasSubstr("their order would matter"));
  EXPECT_THAT(why({partial(ReduceOp::bor), replicate()}, {2}), HasSubstr("no meaning on f32"));
  EXPECT_THAT(why({partial(ReduceOp::user), replicate()}, {2}), HasSubstr("can be partial"));
  EXPECT_THAT(why({replicate(), replicate()}, {-2}), HasSubstr("length -2"));
  EXPECT_THAT(why({replicate(), replicate()}, {1LL << 40, 1LL << 40}), HasSubstr("too many"));
  EXPECT_THAT(why({replicate(), replicate()}, {2}, Dtype::f32, {0, 0}), HasSubstr("no order"));
}

TEST(Placements, are_printed_and_read_back) {
  const auto read = parse_placements("shard(0), replicate,partial(max)");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_THAT(*read, ElementsAre(shard(0), replicate(), partial(ReduceOp::max)));
  EXPECT_EQ(to_string(*read), "shard(0), replicate, partial(max)");
  EXPECT_THAT(*parse_placements("partial"), ElementsAre(partial()));
  for (const char* wrong : {"shard", "shard()", "shard(-1)", "shard(x)", "shard(0", "replicate(1)",
                            "partial(user)", "partial(median)", "whole", "shard(99999999999)"})
    EXPECT_THAT(parse_placements(wrong).status().message(), HasSubstr(wrong)) << wrong;
}

}  // namespace
}  // namespace tutti
