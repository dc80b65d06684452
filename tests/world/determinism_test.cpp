// Equal bits: reduction_order = rank and tree whatever the algorithm, transport, memory, segment size and
// place; any on all ranks, and in every run with the same tuning.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <tuple>

#include "schedule/catalog.hpp"
#include "support/trial.hpp"
#include "support/worlds.hpp"
#include "tutti/dtypes.hpp"

namespace tutti::test {
namespace {

constexpr std::size_t kCounts[] = {1, 509, 20'011};

// All algorithms that may be forced in the group's order, and the library's own choice. Of narrow floats
// only those that fold once: others would round on the way.
std::vector<Algorithm> in_order(const Group& group, Collective collective, Dtype dtype) {
  std::vector<Algorithm> algorithms{Algorithm::automatic};
  const std::vector<int> hosts = group.hosts();
  schedule::Request request;
  request.collective = collective;
  request.size = group.size();
  request.host_of = hosts;
  request.order = group.reduction_order();
  for (const schedule::Entry& entry : schedule::catalog()) {
    const bool is_exact =
        accumulation_of(dtype) == dtype || entry.folds == schedule::FoldedFrom::whole;
    if (entry.collective == collective && is_exact && !entry.by_switch &&
        entry.keeps_order(request) && (!entry.applies || entry.applies(request)))
      algorithms.push_back(entry.algorithm);
  }
  return algorithms;
}

// The reference knows the exact bits, so whatever passes this has given the same bits as everything
// else that does.
void try_all_ways(Group& group, Dtype dtype, const Reduction& reduction = ReduceOp::sum) {
  Arena arena(group, 4 << 20);
  for (Collective collective :
       {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter, Collective::scan})
    for (std::size_t count : kCounts) {
      std::optional<Bytes> expected;
      for (Algorithm algorithm : in_order(group, collective, dtype))
        for (bool in_place : {false, true})
          for (bool symmetric : {false, true}) {
            Case what{
                .collective = collective, .dtype = dtype, .count = count, .algorithm = algorithm};
            what.reduction = reduction;
            what.in_place = in_place;
            what.values = Values::arbitrary;
            what.root = group.size() - 1;
            arena.reset();
            Trial trial(group, what, symmetric ? &arena : nullptr);
            const Status status = trial.run();
            if (!expected) expected = trial.expected();
            trial.check(status, *expected);
          }
    }
}

using OrderedWorld = std::tuple<WorldKind, int, std::size_t, ReductionOrder>;
class KeptOrder : public testing::TestWithParam<OrderedWorld> {};

TEST_P(KeptOrder, gives_the_same_bits_whatever_algorithm_transport_memory_segment_and_place) {
  const auto [kind, size, segment, order] = GetParam();
  World world{.kind = kind, .size = size, .order = order};
  world.tune = [segment = segment](Config& config) { config.segment_bytes = segment; };
  if (const auto why = unavailable(world)) GTEST_SKIP() << *why;
  run(world, [](Context& here) {
    for (Dtype dtype : {Dtype::f32, Dtype::bf16}) try_all_ways(*here.group, dtype);
  });
}

std::string name_of_ordered(const testing::TestParamInfo<OrderedWorld>& info) {
  return std::string(to_string(std::get<3>(info.param))) + "_" +
         to_string(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param)) +
         "_segments_of_" + std::to_string(std::get<2>(info.param));
}

std::vector<OrderedWorld> rank_order_worlds() {
  constexpr auto kRank = ReductionOrder::rank;
  std::vector<OrderedWorld> worlds;
  for (int size = 2; size <= (reduced() ? 3 : 8); ++size)
    for (WorldKind kind : {WorldKind::threads, WorldKind::shm, WorldKind::tcp})
      worlds.emplace_back(kind, size, size % 2 == 0 ? 4096 : 128 * 1024, kRank);
  // Odd sizes with small segments too, once each.
  worlds.emplace_back(WorldKind::threads, 3, 4096, kRank);
  worlds.emplace_back(WorldKind::shm, 3, 4096, kRank);
  worlds.emplace_back(WorldKind::tcp, 3, 4096, kRank);
  worlds.emplace_back(WorldKind::mixed, 4, 16 * 1024, kRank);
  worlds.emplace_back(WorldKind::mixed, 5, 4096, kRank);
  return worlds;
}

// Powers of two, where most algorithms make the tree, and others, where few do.
std::vector<OrderedWorld> tree_order_worlds() {
  constexpr auto kTree = ReductionOrder::tree;
  std::vector<OrderedWorld> worlds{
      {WorldKind::threads, 4, 4096, kTree},   {WorldKind::threads, 5, 128 * 1024, kTree},
      {WorldKind::shm, 4, 128 * 1024, kTree}, {WorldKind::tcp, 4, 4096, kTree},
      {WorldKind::mixed, 4, 4096, kTree},     {WorldKind::mixed, 5, 16 * 1024, kTree}};
  if (reduced()) return worlds;
  worlds.insert(worlds.end(), {{WorldKind::threads, 8, 4096, kTree},
                               {WorldKind::shm, 7, 4096, kTree},
                               {WorldKind::tcp, 7, 128 * 1024, kTree},
                               {WorldKind::mixed, 8, 16 * 1024, kTree}});
  return worlds;
}

INSTANTIATE_TEST_SUITE_P(Rank, KeptOrder, testing::ValuesIn(rank_order_worlds()), name_of_ordered);
INSTANTIATE_TEST_SUITE_P(Tree, KeptOrder, testing::ValuesIn(tree_order_worlds()), name_of_ordered);

// Ranks that follow each other need not share a host, nor those that share one follow each other.
TEST(OrderOnHosts, is_kept_however_ranks_are_dealt_out) {
  const World world{.kind = WorldKind::mixed, .size = 5, .order = ReductionOrder::rank};
  if (const auto why = unavailable(world)) GTEST_SKIP() << *why;
  run(world, [](Context& here) {
    auto dealt = here.group->split(0, here.rank * 2 % here.size);
    ASSERT_TRUE(dealt.ok()) << dealt.status().to_string();
    const auto algorithms = in_order(**dealt, Collective::all_reduce, Dtype::f32);
    EXPECT_NE(std::find(algorithms.begin(), algorithms.end(), Algorithm::chain), algorithms.end());
    try_all_ways(**dealt, Dtype::f32);
  });
}

// Hosts of two ranks each: their sums are made inside first, and are the very same.
TEST(OrderOnHosts, a_tree_is_folded_inside_hosts_first_where_they_are_subtrees_of_it) {
  const World world{.kind = WorldKind::mixed, .size = 4, .order = ReductionOrder::tree};
  if (const auto why = unavailable(world)) GTEST_SKIP() << *why;
  run(world, [](Context& here) {
    const auto has_hierarchy = [](const Group& group) {
      const auto algorithms = in_order(group, Collective::all_reduce, Dtype::f32);
      return std::find(algorithms.begin(), algorithms.end(), Algorithm::hierarchical) !=
             algorithms.end();
    };
    EXPECT_TRUE(has_hierarchy(*here.group));
    try_all_ways(*here.group, Dtype::u64, Reduction::by(composition()));

    // One rank of each host in turn: no host is a subtree, and what needs that says so.
    auto dealt = here.group->split(0, here.rank % 2);
    ASSERT_TRUE(dealt.ok()) << dealt.status().to_string();
    EXPECT_FALSE(has_hierarchy(**dealt));
    Trial trial(**dealt, {.count = 100, .algorithm = Algorithm::hierarchical});
    const Status status = trial.run();
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    EXPECT_NE(status.to_string().find("in tree order"), std::string::npos) << status.to_string();
    try_all_ways(**dealt, Dtype::f32);
  });
}

TEST(RankOrderRefuses, algorithms_that_fold_in_another_order) {
  run(World{.size = 4, .order = ReductionOrder::rank}, [](Context& here) {
    const auto* ring = schedule::find(Collective::all_reduce, Algorithm::ring);
    ASSERT_NE(ring, nullptr);
    ASSERT_EQ(ring->folds, schedule::FoldedFrom::anyhow);
    Trial trial(*here.group, {.count = 100, .algorithm = Algorithm::ring});
    const Status status = trial.run();
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    try_out(*here.group, {.count = 100, .values = Values::arbitrary});
  });
}

class AnyOrder : public WorldTest {};

// One hash per call and run, agreed on by all ranks: they gather the hashes and compare.
void hash_all_calls(Context& here, std::vector<std::uint64_t>& hashes) {
  for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (std::size_t count : kCounts) {
      Case what{.dtype = dtype, .count = count, .in_place = true, .values = Values::arbitrary};
      Trial trial(*here.group, what);
      const Status status = trial.run();
      ASSERT_TRUE(status.ok()) << status.to_string();
      const Bytes output = trial.output();
      hashes.push_back(hash_of(output.data(), output.size()));
    }
}

TEST_P(AnyOrder, gives_the_same_bits_on_all_ranks_and_in_every_run) {
  const World world = GetParam();
  // Ranks live in processes that end with their world: a file without a name brings the hashes
  // back.
  std::vector<std::vector<std::uint64_t>> runs(2);
  for (auto& hashes : runs) hashes.resize(9);
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  for (std::size_t which = 0; which < runs.size(); ++which)
    run(world, [file, which](Context& here) {
      std::vector<std::uint64_t> mine;
      hash_all_calls(here, mine);
      std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(here.size));
      const Status status = here.group->all_gather(ConstBuffer::of(mine), Buffer::of(all));
      ASSERT_TRUE(status.ok()) << status.to_string();
      for (std::size_t i = 0; i < all.size(); ++i)
        EXPECT_EQ(all[i], mine[i % mine.size()]) << "rank " << i / mine.size() << " differs";
      if (here.rank != 0) return;
      const auto bytes = static_cast<ssize_t>(mine.size() * sizeof mine[0]);
      EXPECT_EQ(pwrite(fileno(file), mine.data(), static_cast<std::size_t>(bytes),
                       static_cast<off_t>(which) * bytes),
                bytes);
    });
  for (std::size_t which = 0; which < runs.size(); ++which) {
    const auto bytes = static_cast<ssize_t>(runs[which].size() * sizeof runs[which][0]);
    ASSERT_EQ(pread(fileno(file), runs[which].data(), static_cast<std::size_t>(bytes),
                    static_cast<off_t>(which) * bytes),
              bytes);
  }
  std::fclose(file);
  EXPECT_EQ(runs[0], runs[1]);
}

std::vector<World> any_order_worlds() {
  std::vector<World> worlds = one_world_of_each();
  for (WorldKind kind : {WorldKind::threads, WorldKind::shm, WorldKind::tcp})
    worlds.push_back(World{.kind = kind, .size = 5});
  return worlds;
}

INSTANTIATE_TEST_SUITE_P(World, AnyOrder, testing::ValuesIn(any_order_worlds()), name_of);

}  // namespace
}  // namespace tutti::test
