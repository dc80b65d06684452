// Host forms: every schedule of the catalog that fits is lowered and proved, for every reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "schedule/host/lower.hpp"
#include "schedule/host/push.hpp"
#include "schedule/host/text.hpp"
#include "schedule/passes.hpp"
#include "schedule/text.hpp"
#include "schedule/verify.hpp"
#include "worlds.hpp"

namespace tutti::schedule {
namespace {

using Forms = std::vector<HostForm>;
using ::testing::HasSubstr;

std::vector<Program> fused_world(const Entry& entry, const Request& request, Mode mode) {
  auto world = build_world(entry.algorithm, request, mode);
  EXPECT_TRUE(world.ok()) << world.status().to_string();
  for (Program& program : *world) program = fuse_folds(std::move(program));
  return *std::move(world);
}

// Of rooted collectives only the root has both sides; broadcast and barrier have one.
bool is_worth_lowering(Mode mode, const Request& request) {
  const Collective collective = request.collective;
  if (collective == Collective::broadcast || collective == Collective::barrier)
    return mode == Mode::in_place;
  if (!has_root(collective)) return true;
  return mode != Mode::mixed && (request.size <= 16 || request.root % 21 == 0);
}

bool all_unaliased(const Forms& forms) {
  return std::all_of(forms.begin(), forms.end(), [](const HostForm& f) { return f.unaliased; });
}

class LoweredCatalog : public ::testing::TestWithParam<Entry> {};

// Proves one world for every reach; how many forms were proved.
int prove_forms(const Entry& entry, const Request& request, Mode mode) {
  const auto world = fused_world(entry, request, mode);
  const auto messages = verify(world);
  EXPECT_TRUE(messages.ok());
  int proved = 0;
  for (const Reach reach : kReaches) {
    const auto forms = lower(world, reach);
    if (!forms) continue;
    const std::string what =
        describe(entry, request, mode) + ", reach " + std::string(to_string(reach));
    const auto report = verify(*forms);
    if (reach != Reach::window && !all_unaliased(*forms)) {
      // The flag is no more careful than it has to be: these forms are wrong indeed.
      EXPECT_FALSE(report.ok()) << what;
      continue;
    }
    EXPECT_TRUE(report.ok()) << what << ": " << report.status().to_string() << "\n"
                             << print(*forms);
    if (!report.ok()) return proved;
    EXPECT_EQ(report->rank_ordered, messages->rank_ordered) << what;
    EXPECT_EQ(report->tree_ordered, messages->tree_ordered) << what;
    EXPECT_EQ(report->whole_folds, messages->whole_folds) << what;
    EXPECT_EQ(report->expression, messages->expression) << what;
    if (const auto pushing = pushed(*forms)) {
      const auto same = verify(*pushing);
      EXPECT_TRUE(same.ok()) << what << ", pushed: " << same.status().to_string() << "\n"
                             << print(*pushing);
    }
    ++proved;
  }
  return proved;
}

TEST_P(LoweredCatalog, are_proved_for_every_size_root_and_reach) {
  const Entry& entry = GetParam();
  int proved = 0;
  each_request(entry, 1, most_ranks(), [&](const Request& request) {
    for (Mode mode : kModes)
      if (!HasFailure() && is_worth_lowering(mode, request))
        proved += prove_forms(entry, request, mode);
  });
  RecordProperty("proved", proved);
  if (entry.algorithm == Algorithm::direct) {
    EXPECT_GE(proved, 2 * most_ranks());
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, LoweredCatalog, ::testing::ValuesIn(catalog()),
                         [](const auto& info) {
                           return std::string(to_string(info.param.collective)) + "_" +
                                  std::string(to_string(info.param.algorithm));
                         });

std::vector<Program> programs_of(Collective collective, Algorithm algorithm, int size,
                                 Mode mode = Mode::out_of_place) {
  return fused_world(*find(collective, algorithm), {.collective = collective, .size = size}, mode);
}

TEST(Lowering, every_direct_schedule_fits_and_folds_are_the_only_obstacle_to_reading) {
  for (const Entry& entry : catalog()) {
    if (entry.algorithm != Algorithm::direct) continue;
    for (int n : {2, 3, 8, 33}) {
      const auto programs = programs_of(entry.collective, Algorithm::direct, n);
      const Lowering lowering(programs);
      EXPECT_TRUE(lowering.fits()) << lowering.objection();
      EXPECT_EQ(lowering.allows(Reach::readable), !has_reduction(entry.collective));
    }
  }
}

TEST(Lowering, says_who_does_too_much) {
  const auto objection = [](Collective collective, Algorithm algorithm, int size) {
    const auto programs = programs_of(collective, algorithm, size);
    return Lowering(programs).objection();
  };
  EXPECT_THAT(objection(Collective::broadcast, Algorithm::binomial_tree, 5),
              HasSubstr("forwards what it received"));
  EXPECT_THAT(objection(Collective::all_reduce, Algorithm::ring, 4), HasSubstr("rank 0"));
  EXPECT_EQ(objection(Collective::broadcast, Algorithm::binomial_tree, 2), "");
}

TEST(Lowering, a_barrier_is_one_meeting_whatever_its_messages_are) {
  for (const Algorithm algorithm : algorithms_for(Collective::barrier)) {
    if (wants_hosts(algorithm)) continue;  // has no single host
    const auto forms = lower(programs_of(Collective::barrier, algorithm, 5), Reach::window);
    ASSERT_TRUE(forms) << to_string(algorithm);
    for (const HostForm& form : *forms) {
      EXPECT_EQ(form.meetings(), 1u);
      for (const HostPhase& phase : form.phases) EXPECT_TRUE(phase.moves.empty() && !phase.fold);
    }
  }
}

// Ranks may mix: one calls in place, another does not. They must find each other's chunks all the
// same.
TEST(Lowering, shows_the_same_chunks_in_place_or_not) {
  for (Collective collective : {Collective::all_reduce, Collective::all_gather,
                                Collective::reduce_scatter, Collective::all_to_all}) {
    for (int size : {2, 3, 6}) {
      const auto apart = lower(programs_of(collective, Algorithm::direct, size), Reach::window);
      const auto within =
          lower(programs_of(collective, Algorithm::direct, size, Mode::in_place), Reach::window);
      ASSERT_TRUE(apart && within);
      for (std::size_t r = 0; r < apart->size(); ++r) {
        EXPECT_EQ((*apart)[r].shown, (*within)[r].shown);
        EXPECT_EQ((*apart)[r].shown_extents, (*within)[r].shown_extents);
        EXPECT_EQ((*apart)[r].phases.size(), (*within)[r].phases.size());
      }
    }
  }
}

TEST(Pushing, is_for_what_goes_to_several_places_in_place_or_not) {
  const auto pushes = [](Collective collective, int size, Mode mode) {
    const auto forms = lower(programs_of(collective, Algorithm::direct, size, mode), Reach::mapped);
    const auto pushing = pushed(*forms);
    if (!pushing) return false;
    std::size_t takes = 0, gives = 0;
    for (const HostForm& form : *pushing)
      for (const HostMove& move : form.phases[1].moves) {
        takes += move.action == HostAction::take;
        gives += move.action == HostAction::give;
        EXPECT_EQ(move.givers_share, move.peer == kLocal ? 0 : 1);
      }
    EXPECT_EQ(takes, gives);
    return gives > 0;
  };
  for (const Entry& entry : catalog()) {
    if (entry.algorithm != Algorithm::direct) continue;
    for (const int n : {1, 2, 3, 8})
      for (const Mode mode : {Mode::out_of_place, Mode::in_place, Mode::mixed}) {
        if (!is_worth_lowering(mode, {.collective = entry.collective, .size = n})) continue;
        // Two ranks that gather keep what they show, and push it: their own copy makes two.
        const bool expected = (entry.collective == Collective::all_gather && n > 1) ||
                              (entry.collective == Collective::broadcast && n > 2);
        EXPECT_EQ(pushes(entry.collective, n, mode), expected)
            << to_string(entry.collective) << ", " << n << " ranks";
      }
  }
}

TEST(Lowering, knows_when_buffers_must_not_be_read_where_they_lie) {
  const auto in_place = [](Collective collective) {
    return all_unaliased(
        *lower(programs_of(collective, Algorithm::direct, 4, Mode::in_place), Reach::mapped));
  };
  // Two shots: whoever overwrites a slice is the only one who reads it.
  EXPECT_TRUE(in_place(Collective::all_reduce));
  // Blocks that leave lie where those that come must go.
  EXPECT_FALSE(in_place(Collective::all_to_all));
}

TEST(Lowering, divides_the_work_of_a_root) {
  const auto form = [](Collective collective, int size) {
    return lower(programs_of(collective, Algorithm::direct, size, Mode::in_place), Reach::mapped)
        ->front();
  };
  const auto gives = [](const HostForm& form) {
    std::vector<double> shares;
    for (const HostMove& move : form.phases[1].moves)
      if (move.action == HostAction::give) shares.push_back(move.givers_share);
    return shares;
  };
  const HostForm broadcast = form(Collective::broadcast, 4);
  EXPECT_TRUE(broadcast.lopsided);
  EXPECT_EQ(broadcast.readers, 3u);
  EXPECT_EQ(gives(broadcast), std::vector<double>(3, 0.25));
  EXPECT_EQ(gives(form(Collective::broadcast, 2)), std::vector<double>(1, 0.5));
  EXPECT_TRUE(gives(form(Collective::all_gather, 4)).empty());
  EXPECT_FALSE(form(Collective::all_gather, 4).lopsided);
  EXPECT_FALSE(form(Collective::all_reduce, 4).lopsided);
}

// ---- forms broken on purpose, one change at a time

using FormMutation = std::function<bool(Forms& forms, std::size_t rank, std::size_t phase)>;

// Every direct schedule at a few sizes, for every reach that it may have.
void each_form(const std::function<void(const Forms&)>& visit) {
  for (const Entry& entry : catalog()) {
    for (int n : {2, 3, 4, 5}) {
      each_request(entry, n, n, [&](const Request& request) {
        if (request.root != 0 && request.root != n - 1) return;
        for (Mode mode : {Mode::out_of_place, Mode::in_place})
          for (const Reach reach : kReaches)
            if (const auto forms = lower(fused_world(entry, request, mode), reach)) {
              if (reach == Reach::window || all_unaliased(*forms)) visit(*forms);
              if (const auto pushing = pushed(*forms)) visit(*pushing);
            }
      });
    }
  }
}

void expect_forms_rejected(const FormMutation& mutation, int at_least) {
  int mutants = 0;
  each_form([&](const Forms& forms) {
    for (std::size_t rank = 0; rank < forms.size(); ++rank)
      for (std::size_t phase = 0; phase < forms[rank].phases.size(); ++phase) {
        Forms mutant = forms;
        if (::testing::Test::HasFailure() || !mutation(mutant, rank, phase)) continue;
        ++mutants;
        ASSERT_FALSE(verify(mutant).ok())
            << "rank " << rank << ", phase " << phase << " changed from\n"
            << print(forms) << "to\n"
            << print(mutant);
      }
  });
  EXPECT_GE(mutants, at_least);
}

// The same for each move of a phase.
void expect_moves_rejected(const std::function<bool(HostForm&, HostMove&)>& mutation,
                           int at_least) {
  for (std::size_t at : {0u, 1u, 2u, 5u})
    expect_forms_rejected(
        [&](Forms& forms, std::size_t rank, std::size_t phase) {
          auto& moves = forms[rank].phases[phase].moves;
          return at < moves.size() && mutation(forms[rank], moves[at]);
        },
        at == 0 ? at_least : 1);
}

void expect_folds_rejected(const std::function<bool(HostForm&, HostFold&)>& mutation,
                           int at_least) {
  expect_forms_rejected(
      [&](Forms& forms, std::size_t rank, std::size_t phase) {
        auto& fold = forms[rank].phases[phase].fold;
        return fold && mutation(forms[rank], *fold);
      },
      at_least);
}

TEST(HostMutations, a_dropped_move_or_fold_is_noticed) {
  for (std::size_t at : {0u, 1u, 2u})
    expect_forms_rejected(
        [&](Forms& forms, std::size_t rank, std::size_t phase) {
          auto& moves = forms[rank].phases[phase].moves;
          if (at >= moves.size()) return false;
          moves.erase(moves.begin() + static_cast<std::ptrdiff_t>(at));
          return true;
        },
        100);
  expect_forms_rejected(
      [](Forms& forms, std::size_t rank, std::size_t phase) {
        return std::exchange(forms[rank].phases[phase].fold, std::nullopt).has_value();
      },
      100);
}

TEST(HostMutations, a_wrong_peer_is_noticed) {
  expect_moves_rejected(
      [](HostForm& form, HostMove& move) {
        if (move.peer == kLocal) return false;
        move.peer = (move.peer + 1) % form.frame.size;
        return true;
      },
      100);
  expect_folds_rejected(
      [](HostForm& form, HostFold& fold) {
        HostFold::Operand& last = fold.operands.back();
        if (last.peer == kLocal) return false;
        last.peer = (last.peer + 1) % form.frame.size;
        return true;
      },
      50);
  expect_folds_rejected(
      [](HostForm& form, HostFold& fold) {
        if (fold.puts.empty()) return false;
        fold.puts[0].peer = (fold.puts[0].peer + 1) % form.frame.size;
        return true;
      },
      10);
}

TEST(HostMutations, a_wrong_place_is_noticed) {
  expect_moves_rejected([](HostForm&, HostMove& move) { return ++move.from.index > 0; }, 200);
  expect_moves_rejected([](HostForm&, HostMove& move) { return ++move.to.index > 0; }, 200);
  for (const auto where :
       {Spot::Where::input, Spot::Where::output, Spot::Where::window, Spot::Where::result}) {
    expect_moves_rejected(
        [&](HostForm&, HostMove& move) { return std::exchange(move.to.where, where) != where; },
        100);
    expect_moves_rejected(
        [&](HostForm& form, HostMove& move) {
          // In place the two names are one chunk.
          const bool slots = where == Spot::Where::window || where == Spot::Where::result;
          if (form.frame.in_place && !slots && !move.from.is_slot()) return false;
          return std::exchange(move.from.where, where) != where;
        },
        100);
  }
  expect_folds_rejected([](HostForm&, HostFold& fold) { return ++fold.to.index > 0; }, 100);
  expect_folds_rejected(
      [](HostForm&, HostFold& fold) { return !fold.puts.empty() && ++fold.puts[0].to.index > 0; },
      10);
}

TEST(HostMutations, a_part_that_nobody_or_everybody_moves_is_noticed) {
  for (const double change : {0.125, -0.125, 1.0, -1.0})
    expect_moves_rejected(
        [&](HostForm&, HostMove& move) {
          if (move.givers_share == 0) return false;
          const double share = std::clamp(move.givers_share + change, 0.0, 1.0);
          return std::exchange(move.givers_share, share) != share;
        },
        10);
  expect_moves_rejected(
      [](HostForm&, HostMove& move) {
        if (move.action != HostAction::take || move.givers_share > 0) return false;
        move.givers_share = 0.5;
        return true;
      },
      100);
}

TEST(HostMutations, contributions_left_out_repeated_or_misjudged_are_noticed) {
  expect_folds_rejected(
      [](HostForm&, HostFold& fold) {
        fold.operands.pop_back();
        return true;
      },
      100);
  expect_folds_rejected(
      [](HostForm&, HostFold& fold) {
        fold.operands.push_back(fold.operands.front());
        return true;
      },
      100);
  expect_folds_rejected(
      [](HostForm&, HostFold& fold) {
        fold.operands.back().raw = !fold.operands.back().raw;
        return true;
      },
      100);
  expect_folds_rejected(
      [](HostForm&, HostFold& fold) {
        fold.finish = !fold.finish;
        return true;
      },
      100);
  expect_folds_rejected(
      [](HostForm&, HostFold& fold) {
        fold.keeps_result = !fold.keeps_result;
        return true;
      },
      100);
  expect_folds_rejected(
      [](HostForm&, HostFold& fold) {
        if (fold.puts.empty()) return false;
        fold.puts.pop_back();
        return true;
      },
      10);
}

TEST(HostMutations, operands_out_of_order_are_never_called_rank_ordered) {
  int mutants = 0;
  each_form([&](const Forms& forms) {
    if (!verify(forms)->whole_folds) return;
    for (std::size_t rank = 0; rank < forms.size(); ++rank) {
      Forms mutant = forms;
      for (HostPhase& phase : mutant[rank].phases) {
        if (!phase.fold || phase.fold->operands.size() < 2) continue;
        std::swap(phase.fold->operands.front(), phase.fold->operands.back());
        ++mutants;
        const auto report = verify(mutant);
        EXPECT_FALSE(report.ok() && (report->whole_folds || report->rank_ordered)) << print(forms);
      }
    }
  });
  EXPECT_GE(mutants, 100);
}

// What is done a phase too early or too late meets others at work, or finds nothing.
TEST(HostMutations, moves_in_another_phase_are_noticed) {
  for (const int shift : {-1, 1})
    expect_forms_rejected(
        [&](Forms& forms, std::size_t rank, std::size_t phase) {
          auto& phases = forms[rank].phases;
          const std::size_t other = phase + static_cast<std::size_t>(shift);
          if (other >= phases.size()) return false;
          auto& moves = phases[phase].moves;
          // A rank may copy within its own memory when it likes, as long as nobody reads it there.
          const auto at = std::find_if(moves.begin(), moves.end(), [](const HostMove& move) {
            return move.action != HostAction::copy;
          });
          if (at == moves.end()) return false;
          phases[other].moves.push_back(*at);
          moves.erase(at);
          return true;
        },
        100);
}

TEST(HostMutations, a_fold_in_another_phase_is_noticed) {
  for (const int shift : {-1, 1})
    expect_forms_rejected(
        [&](Forms& forms, std::size_t rank, std::size_t phase) {
          auto& phases = forms[rank].phases;
          const std::size_t other = phase + static_cast<std::size_t>(shift);
          if (other >= phases.size() || !phases[phase].fold) return false;
          // A fold of a rank's own input alone touches nobody.
          if (phases[phase].fold->operands.size() < 2) return false;
          phases[other].fold = std::exchange(phases[phase].fold, std::nullopt);
          return true;
        },
        50);
}

// Everybody leaves out the same meeting.
TEST(HostMutations, a_missing_meeting_is_noticed) {
  int mutants = 0;
  each_form([&](const Forms& forms) {
    for (std::size_t gone = 1; gone < forms[0].phases.size(); ++gone) {
      Forms mutant = forms;
      bool works = false;
      for (HostForm& form : mutant) {
        HostPhase& before = form.phases[gone - 1];
        HostPhase& after = form.phases[gone];
        for (const HostMove& move : after.moves) works |= move.action != HostAction::copy;
        for (const HostMove& move : before.moves) works |= move.action != HostAction::copy;
        works |= before.fold.has_value() || after.fold.has_value();
        before.moves.insert(before.moves.end(), after.moves.begin(), after.moves.end());
        if (after.fold) before.fold = after.fold;
        form.phases.erase(form.phases.begin() + static_cast<std::ptrdiff_t>(gone));
      }
      if (!works) continue;
      ++mutants;
      EXPECT_FALSE(verify(mutant).ok()) << print(forms) << print(mutant);
    }
  });
  EXPECT_GE(mutants, 100);
}

}  // namespace
}  // namespace tutti::schedule
