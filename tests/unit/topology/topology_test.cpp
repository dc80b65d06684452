#include "topology/topology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::topology {
namespace {

using ::testing::ElementsAre;

TEST(Topology, hosts_are_grouped_in_order_of_their_first_rank) {
  const std::vector<int> host_of = {7, 3, 7, 3, 5};
  EXPECT_EQ(host_count(host_of), 3);
  EXPECT_THAT(ranks_by_host(host_of),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4)));
}

TEST(Topology, no_host_list_means_one_host) { EXPECT_EQ(host_count({}), 1); }

TEST(Topology, near_square_is_the_largest_divisor_up_to_the_root) {
  EXPECT_EQ(near_square(1), (Torus{1, 1}));
  EXPECT_EQ(near_square(7), (Torus{1, 7}));
  EXPECT_EQ(near_square(12), (Torus{3, 4}));
  EXPECT_EQ(near_square(16), (Torus{4, 4}));
  EXPECT_EQ(near_square(24576), (Torus{128, 192}));
  for (int n = 1; n <= 500; ++n) {
    const Torus torus = near_square(n);
    ASSERT_EQ(torus.rows * torus.columns, n);
    ASSERT_LE(torus.rows, torus.columns);
    for (int rows = torus.rows + 1; rows * rows <= n; ++rows) ASSERT_NE(n % rows, 0);
  }
}

}  // namespace
}  // namespace tutti::topology
