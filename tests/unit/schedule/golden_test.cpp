// Small schedules as text, compared with tests/golden/*.txt to the letter: a change of a builder
// shows up in review as a change of these files. tests/golden/README.md says how to write them
// anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "schedule/host/lower.hpp"
#include "schedule/host/text.hpp"
#include "schedule/passes.hpp"
#include "schedule/text.hpp"
#include "schedule/verify.hpp"
#include "worlds.hpp"

namespace tutti::schedule {
namespace {

struct Golden {
  const char* name;
  Algorithm algorithm;
  Request request;
  bool fused = false;
};

constexpr int kThreeAndTwo[] = {0, 0, 0, 1, 1};
constexpr int kTwoAndTwo[] = {0, 0, 1, 1};
constexpr int kOddOnesLast[] = {0, 2, 1, 3};

std::vector<Golden> goldens() {
  using A = Algorithm;
  using C = Collective;
  Request one_shot{.collective = C::all_reduce, .size = 3};
  one_shot.shots = 1;
  Request hosts{.collective = C::all_reduce, .size = 5};
  hosts.host_of = kThreeAndTwo;
  Request rails{.collective = C::all_gather, .size = 4};
  rails.host_of = kTwoAndTwo;
  Request rails_back = rails;
  rails_back.collective = C::reduce_scatter;
  Request slices = rails;
  slices.collective = C::all_reduce;
  Request bundles = rails;
  bundles.collective = C::all_to_all;
  Request walk{.collective = C::all_gather, .size = 4};
  walk.walk = kOddOnesLast;
  Request chain = hosts;
  Request chain_back = rails_back;
  Request as_tree{.collective = C::reduce, .size = 5};
  as_tree.order = ReductionOrder::tree;
  Request fused{.collective = C::all_reduce, .size = 3, .in_place = true};
  return {
      {"all_reduce_direct_one_shot_3", A::direct, one_shot},
      {"all_reduce_direct_two_shots_3", A::direct, {.collective = C::all_reduce, .size = 3}},
      {"all_reduce_direct_two_shots_3_fused", A::direct, fused, true},
      {"all_reduce_ring_4", A::ring, {.collective = C::all_reduce, .size = 4}},
      {"all_reduce_binomial_tree_5", A::binomial_tree, {.collective = C::all_reduce, .size = 5}},
      {"all_reduce_double_binary_tree_3",
       A::double_binary_tree,
       {.collective = C::all_reduce, .size = 3}},
      {"all_reduce_recursive_doubling_6",
       A::recursive_doubling,
       {.collective = C::all_reduce, .size = 6}},
      {"all_reduce_halving_doubling_6",
       A::halving_doubling,
       {.collective = C::all_reduce, .size = 6}},
      {"all_reduce_pairwise_3", A::pairwise, {.collective = C::all_reduce, .size = 3}},
      {"all_reduce_hierarchical_3_and_2", A::hierarchical, hosts},
      {"all_gather_hierarchical_2_and_2", A::hierarchical, rails},
      {"reduce_scatter_hierarchical_2_and_2", A::hierarchical, rails_back},
      {"all_reduce_hierarchical_2_and_2", A::hierarchical, slices},
      {"all_to_all_hierarchical_2_and_2", A::hierarchical, bundles},
      {"all_gather_ring_4_walk_0_2_1_3", A::ring, walk},
      {"all_reduce_chain_3_and_2", A::chain, chain},
      {"reduce_scatter_chain_2_and_2", A::chain, chain_back},
      {"reduce_direct_5_tree", A::direct, as_tree},
      {"reduce_scatter_ring_4_fused", A::ring, {.collective = C::reduce_scatter, .size = 4}, true},
      {"broadcast_ring_3_root_1", A::ring, {.collective = C::broadcast, .size = 3, .root = 1}},
      {"gather_binomial_tree_6_root_4",
       A::binomial_tree,
       {.collective = C::gather, .size = 6, .root = 4}},
      {"all_gather_hypercube_4", A::hypercube, {.collective = C::all_gather, .size = 4}},
      {"all_gather_bruck_5", A::bruck, {.collective = C::all_gather, .size = 5}},
      {"all_gather_torus_2d_6", A::torus_2d, {.collective = C::all_gather, .size = 6}},
      {"all_to_all_bruck_3", A::bruck, {.collective = C::all_to_all, .size = 3}},
      {"all_to_all_pairwise_3_in_place",
       A::pairwise,
       {.collective = C::all_to_all, .size = 3, .in_place = true}},
      {"barrier_recursive_doubling_5",
       A::recursive_doubling,
       {.collective = C::barrier, .size = 5}},
      {"scan_linear_4", A::linear, {.collective = C::scan, .size = 4}},
      {"scan_recursive_doubling_5", A::recursive_doubling, {.collective = C::scan, .size = 5}},
  };
}

// The file of that name, and what it must be.
std::string expect_golden(const std::string& name, const std::string& now) {
  const char* root = std::getenv("TUTTI_SOURCE_DIR");  // ctest sets it; by hand: run from the root
  const std::string path = std::string(root ? root : ".") + "/tests/golden/" + name + ".txt";
  if (std::getenv("TUTTI_UPDATE_GOLDENS")) std::ofstream(path) << now;
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << " is missing; tests/golden/README.md says how to write it";
  std::stringstream before;
  before << file.rdbuf();
  EXPECT_EQ(before.str(), now);
  return before.str();
}

class Goldens : public testing::TestWithParam<Golden> {};

TEST_P(Goldens, the_schedule_reads_as_it_did) {
  const Golden& golden = GetParam();
  auto programs = build_all(golden.algorithm, golden.request);
  ASSERT_TRUE(programs.ok()) << programs.status().to_string();
  if (golden.fused) {
    for (Program& program : *programs) program = fuse_folds(std::move(program));
  }
  const std::string before = expect_golden(golden.name, print(*programs));
  // What lies in the file is a proved schedule too.
  const auto read_back = parse(before);
  ASSERT_TRUE(read_back.ok());
  EXPECT_TRUE(verify(*read_back).ok());
}

INSTANTIATE_TEST_SUITE_P(Schedules, Goldens, testing::ValuesIn(goldens()),
                         [](const auto& info) { return std::string(info.param.name); });

struct HostGolden {
  const char* name;
  Collective collective;
  Reach reach;
};

class HostGoldens : public testing::TestWithParam<HostGolden> {};

TEST_P(HostGoldens, the_form_reads_as_it_did) {
  const HostGolden& golden = GetParam();
  const Request request{.collective = golden.collective, .size = 3, .in_place = true};
  auto programs = build_all(Algorithm::direct, request);
  ASSERT_TRUE(programs.ok());
  for (Program& program : *programs) program = fuse_folds(std::move(program));
  const auto forms = lower(*programs, golden.reach);
  ASSERT_TRUE(forms);
  expect_golden(golden.name, print(*forms));
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, HostGoldens,
    testing::Values(
        HostGolden{"host_all_reduce_3_window", Collective::all_reduce, Reach::window},
        HostGolden{"host_all_reduce_3_mapped", Collective::all_reduce, Reach::mapped},
        HostGolden{"host_all_gather_3_readable", Collective::all_gather, Reach::readable},
        HostGolden{"host_broadcast_3_mapped", Collective::broadcast, Reach::mapped},
        HostGolden{"host_reduce_3_mapped_source", Collective::reduce, Reach::mapped_source}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tutti::schedule
