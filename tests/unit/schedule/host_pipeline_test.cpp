// The rules by which ranks share slots and windows, tried in every order in which ranks can run.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "schedule/host/pipeline.hpp"

namespace tutti::schedule {
namespace {

// All states that n ranks can be in when each of them does `steps` one after the other. A step may
// be taken when `ready` says so; `right` says whether what it does is right then. A state is how many
// steps each rank has taken: what is in memory follows from that.
class Explorer {
 public:
  using Progress = std::vector<std::size_t>;
  std::function<bool(const Progress&, std::size_t rank)> ready;
  std::function<bool(const Progress&, std::size_t rank)> right;
  std::size_t steps = 0;

  enum class Verdict { fine, wrong, stuck };
  Verdict explore(std::size_t ranks) {
    seen_.clear();
    return visit(Progress(ranks, 0));
  }
  std::size_t states() const { return seen_.size(); }

 private:
  Verdict visit(const Progress& first) {
    std::vector<Progress> open{first};
    seen_.insert(first);
    while (!open.empty()) {
      const Progress state = open.back();
      open.pop_back();
      bool moved = false;
      bool over = true;
      for (std::size_t rank = 0; rank < state.size(); ++rank) {
        if (state[rank] == steps) continue;
        over = false;
        if (!ready(state, rank)) continue;
        moved = true;
        if (!right(state, rank)) return Verdict::wrong;
        Progress next = state;
        ++next[rank];
        if (seen_.insert(next).second) open.push_back(next);
      }
      if (!over && !moved) return Verdict::stuck;
    }
    return Verdict::fine;
  }

  std::set<Progress> seen_;
};

// Ranks that send `pieces` pieces through `phases` phases. Each phase but the last fills the own slot
// of that phase; each but the first reads everybody's slot of the phase before. A step is taken in
// two halves, begin and end, so that one rank is in the middle while others move.
struct PieceWorld {
  std::size_t phases;
  std::size_t pieces;
  std::size_t slack = 0;  // how many marks too early a rank begins: a planted fault

  struct Step {
    std::size_t phase, piece;
    std::uint64_t mark;
  };
  std::vector<Step> steps() const {
    const Pipeline pipeline(phases, pieces);
    std::vector<Step> all;
    for (std::size_t turn = 0; turn < pipeline.turns(); ++turn)
      for (std::size_t phase = 0; phase < phases; ++phase)
        if (pipeline.has(turn, phase))
          all.push_back({phase, turn - phase, pipeline.mark_after(turn, phase)});
    return all;
  }

  Explorer::Verdict check(std::size_t ranks, std::size_t* states = nullptr) const {
    const Pipeline pipeline(phases, pieces);
    const auto all = steps();
    const auto mark_of = [&](std::size_t halves) {
      return halves < 2 ? 0 : all[halves / 2 - 1].mark;
    };
    // The piece whose bytes are in a rank's slot, or kMixed while it is being filled.
    constexpr std::size_t kMixed = ~std::size_t{0};
    const auto slot_of = [&](std::size_t halves, std::size_t phase, std::size_t slot) {
      std::size_t holds = kMixed;
      for (std::size_t i = 0; i < (halves + 1) / 2; ++i)
        if (all[i].phase == phase && all[i].piece % kSlots == slot)
          holds = 2 * i + 1 < halves ? all[i].piece : kMixed;
      return holds;
    };
    Explorer explorer;
    explorer.steps = 2 * all.size();
    explorer.ready = [&](const Explorer::Progress& at, std::size_t rank) {
      if (at[rank] % 2 == 1) return true;  // in the middle: nothing to wait for
      const Step& step = all[at[rank] / 2];
      std::uint64_t needed = pipeline.needed(step.phase, step.piece);
      needed -= std::min<std::uint64_t>(needed, slack);
      for (std::size_t peer = 0; peer < at.size(); ++peer)
        if (peer != rank && mark_of(at[peer]) < needed) return false;
      return true;
    };
    // At the end of a step everything that it read since its beginning must still be there.
    explorer.right = [&](const Explorer::Progress& at, std::size_t rank) {
      const Step& step = all[at[rank] / 2];
      if (step.phase == 0) return true;
      for (std::size_t peer = 0; peer < at.size(); ++peer)
        if (peer != rank && slot_of(at[peer], step.phase - 1, step.piece % kSlots) != step.piece)
          return false;
      return true;
    };
    const auto verdict = explorer.explore(ranks);
    if (states != nullptr) *states = explorer.states();
    return verdict;
  }
};

TEST(Pipeline, every_order_of_ranks_reads_the_right_pieces_and_nobody_is_stuck) {
  for (const std::size_t phases : {2u, 3u})
    for (const std::size_t pieces : {1u, 2u, 3u, 4u, 5u}) {
      std::size_t states = 0;
      EXPECT_EQ((PieceWorld{phases, pieces}.check(2, &states)), Explorer::Verdict::fine);
      EXPECT_GT(states, 4 * pieces);
      if (pieces <= 4) {
        EXPECT_EQ((PieceWorld{phases, pieces}.check(3)), Explorer::Verdict::fine);
      }
      if (pieces <= 3) {
        EXPECT_EQ((PieceWorld{phases, pieces}.check(4)), Explorer::Verdict::fine);
      }
    }
}

TEST(Pipeline, waiting_for_less_is_noticed) {
  for (const std::size_t phases : {2u, 3u})
    EXPECT_EQ((PieceWorld{phases, 4, 1}.check(2)), Explorer::Verdict::wrong);
}

// Calls one after the other on two lines, windows or whatever else even and odd calls use in turn:
// fill the own one of this call, arrive, wait for all, read everybody's.
Explorer::Verdict calls_in_turn(std::size_t ranks, std::size_t calls, std::size_t turns) {
  enum Part { fill, arrive, read_begin, read_end, kParts };
  const auto filled_by = [&](std::size_t progress, std::size_t turn) {
    std::size_t call = ~std::size_t{0};
    for (std::size_t c = turn; c * kParts + fill < progress; c += turns) call = c;
    return call;
  };
  Explorer explorer;
  explorer.steps = calls * kParts;
  explorer.ready = [&](const Explorer::Progress& at, std::size_t rank) {
    if (at[rank] % kParts != read_begin) return true;
    const std::size_t call = at[rank] / kParts;
    for (std::size_t peer = 0; peer < at.size(); ++peer)
      if (peer != rank && at[peer] <= call * kParts + arrive) return false;
    return true;
  };
  explorer.right = [&](const Explorer::Progress& at, std::size_t rank) {
    const std::size_t part = at[rank] % kParts;
    if (part != read_begin && part != read_end) return true;
    const std::size_t call = at[rank] / kParts;
    for (std::size_t peer = 0; peer < at.size(); ++peer)
      if (peer != rank && filled_by(at[peer], call % turns) != call) return false;
    return true;
  };
  return explorer.explore(ranks);
}

TEST(Lines, two_of_them_suffice_for_calls_that_follow_one_another) {
  for (const std::size_t ranks : {2u, 3u, 4u})
    EXPECT_EQ(calls_in_turn(ranks, ranks == 4 ? 3 : 5, 2), Explorer::Verdict::fine);
}

TEST(Lines, one_does_not) { EXPECT_EQ(calls_in_turn(2, 3, 1), Explorer::Verdict::wrong); }

}  // namespace
}  // namespace tutti::schedule
