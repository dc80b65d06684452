#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "tutti/mesh_axes.hpp"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The ranks along one axis, through every position.
std::vector<std::vector<int>> groups_along(const MeshAxes& axes, const std::vector<int>& rank_at,
                                           int axis) {
  std::map<Coordinates, std::vector<int>> groups;
  for (int position = 0; position < static_cast<int>(rank_at.size()); ++position) {
    Coordinates others = coordinates_of(axes, position);
    others[static_cast<std::size_t>(axis)] = 0;
    groups[others].push_back(rank_at[static_cast<std::size_t>(position)]);
  }
  std::vector<std::vector<int>> result;
  for (auto& [others, ranks] : groups) result.push_back(ranks);
  return result;
}

int hosts_of(const std::vector<int>& ranks, const std::vector<int>& hosts) {
  std::set<int> seen;
  for (const int rank : ranks) seen.insert(hosts[static_cast<std::size_t>(rank)]);
  return static_cast<int>(seen.size());
}

TEST(MeshAxes, positions_count_the_last_axis_fastest) {
  const MeshAxes axes{{"dp", 2}, {"tp", 3}};
  EXPECT_EQ(ranks_of(axes), 6);
  EXPECT_THAT(coordinates_of(axes, 4), ElementsAre(1, 1));
  for (int position = 0; position < 6; ++position)
    EXPECT_EQ(position_of(axes, coordinates_of(axes, position)), position);
  EXPECT_EQ(position_of(axes, {2, 0}), -1);
  EXPECT_EQ(position_of(axes, {0, -1}), -1);
  EXPECT_EQ(position_of(axes, {0}), -1);
  EXPECT_EQ(find_axis(axes, "tp"), 1);
  EXPECT_EQ(find_axis(axes, "pp"), -1);
  EXPECT_EQ(to_string(axes), "dp 2 x tp 3");
  EXPECT_EQ(to_string(axes, {1, 2}), "dp 1, tp 2");
}

TEST(MeshAxes, that_cannot_be_are_refused_by_name) {
  const auto why = [](const MeshAxes& axes) { return check_axes(axes).message(); };
  EXPECT_TRUE(check_axes({{"dp", 1}}).ok());
  EXPECT_THAT(why({}), HasSubstr("0 axes"));
  EXPECT_THAT(why({{"dp", 2}, {"dp", 2}}), HasSubstr("two axes 'dp'"));
  EXPECT_THAT(why({{"d p", 2}}), HasSubstr("'d p'"));
  EXPECT_THAT(why({{"", 2}}), HasSubstr("''"));
  EXPECT_THAT(why({{"dp", 0}}), HasSubstr("'dp' has size 0"));
  EXPECT_THAT(why({{"dp", 1 << 20}, {"tp", 1 << 20}}), HasSubstr("more than"));
}

TEST(MeshPlacing, keeps_neighbours_where_one_host_has_all) {
  const std::vector<int> hosts(8, 0);
  std::vector<int> in_order(8);
  std::iota(in_order.begin(), in_order.end(), 0);
  EXPECT_EQ(place_ranks({{"dp", 2}, {"tp", 4}}, hosts), in_order);
  EXPECT_EQ(place_ranks({{"dp", 8}}, hosts), in_order);
  EXPECT_EQ(place_ranks({{"a", 2}, {"b", 2}, {"c", 2}}, hosts), in_order);
}

TEST(MeshPlacing, puts_the_chattiest_axis_inside_whatever_its_place_in_the_list) {
  const std::vector<int> hosts{0, 0, 1, 1};
  EXPECT_THAT(place_ranks({{"tp", 2}, {"dp", 2}}, hosts), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(place_ranks({{"dp", 2}, {"tp", 2}}, hosts), ElementsAre(0, 1, 2, 3));
  // What is said counts more than a name; a word that is not known leaves it to the order.
  EXPECT_THAT(place_ranks({{"dp", 2, 9}, {"tp", 2, 1}}, hosts), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(place_ranks({{"tp", 2}, {"rows", 2}}, hosts), ElementsAre(0, 1, 2, 3));
}

TEST(MeshPlacing, takes_scattered_ranks_of_a_host_together) {
  EXPECT_THAT(place_ranks({{"dp", 2}, {"tp", 2}}, std::vector<int>{0, 1, 0, 1}),
              ElementsAre(0, 2, 1, 3));
}

TEST(MeshPlacing, lets_uneven_hosts_share_as_few_groups_as_must_be) {
  const MeshAxes axes{{"dp", 4}, {"tp", 2}};
  const std::vector<int> hosts{0, 0, 0, 1, 1, 1, 1, 1};
  int mixed = 0;
  for (const auto& ranks : groups_along(axes, place_ranks(axes, hosts), 1))
    mixed += hosts_of(ranks, hosts) > 1;
  EXPECT_EQ(mixed, 1);
}

// Random hosts, sizes and orders: every rank stands somewhere, once; along the chattiest axis ranks share
// a host if its size divides those of all hosts.
TEST(MeshPlacing, keeps_its_promise_on_any_hosts) {
  std::mt19937_64 random(7);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  const char* words[] = {"tp", "cp", "ep", "dp", "pp"};  // by falling traffic
  int divided = 0;
  for (int round = 0; round < 2000; ++round) {
    MeshAxes axes;
    std::vector<int> ranking;  // of the words
    for (int word = 0; word < 5; ++word)
      if (draw(0, 1) == 1 && axes.size() < 3) {
        axes.push_back({words[word], draw(1, 4)});
        ranking.push_back(word);
      }
    if (axes.empty()) continue;
    const std::string chattiest = axes.front().name;
    const int size = axes.front().size;
    std::shuffle(axes.begin(), axes.end(), random);
    std::vector<int> hosts;
    const bool divides = draw(0, 1) == 1;
    for (int host = 0; static_cast<int>(hosts.size()) < ranks_of(axes); ++host) {
      const int room = ranks_of(axes) - static_cast<int>(hosts.size());
      const int taken = divides ? size * draw(1, room / size) : draw(1, room);
      hosts.insert(hosts.end(), static_cast<std::size_t>(taken), host);
    }
    std::shuffle(hosts.begin(), hosts.end(), random);
    const std::vector<int> rank_at = place_ranks(axes, hosts);
    std::vector<int> sorted = rank_at;
    std::sort(sorted.begin(), sorted.end());
    for (int rank = 0; rank < ranks_of(axes); ++rank)
      ASSERT_EQ(sorted[static_cast<std::size_t>(rank)], rank);
    if (!divides) continue;
    ++divided;
    for (const auto& ranks : groups_along(axes, rank_at, find_axis(axes, chattiest)))
      ASSERT_EQ(hosts_of(ranks, hosts), 1) << to_string(axes) << ", round " << round;
  }
  EXPECT_GT(divided, 500);
}

}  // namespace
}  // namespace tutti
