// Small schedules as text, compared with tests/golden/*.txt to the letter: a change of a builder
// shows up in review as a change of these files. tests/golden/README.md says how to write them
// anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

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

class Goldens : public testing::TestWithParam<Golden> {};

TEST_P(Goldens, the_schedule_reads_as_it_did) {
  const Golden& golden = GetParam();
  auto programs = build_all(golden.algorithm, golden.request);
  ASSERT_TRUE(programs.ok()) << programs.status().to_string();
  if (golden.fused) {
    for (Program& program : *programs) program = fuse_puts(fuse_folds(std::move(program)));
  }
  const char* root = std::getenv("TUTTI_SOURCE_DIR");  // ctest sets it; by hand: run from the root
  const std::string path = std::string(root ? root : ".") + "/tests/golden/" + golden.name + ".txt";
  const std::string now = print(*programs);
  if (std::getenv("TUTTI_UPDATE_GOLDENS")) std::ofstream(path) << now;
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing; tests/golden/README.md says how to write it";
  std::stringstream before;
  before << file.rdbuf();
  EXPECT_EQ(before.str(), now);
  // What lies in the file is a proved schedule too.
  const auto read_back = parse(before.str());
  ASSERT_TRUE(read_back.ok());
  EXPECT_TRUE(verify(*read_back).ok());
}

INSTANTIATE_TEST_SUITE_P(Schedules, Goldens, testing::ValuesIn(goldens()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tutti::schedule
