#include "simulation/oracle.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::simulation {
namespace {

class Oracle {
 public:
  explicit Oracle(const Outcome& outcome) : outcome_(outcome) {}

  std::vector<std::string> judge() {
    if (outcome_.hung) broken_.push_back("it hangs");
    broken_.insert(broken_.end(), outcome_.left_too_soon.begin(), outcome_.left_too_soon.end());
    if (outcome_.woke_in_vain)
      broken_.push_back("a rank wants to wake for a deadline that is over");
    if (outcome_.left_open) broken_.push_back("a rank gives way to groups that have ended");
    if (!outcome_.hung) judge_ends();
    return std::move(broken_);
  }

 private:
  void judge_ends() {
    right_where_ok();
    switch (outcome_.fault) {
      case Fault::none:
      case Fault::stall:
      case Fault::jump: return all_ok();
      case Fault::kill: return named(Code::peer_lost);
      case Fault::freeze: return named(Code::timed_out);
      case Fault::mismatch: return mismatch();
      case Fault::cut:
      case Fault::one_way: return cut();
    }
  }

  const Status& status(int rank, std::size_t step) const {
    return outcome_.statuses[static_cast<std::size_t>(rank)][step];
  }
  std::size_t steps() const { return outcome_.script.size(); }
  void complain(int rank, std::size_t step, const std::string& what) {
    broken_.push_back(
        fmt::format("rank {} step {}: {} ({})", rank, step, what, status(rank, step).to_string()));
  }
  void expect(bool kept, int rank, std::size_t step, const char* what) {
    if (!kept) complain(rank, step, what);
  }

  void right_where_ok() {
    for (int rank = 0; rank < outcome_.ranks; ++rank)
      for (std::size_t i = 0; i < steps(); ++i)
        expect(!status(rank, i).ok() || outcome_.right[static_cast<std::size_t>(rank)][i], rank, i,
               "ended well with wrong data");
  }

  void all_ok() {
    for (int rank = 0; rank < outcome_.ranks; ++rank)
      for (std::size_t i = 0; i < steps(); ++i)
        expect(status(rank, i).ok(), rank, i, "failed for nothing");
  }

  // It failed because what it waited for did, and blames nobody itself.
  static bool comes_after(const Status& end) {
    return end.peer() == -1 && end.message().find("comes after") != std::string::npos;
  }

  // Survivors fail with `code` only, and name the victim; and whatever the victim had not come to when it
  // was struck, they do fail.
  void named(Code code) {
    const std::string name = "rank " + std::to_string(outcome_.victim);
    for (int rank = 0; rank < outcome_.ranks; ++rank) {
      if (rank == outcome_.victim) continue;
      for (std::size_t i = 0; i < steps(); ++i) {
        const Status& end = status(rank, i);
        if (end.ok()) {
          const bool needs_all = outcome_.struck && !outcome_.script[i].shift;
          expect(!needs_all || i < outcome_.started_by_victim, rank, i, "ended without the victim");
          continue;
        }
        expect(end.code() == code, rank, i, "failed with another code");
        expect(end.peer() == outcome_.victim || comes_after(end), rank, i,
               "blames an innocent rank");
        expect(end.message().find(name) != std::string::npos, rank, i, "does not say who");
      }
    }
  }

  // Either group ends with a barrier: it fails on every rank of the group in which one rank called
  // something else, and nowhere else. The odd one is blamed, by all; of two, the higher.
  void mismatch() {
    const int culprit = outcome_.ranks == 2 ? 1 : outcome_.victim;
    for (int rank = 0; rank < outcome_.ranks; ++rank)
      for (int group = 0; group < 2; ++group) {
        const std::size_t last = steps() - 2 + static_cast<std::size_t>(group);
        const bool fails = group == outcome_.odd_group;
        expect(status(rank, last).code() == (fails ? Code::mismatch : Code::ok), rank, last,
               "should end otherwise");
        expect(!fails || status(rank, last).peer() == culprit, rank, last,
               "blames an innocent rank");
      }
  }

  // One of the two is blamed: nobody can know which.
  void cut() {
    for (int rank = 0; rank < outcome_.ranks; ++rank)
      for (std::size_t i = 0; i < steps(); ++i) {
        const Status& end = status(rank, i);
        if (end.ok()) continue;
        expect(end.code() == Code::peer_lost, rank, i, "failed with another code");
        expect(end.peer() == outcome_.victim || end.peer() == outcome_.other || comes_after(end),
               rank, i, "blames an innocent rank");
      }
  }

  const Outcome& outcome_;
  std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> broken_promises(const Outcome& outcome) { return Oracle(outcome).judge(); }

}  // namespace tutti::simulation
