// Where ranks are drawn: shapes are read off the schedules, and no two ranks share a place.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "schedule/catalog.hpp"
#include "tool/show/layout.hpp"

namespace tutti::tool {
namespace {

Layout layout_of(Collective collective, Algorithm algorithm, int n, int root = 0,
                 std::vector<int> host_of = {}) {
  schedule::Request request{.collective = collective, .size = n, .root = root, .in_place = true};
  request.host_of = host_of;
  auto programs = schedule::build_all(algorithm, request);
  EXPECT_TRUE(programs.ok()) << programs.status().to_string();
  return lay_out(*programs, host_of);
}

TEST(ShowLayout, every_rank_has_a_place_of_its_own) {
  for (const schedule::Entry& entry : schedule::catalog())
    for (int n = 1; n <= 16; ++n) {
      std::vector<int> host_of;
      for (int rank = 0; rank < n; ++rank) host_of.push_back(rank / 3);
      schedule::Request request{.collective = entry.collective, .size = n, .host_of = host_of};
      if (entry.applies && !entry.applies(request)) continue;
      const Layout layout = layout_of(entry.collective, entry.algorithm, n, 0, host_of);
      std::set<std::pair<double, double>> places;
      for (std::size_t rank = 0; rank < layout.x.size(); ++rank) {
        EXPECT_TRUE(layout.x[rank] >= -1e-9 && layout.x[rank] <= 1 + 1e-9);
        EXPECT_TRUE(layout.y[rank] >= -1e-9 && layout.y[rank] <= 1 + 1e-9);
        places.emplace(std::round(layout.x[rank] * 1e3), std::round(layout.y[rank] * 1e3));
      }
      EXPECT_EQ(places.size(), static_cast<std::size_t>(entry.programs_of(n)))
          << to_string(entry.collective) << " " << to_string(entry.algorithm) << " " << n;
    }
}

TEST(ShowLayout, a_binomial_tree_hangs_from_its_root) {
  const Layout layout = layout_of(Collective::broadcast, Algorithm::binomial_tree, 8, 3);
  EXPECT_EQ(layout.kind, "tree");
  for (std::size_t rank = 0; rank < 8; ++rank) EXPECT_EQ(layout.y[rank] == 0, rank == 3);
}

// Whoever is inside the one tree is a leaf of the other: the roots are at opposite ends.
TEST(ShowLayout, two_trees_face_each_other) {
  const Layout layout = layout_of(Collective::all_reduce, Algorithm::double_binary_tree, 8);
  EXPECT_EQ(layout.kind, "two_trees");
  EXPECT_EQ(layout.y[0], 0);
  EXPECT_EQ(layout.y[7], 1);
  EXPECT_LT(layout.y[4], layout.y[2]);
  EXPECT_LT(layout.y[2], layout.y[1]);
  EXPECT_LT(layout.y[1], layout.y[3]);
}

TEST(ShowLayout, grids_hosts_cubes_and_stars) {
  EXPECT_EQ(layout_of(Collective::all_reduce, Algorithm::torus_2d, 12).kind, "grid");
  EXPECT_EQ(layout_of(Collective::all_gather, Algorithm::hypercube, 8).kind, "cube");
  EXPECT_EQ(layout_of(Collective::all_reduce, Algorithm::recursive_doubling, 6).kind, "ring");
  EXPECT_EQ(layout_of(Collective::gather, Algorithm::linear, 5, 2).kind, "star");
  const Layout hosts =
      layout_of(Collective::all_reduce, Algorithm::hierarchical, 4, 0, {0, 0, 1, 1});
  EXPECT_EQ(hosts.kind, "hosts");
  EXPECT_EQ(hosts.hosts, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  EXPECT_EQ(hosts.y[0], hosts.y[1]);
  EXPECT_LT(hosts.y[0], hosts.y[2]);
}

}  // namespace
}  // namespace tutti::tool
