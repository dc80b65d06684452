#include "topology/topology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tutti::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Topology two_by_two() {
  Topology topology;
  topology.ranks = {{0, 0, 0}, {0, 0, 0}, {1, 0, 1}, {1, -1, -1}};
  return topology;
}

TEST(Topology, links_follow_the_rule_and_its_exceptions_in_both_directions) {
  Topology topology = two_by_two();
  EXPECT_EQ(topology.link(0, 0), "self");
  EXPECT_EQ(topology.link(0, 1), "shm");
  EXPECT_EQ(topology.link(1, 2), "tcp");
  topology.set_link(3, 0, "ofi");
  EXPECT_EQ(topology.link(0, 3), "ofi");
  EXPECT_EQ(topology.link(3, 0), "ofi");
  EXPECT_EQ(topology.link(0, 2), "tcp");
}

TEST(Topology, an_exception_that_says_what_the_rule_says_is_none) {
  Topology topology = two_by_two();
  topology.set_link(0, 1, "shm");
  EXPECT_TRUE(topology.odd.empty());
  topology.set_link(0, 1, "tcp");
  topology.set_link(0, 1, "inproc");
  EXPECT_EQ(topology.odd.size(), 1U);
  topology.set_link(1, 0, "shm");
  EXPECT_EQ(topology, two_by_two());
}

TEST(Topology, text_is_what_the_format_page_shows) {
  Topology topology = two_by_two();
  topology.set_link(1, 0, "tcp");
  EXPECT_EQ(to_text(topology),
            "topology 1\n"
            "links inside shm between tcp\n"
            "rank 0-1 host 0 numa 0 l3 0\n"
            "rank 2 host 1 numa 0 l3 1\n"
            "rank 3 host 1\n"
            "link 0 1 tcp\n");
}

TEST(Topology, text_survives_printing_and_parsing) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    Topology topology;
    topology.inside = round % 2 == 0 ? "inproc" : "shm";
    const int n = static_cast<int>(random() % 12);
    for (int r = 0; r < n; ++r)
      topology.ranks.push_back({static_cast<int>(random() % 3), static_cast<int>(random() % 3) - 1,
                                static_cast<int>(random() % 3) - 1});
    for (int i = 0; i < n; ++i)
      topology.set_link(static_cast<int>(random() % n), static_cast<int>(random() % n), "ofi");
    const auto parsed = parse(to_text(topology));
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string() << "\n" << to_text(topology);
    ASSERT_EQ(*parsed, topology) << to_text(topology);
  }
}

TEST(Topology, comments_blank_lines_and_other_line_ends_are_read) {
  const auto parsed = parse("# two hosts\n\ntopology 1\r\n  rank 0-1 host 0 # both\nrank 2 host 1");
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_THAT(hosts_of(*parsed), ElementsAre(0, 0, 1));
}

TEST(Topology, a_wrong_line_is_named_with_what_was_expected) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"", "line 0: the first line must be 'topology 1'"},
      {"rank 0 host 0\n", "line 1: the first line"},
      {"topology 2\n", "line 1: this version reads 'topology 1' only"},
      {"topology 1\ntopology 1\n", "line 2: there is a first line already"},
      {"topology 1\nnode 3\n", "line 2: 'node' begins no line"},
      {"topology 1\nrank 1 host 0\n", "expected rank 0 next, found 1"},
      {"topology 1\nrank 0-x host 0\n", "'0-x' is no range"},
      {"topology 1\nrank 0-99999999 host 0\n", "at most"},
      {"topology 1\nrank 0 host -1\n", "'-1' is no index for host"},
      {"topology 1\nrank 0 numa 1\n", "a rank needs a host"},
      {"topology 1\nrank 0 host\n", "expected 'rank N host H"},
      {"topology 1\nrank 0 host 0 core 1\n", "'core' is none of host, numa, l3"},
      {"topology 1\nrank 0 host 0\nlink 0 0 tcp\n", "line 3: rank 0 has no link to itself"},
      {"topology 1\nrank 0 host 0\nlink 0 1 tcp\n", "only ranks 0 to 0"},
      {"topology 1\nlinks inside SHM between tcp\n", "expected 'links inside KIND"},
  };
  for (const auto& c : cases) {
    const auto parsed = parse(c.text);
    ASSERT_FALSE(parsed.ok()) << c.text;
    EXPECT_EQ(parsed.status().code(), Code::invalid_argument);
    EXPECT_THAT(parsed.status().message(), HasSubstr(c.message));
  }
}

TEST(Topology, hosts_are_grouped_in_order_of_their_first_rank) {
  const std::vector<int> host_of = {7, 3, 7, 3, 5};
  EXPECT_EQ(host_count(host_of), 3);
  EXPECT_THAT(ranks_by_host(host_of),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4)));
  EXPECT_THAT(host_leaders(host_of), ElementsAre(0, 1, 4));
}

TEST(Topology, no_host_list_means_one_host) {
  EXPECT_EQ(host_count({}), 1);
  EXPECT_THAT(host_leaders({}), ElementsAre(0));
  EXPECT_TRUE(is_uniform({}));
}

TEST(Topology, uniform_means_equally_many_ranks_on_every_host) {
  EXPECT_TRUE(is_uniform(std::vector<int>{0, 1, 0, 1}));
  EXPECT_TRUE(is_uniform(std::vector<int>{0, 1, 2}));
  EXPECT_FALSE(is_uniform(std::vector<int>{0, 0, 1}));
}

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
