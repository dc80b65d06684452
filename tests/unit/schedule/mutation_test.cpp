// Schedules broken on purpose, one change at a time: the verifier must notice every one of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "schedule/hazards.hpp"
#include "schedule/passes.hpp"
#include "schedule/text.hpp"
#include "schedule/verify.hpp"
#include "worlds.hpp"

namespace tutti::schedule {
namespace {

using World = std::vector<Program>;
// Changes op `at` of `program`; false when there is nothing to change there.
using ProgramMutation = std::function<bool(Program& program, std::size_t at)>;

constexpr int kSizes[] = {2, 3, 4, 5, 8};

// Every catalog entry at a few sizes, as built and with everything fused.
void each_world(const std::function<void(const Entry&, const World&)>& visit) {
  for (const Entry& entry : catalog()) {
    for (int n : kSizes) {
      each_request(entry, n, n, [&](const Request& request) {
        if (request.root != 0 && request.root != n - 1) return;
        for (Mode mode : {Mode::out_of_place, Mode::in_place}) {
          auto world = build_world(entry.algorithm, request, mode);
          ASSERT_TRUE(world.ok());
          visit(entry, *world);
          for (Program& program : *world) program = fuse_folds(std::move(program));
          visit(entry, *world);
        }
      });
    }
  }
}

void expect_programs_rejected(const ProgramMutation& mutation, int at_least) {
  int mutants = 0;
  each_world([&](const Entry&, const World& world) {
    for (std::size_t rank = 0; rank < world.size() && !testing::Test::HasFailure(); ++rank) {
      for (std::size_t at = 0; at < world[rank].ops.size(); ++at) {
        World mutant = world;
        if (!mutation(mutant[rank], at)) continue;
        ++mutants;
        ASSERT_FALSE(verify(mutant).ok()) << "rank " << rank << ", op " << at << " changed in\n"
                                          << print(world);
      }
    }
  });
  EXPECT_GE(mutants, at_least);
}

bool is_message(const Op& op) { return op.kind == OpKind::send || op.kind == OpKind::recv; }

// Zero bytes: chunks of a barrier are all alike, and its last copy is for those who build on it.
bool is_barrier(const Program& program) { return program.collective == Collective::barrier; }

TEST(Mutations, a_dropped_op_is_noticed) {
  expect_programs_rejected(
      [](Program& program, std::size_t at) {
        if (is_barrier(program) && !is_message(program.ops[at])) return false;
        program.ops.erase(program.ops.begin() + static_cast<std::ptrdiff_t>(at));
        return true;
      },
      5000);
}

TEST(Mutations, a_repeated_message_is_noticed) {
  expect_programs_rejected(
      [](Program& program, std::size_t at) {
        if (!is_message(program.ops[at])) return false;
        program.ops.push_back(program.ops[at]);
        return true;
      },
      3000);
}

TEST(Mutations, a_raw_flag_that_lies_is_noticed) {
  expect_programs_rejected(
      [](Program& program, std::size_t at) {
        if (program.ops[at].kind != OpKind::reduce) return false;
        Source& source = program.ops[at].sources[at % program.ops[at].sources.size()];
        source.raw = !source.raw;
        return true;
      },
      1000);
}

TEST(Mutations, a_result_finished_never_or_too_early_is_noticed) {
  expect_programs_rejected(
      [](Program& program, std::size_t at) {
        if (program.ops[at].kind != OpKind::reduce) return false;
        program.ops[at].finish = !program.ops[at].finish;
        return true;
      },
      1000);
}

TEST(Mutations, a_contribution_left_out_or_taken_twice_is_noticed) {
  expect_programs_rejected(
      [](Program& program, std::size_t at) {
        auto& sources = program.ops[at].sources;
        if (program.ops[at].kind != OpKind::reduce || sources.size() < 2) return false;
        sources.erase(sources.begin() + static_cast<std::ptrdiff_t>(at % sources.size()));
        return true;
      },
      1000);
  expect_programs_rejected(
      [](Program& program, std::size_t at) {
        auto& sources = program.ops[at].sources;
        if (program.ops[at].kind != OpKind::reduce) return false;
        sources.push_back(sources[at % sources.size()]);
        return true;
      },
      1000);
}

TEST(Mutations, a_wrong_peer_is_noticed) {
  expect_programs_rejected(
      [](Program& program, std::size_t at) {
        if (!is_message(program.ops[at])) return false;
        program.ops[at].peer = (program.ops[at].peer + 1) % program.size;
        return true;
      },
      3000);
}

TEST(Mutations, a_wrong_step_is_noticed) {
  for (std::uint32_t shift : {1u, 1000u}) {
    expect_programs_rejected(
        [shift](Program& program, std::size_t at) {
          if (!is_message(program.ops[at])) return false;
          program.ops[at].step += shift;
          return true;
        },
        3000);
  }
}

TEST(Mutations, a_wrong_region_is_noticed) {
  for (bool shift : {true, false}) {
    expect_programs_rejected(
        [shift](Program& program, std::size_t at) {
          Op& op = program.ops[at];
          if (is_barrier(program)) return false;
          Region& region = op.kind == OpKind::send ? op.src : op.dst;
          shift ? ++region.first : ++region.count;
          return true;
        },
        5000);
  }
}

TEST(Mutations, input_as_destination_is_noticed) {
  expect_programs_rejected(
      [](Program& program, std::size_t at) {
        Op& op = program.ops[at];
        if (op.kind == OpKind::send || is_barrier(program)) return false;
        op.dst.space = Space::input;
        return true;
      },
      1000);
}

// An op that reads what another writes, or the other way round, with the two exchanged in time.
TEST(Mutations, conflicting_ops_in_the_wrong_order_are_noticed) {
  expect_programs_rejected(
      [](Program& program, std::size_t at) {
        if (is_barrier(program)) return false;
        for (const auto& [earlier, later] : hazards(program)) {
          if (later != at) continue;
          // Two that only write, or two that add to one sum, may stand either way.
          const Op &first = program.ops[earlier], &second = program.ops[later];
          const bool alike = first.kind == second.kind && first.dst == second.dst;
          if (alike || (first.kind == OpKind::recv && second.kind == OpKind::recv)) continue;
          auto& ops = program.ops;
          std::rotate(ops.begin() + earlier, ops.begin() + later, ops.begin() + later + 1);
          return true;
        }
        return false;
      },
      1000);
}

TEST(Mutations, operands_out_of_order_are_never_called_rank_ordered) {
  int mutants = 0;
  each_world([&](const Entry& entry, const World& world) {
    if (entry.folds == FoldedFrom::anyhow) return;
    for (std::size_t rank = 0; rank < world.size(); ++rank) {
      for (std::size_t at = 0; at < world[rank].ops.size(); ++at) {
        World mutant = world;
        auto& sources = mutant[rank].ops[at].sources;
        if (sources.size() < 2) continue;
        std::swap(sources[0], sources[at % (sources.size() - 1) + 1]);
        ++mutants;
        const auto report = verify(mutant);
        EXPECT_FALSE(report.ok() && report->rank_ordered) << print(world);
      }
    }
  });
  EXPECT_GE(mutants, 300);
}

TEST(Mutations, a_rank_without_any_message_is_noticed) {
  // An all_gather of nobody: both ranks keep to themselves.
  auto world = build_world(Algorithm::linear, {.collective = Collective::barrier, .size = 2},
                           Mode::in_place);
  ASSERT_TRUE(world.ok());
  for (Program& program : *world) program.ops.clear();
  const auto report = verify(*world);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.status().message().find("no chain of messages"), std::string::npos);
}

}  // namespace
}  // namespace tutti::schedule
