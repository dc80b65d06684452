// The catalog, what the passes achieve, and that a rank's program is cheap in a very large group.
#include "schedule/catalog.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "schedule/passes.hpp"
#include "schedule/verify.hpp"
#include "tutti/shape.hpp"
#include "worlds.hpp"

namespace tutti::schedule {
namespace {

using testing::HasSubstr;

constexpr Collective kAll[] = {
    Collective::broadcast,  Collective::reduce,  Collective::all_reduce,     Collective::gather,
    Collective::all_gather, Collective::scatter, Collective::reduce_scatter, Collective::all_to_all,
    Collective::barrier,    Collective::scan,    Collective::exclusive_scan,
};

TEST(Catalog, every_collective_has_an_algorithm_that_always_applies) {
  for (Collective collective : kAll) {
    const Entry* entry = find(collective, Algorithm::direct);
    ASSERT_NE(entry, nullptr) << to_string(collective);
    EXPECT_EQ(entry->applies, nullptr);
    EXPECT_EQ(entry->folds, FoldedFrom::whole) << to_string(collective);
  }
  for (Collective collective : {Collective::gather, Collective::all_gather, Collective::scatter,
                                Collective::reduce_scatter, Collective::all_to_all}) {
    EXPECT_TRUE(find(collective, Algorithm::direct)->uneven) << to_string(collective);
  }
}

TEST(Catalog, every_algorithm_serves_some_collective_and_no_pair_stands_twice) {
  std::set<std::pair<Collective, Algorithm>> pairs;
  std::set<Algorithm> algorithms;
  for (const Entry& entry : catalog()) {
    EXPECT_TRUE(pairs.emplace(entry.collective, entry.algorithm).second);
    algorithms.insert(entry.algorithm);
  }
  EXPECT_EQ(algorithms.size(), static_cast<std::size_t>(kAlgorithms - 2));
  EXPECT_FALSE(algorithms.contains(Algorithm::automatic));
  EXPECT_FALSE(algorithms.contains(Algorithm::custom));
}

// Parts of other ranks' sizes are known to their two ends only, so nobody else may hold them, and a
// message is one part.
TEST(Catalog, uneven_schedules_move_single_parts_between_those_who_know_them) {
  for (const Entry& entry : catalog()) {
    if (!entry.uneven) continue;
    each_request(entry, 2, 9, [&](const Request& request) {
      for (Mode mode : kModes) {
        const auto world = build_world(entry.algorithm, request, mode);
        ASSERT_TRUE(world.ok());
        for (const Program& program : *world) {
          for (const Op& op : program.ops) {
            EXPECT_LE(op.src.count, 1u);
            EXPECT_LE(op.dst.count, 1u);
          }
          // In all_gather and reduce_scatter all ranks know all sizes.
          if (entry.collective == Collective::all_gather ||
              entry.collective == Collective::reduce_scatter) {
            continue;
          }
          const auto n = static_cast<std::uint64_t>(program.size);
          for (std::uint64_t extent : program.scratch) {
            EXPECT_EQ(extent % n, static_cast<std::uint64_t>(program.rank));
          }
        }
      }
    });
  }
}

TEST(Catalog, what_does_not_exist_is_refused_with_a_list_of_what_does) {
  const auto wrong_pair = build(Algorithm::bruck, {.collective = Collective::broadcast, .size = 4});
  ASSERT_FALSE(wrong_pair.ok());
  EXPECT_EQ(wrong_pair.status().code(), Code::invalid_argument);
  EXPECT_THAT(wrong_pair.status().message(), HasSubstr("there is no bruck for broadcast"));
  EXPECT_THAT(wrong_pair.status().message(), HasSubstr("direct, linear, ring, binomial_tree"));

  const auto wrong_size =
      build(Algorithm::hypercube, {.collective = Collective::all_gather, .size = 6});
  ASSERT_FALSE(wrong_size.ok());
  EXPECT_THAT(wrong_size.status().message(), HasSubstr("does not exist for these 6 ranks"));
  EXPECT_THAT(wrong_size.status().message(), HasSubstr("torus_2d"));
  EXPECT_THAT(wrong_size.status().message(), testing::Not(HasSubstr("hierarchical")));
}

TEST(Catalog, senseless_requests_are_refused) {
  const int hosts[] = {0, 1};
  Request few_hosts{.size = 3};
  few_hosts.host_of = hosts;
  for (const Request& request :
       {Request{.size = 0}, Request{.size = 2, .rank = 2}, Request{.size = 2, .rank = -1},
        Request{.size = 2, .root = 2}, few_hosts}) {
    const auto program = build(Algorithm::direct, request);
    ASSERT_FALSE(program.ok());
    EXPECT_EQ(program.status().code(), Code::invalid_argument);
  }
}

TEST(Catalog, one_rank_sends_nothing) {
  for (const Entry& entry : catalog()) {
    each_request(entry, 1, 1, [&](const Request& request) {
      const auto program = build(entry.algorithm, request);
      ASSERT_TRUE(program.ok());
      for (const Op& op : program->ops) {
        EXPECT_TRUE(op.kind == OpKind::copy || op.kind == OpKind::reduce);
      }
    });
  }
}

// Ranks may differ in being in place, so nobody's messages may depend on it.
TEST(Catalog, messages_are_the_same_in_place_and_not) {
  using Message = std::tuple<OpKind, int, std::uint32_t>;
  const auto messages = [](const Program& program) {
    std::set<Message> found;
    for (const Op& op : program.ops) {
      if (op.peer != kLocal) found.emplace(op.kind, op.peer, op.step);
    }
    return found;
  };
  for (const Entry& entry : catalog()) {
    each_request(entry, 1, 12, [&](Request request) {
      for (request.rank = 0; request.rank < request.size; ++request.rank) {
        request.in_place = true;
        const auto inside = build(entry.algorithm, request);
        request.in_place = false;
        const auto outside = build(entry.algorithm, request);
        ASSERT_TRUE(inside.ok() && outside.ok());
        EXPECT_EQ(messages(*inside), messages(*outside));
      }
    });
  }
}

int count(const Program& program, OpKind kind) {
  int found = 0;
  for (const Op& op : program.ops) found += op.kind == kind;
  return found;
}

TEST(Passes, two_shots_in_place_become_one_fold_without_scratch) {
  auto program = build(Algorithm::direct, {.size = 8, .rank = 3, .in_place = true});
  ASSERT_TRUE(program.ok());
  const Program fused = fuse_folds(*program);
  EXPECT_TRUE(fused.scratch.empty());
  EXPECT_EQ(count(fused, OpKind::reduce), 1);
  EXPECT_EQ(count(fused, OpKind::send), 14);
  EXPECT_EQ(count(fused, OpKind::recv), 7);
}

TEST(Passes, one_shot_folds_peers_memory_only_when_it_does_not_overwrite_its_own) {
  Request request{.size = 4, .rank = 1};
  request.shots = 1;
  EXPECT_TRUE(fuse_folds(*build(Algorithm::direct, request)).scratch.empty());
  // In place every rank would overwrite what the others still read.
  request.in_place = true;
  EXPECT_EQ(fuse_folds(*build(Algorithm::direct, request)).scratch.size(), 3u);
}

TEST(Passes, a_ring_folds_straight_from_its_neighbour) {
  for (bool in_place : {false, true}) {
    Request request{.size = 6, .rank = 2, .in_place = in_place};
    const Program fused = fuse_folds(*build(Algorithm::ring, request));
    EXPECT_TRUE(fused.scratch.empty());
    EXPECT_EQ(count(fused, OpKind::recv), 5);
  }
}

TEST(Passes, staged_programs_are_right_and_touch_the_callers_memory_by_copies_alone) {
  const auto is_scratch = [](const Region& region) {
    return region.count == 0 || region.space == Space::scratch;
  };
  for (const Entry& entry : catalog()) {
    each_request(entry, 1, 9, [&](Request request) {
      auto programs = build_all(entry.algorithm, request);
      ASSERT_TRUE(programs.ok());
      for (Program& program : *programs) {
        program = stage(fuse_folds(std::move(program)));
        for (const Op& op : program.ops) {
          EXPECT_TRUE(op.kind == OpKind::copy || (is_scratch(op.src) && is_scratch(op.dst)));
          for (const Source& source : op.sources) EXPECT_TRUE(is_scratch(source.region));
        }
      }
      const auto proof = verify(*programs);
      EXPECT_TRUE(proof.ok()) << to_string(entry.collective) << " by " << to_string(entry.algorithm)
                              << ", " << request.size << " ranks: " << proof.status().to_string();
    });
  }
}

TEST(Passes, programs_with_a_barrier_beside_them_are_right_and_wait_for_all) {
  for (const Entry& entry : catalog()) {
    if (shape_of(entry.collective).all_meet()) continue;
    each_request(entry, 1, 9, [&](Request request) {
      auto programs = build_all(entry.algorithm, request);
      auto barriers = build_all(Algorithm::binomial_tree,
                                {.collective = Collective::barrier, .size = request.size});
      ASSERT_TRUE(programs.ok() && barriers.ok());
      for (std::size_t rank = 0; rank < programs->size(); ++rank) {
        Program& program = (*programs)[rank];
        const std::size_t before = program.ops.size();
        program = with_barrier(std::move(program), (*barriers)[rank]);
        EXPECT_EQ(program.ops.size(), before + (*barriers)[rank].ops.size());
      }
      const auto proof = verify(*programs);
      EXPECT_TRUE(proof.ok()) << to_string(entry.collective) << " by " << to_string(entry.algorithm)
                              << ", " << request.size << " ranks: " << proof.status().to_string();
    });
  }
}

TEST(Passes, running_a_pass_twice_changes_nothing) {
  for (const Entry& entry : catalog()) {
    each_request(entry, 1, 8, [&](Request request) {
      request.rank = request.size / 2;
      const Program once = fuse_folds(*build(entry.algorithm, request));
      EXPECT_EQ(fuse_folds(once), once);
    });
  }
}

TEST(Scale, a_rank_of_24576_costs_its_own_steps_only) {
  constexpr int n = 24576;
  const auto lg = static_cast<std::size_t>(std::bit_width(unsigned{n}));
  const auto size_of = [&](Collective collective, Algorithm algorithm, int rank) {
    const auto program = build(algorithm, {.collective = collective, .size = n, .rank = rank});
    EXPECT_TRUE(program.ok());
    const Program fused = fuse_folds(*program);
    return std::max(fused.ops.size(), program->ops.size() + program->scratch.size());
  };
  for (int rank : {0, 1, 12345, 16384, n - 1}) {
    for (Collective collective :
         {Collective::broadcast, Collective::reduce, Collective::all_reduce, Collective::barrier}) {
      EXPECT_LE(size_of(collective, Algorithm::binomial_tree, rank), 5 * lg);
    }
    for (Collective collective :
         {Collective::broadcast, Collective::reduce, Collective::all_reduce}) {
      EXPECT_LE(size_of(collective, Algorithm::double_binary_tree, rank), 100u);
    }
    for (Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::barrier, Collective::scan}) {
      EXPECT_LE(size_of(collective, Algorithm::recursive_doubling, rank), 6 * lg);
    }
    EXPECT_LE(size_of(Collective::all_gather, Algorithm::bruck, rank), 5 * lg);
    EXPECT_LE(size_of(Collective::all_reduce, Algorithm::ring, rank), 6u * n);
    EXPECT_LE(size_of(Collective::all_reduce, Algorithm::torus_2d, rank), 6u * n);
  }
}

}  // namespace
}  // namespace tutti::schedule
