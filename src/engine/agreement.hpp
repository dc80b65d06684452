// engine/agreement.hpp - the survivors of a failed group agree on who they are.
//
// A pure state machine: no clock, no links. It hears of losses and of what other ranks think, and
// says to whom it owes its own opinion. Given that a link either delivers or is reported lost:
//
//   each rank tells all that it believes alive whom it misses; on hearing of more it misses them too,
//   and tells again; it decides when everybody alive has told it the very same; then it tells its
//   decision, which whoever hears it adopts, and answers with it for ever after.
//
// So all who decide, and can still hear each other, decide alike: before A could decide on a set of
// the missing, every rank outside of it had told A that set. B can decide on a larger one only if it
// misses A and all who decided with A; and whoever is missed is cut off for good.
//
// A rank that lives may be missed all the same, if the others lost patience with it. It is excluded, even if
// it had decided just before, on what they had told it earlier. So a decision is good only when all
// whom it counts on have met in the new group: those who miss one another never do.
// (tests/unit/engine/agreement_test.cpp tries deaths at every point, in random orders.)
//
// Thread-safety  none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::engine {

// What a rank thinks of its group, as it tells others.
struct Opinion {
  std::vector<bool> lost;     // by rank: taken for dead
  std::vector<bool> left;     // by rank: it has left the group, and is not needed
  std::uint32_t channel = 0;  // proposed for the new group; in a decision, the new group's
  bool is_decision = false;

  bool misses(std::size_t rank) const { return lost[rank] || left[rank]; }
  bool misses_the_same(const Opinion& other) const;
  std::string encode() const;
  // Nothing: these bytes are no opinion on a group of `ranks`.
  static std::optional<Opinion> decode(std::string_view bytes, int ranks);
};

class Agreement {
 public:
  Agreement(int rank, int ranks);

  // This rank wants to go on, and proposes an id for the new group.
  void join(std::uint32_t channel);
  bool has_joined() const { return joined_; }

  // A rank is gone, or has left in good order.
  void lose(int peer);
  void leave(int peer);
  void hear(int peer, const Opinion& theirs);

  // Whom to tell `opinion`, now; each is named once.
  std::vector<int> take_owed();
  const Opinion& opinion() const { return mine_; }

  bool is_decided() const { return mine_.is_decision; }
  // Others whom it counts on take this rank for dead, and go on without it; perhaps after it decided.
  bool is_excluded() const { return excluded_; }
  // Whose word is missing before this rank can decide.
  std::vector<int> awaited() const;
  // Grows whenever somebody else is missed.
  std::uint64_t changes() const { return changes_; }
  // Of the decision, by rank.
  std::vector<int> survivors() const;

 private:
  bool needs(int peer) const {
    return peer != rank_ && !mine_.misses(static_cast<std::size_t>(peer));
  }
  void miss(std::vector<bool>& whom, int peer);
  bool merge(const Opinion& theirs);
  void owe_all();
  void settle(bool changed);

  int rank_;
  int ranks_;
  bool joined_ = false;
  bool excluded_ = false;
  std::uint64_t changes_ = 0;
  Opinion mine_;
  std::vector<std::optional<Opinion>> heard_;  // the last of each rank
  std::vector<bool> owed_;
};

}  // namespace tutti::engine
