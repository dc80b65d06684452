// In what order rings and trees take the ranks, by where they sit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/racks.hpp"
#include "topology/topology.hpp"

namespace tutti::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Walk, ranks_that_are_numbered_host_by_host_stay_as_they_are) {
  EXPECT_THAT(walk_of(std::vector{0, 0, 1, 1}), IsEmpty());
  EXPECT_THAT(walk_of({}), IsEmpty());
}

TEST(Walk, ranks_of_a_host_follow_each_other) {
  EXPECT_THAT(walk_of(std::vector{7, 3, 7, 3, 5}), ElementsAre(0, 2, 1, 3, 4));
}

TEST(Walk, hosts_of_a_rack_and_racks_of_a_row_follow_each_other) {
  const std::vector<int> host_of = {0, 1, 2, 3, 4};
  const std::vector<Locality> localities = {{"row1/a", -1, -1, ""},
                                            {"row2/c", -1, -1, ""},
                                            {"row1/b", -1, -1, ""},
                                            {"row1/a", -1, -1, ""},
                                            {"row2/c", -1, -1, ""}};
  EXPECT_THAT(walk_of(host_of, localities), ElementsAre(0, 3, 2, 1, 4));
}

TEST(Walk, sockets_nodes_and_gpus_order_the_ranks_of_a_host) {
  const std::vector<int> one(6, 0);
  const std::vector<Locality> localities = {{"", 0, 0, ""}, {"", 1, 2, ""}, {"", 0, 1, ""},
                                            {"", 1, 3, ""}, {"", 0, 0, ""}, {"", 1, 2, ""}};
  EXPECT_THAT(walk_of(one, localities), ElementsAre(0, 4, 2, 1, 5, 3));
  const std::vector<Locality> gpus = {{"", 0, 0, "0000:41:00"}, {"", 0, 0, "0000:01:00"}};
  EXPECT_THAT(walk_of(std::vector{0, 0}, gpus), ElementsAre(1, 0));
}

TEST(Walk, some_of_the_ranks_keep_its_order) {
  const std::vector<int> walk = {0, 3, 1, 4, 2, 5};
  EXPECT_THAT(walk_among(walk, std::vector{1, 2, 3}), ElementsAre(2, 0, 1));
  EXPECT_THAT(walk_among(walk, std::vector{3, 1, 2}), IsEmpty());
  EXPECT_THAT(walk_among({}, std::vector{5, 2}), ElementsAre(1, 0));
}

TEST(Racks, a_file_names_hosts_and_ranges_of_them) {
  const auto racks = Racks::parse(
      "# ours\nrow1/a: node[08-11]\tlogin\n\nrow1/b: node[12-13].site  # new\r\nempty:\n");
  ASSERT_TRUE(racks.ok()) << racks.status().to_string();
  EXPECT_EQ(racks->rack_of("node08"), "row1/a");
  EXPECT_EQ(racks->rack_of("node11.example.org"), "row1/a");
  EXPECT_EQ(racks->rack_of("node13.site"), "row1/b");
  EXPECT_EQ(racks->rack_of("node13"), "");
  EXPECT_EQ(racks->rack_of("node8"), "");
}

TEST(Racks, a_line_that_cannot_be_read_is_named) {
  const auto refusal = [](const char* text) {
    const auto racks = Racks::parse(text);
    return racks.ok() ? std::string() : racks.status().message();
  };
  EXPECT_THAT(refusal("a: x\nb y\n"), HasSubstr("line 2: 'b y'"));
  EXPECT_THAT(refusal("a: node[3-1]"), HasSubstr("line 1: 'node[3-1]'"));
  EXPECT_THAT(refusal("a: node[3"), HasSubstr("node[3"));
  EXPECT_THAT(refusal("a: node[1-999999999]"), HasSubstr("no range"));
  EXPECT_THAT(refusal(": x"), HasSubstr("no name of a rack"));
  EXPECT_THAT(refusal("a: x\n\nb: y x"), HasSubstr("line 3: host x was in rack a in line 1"));
}

}  // namespace
}  // namespace tutti::topology
