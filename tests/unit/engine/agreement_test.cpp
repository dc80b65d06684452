// Survivors agree, whoever dies when: the state machine alone, with messages that take their time,
// deaths in the middle of telling, ranks that never come, and ranks that leave.
#include "engine/agreement.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace tutti::engine {
namespace {

TEST(Opinion, survives_the_way) {
  for (const int ranks : {1, 2, 7, 8, 9, 64, 1000}) {
    Opinion opinion;
    opinion.channel = 77;
    opinion.is_decision = ranks % 2 == 0;
    for (int rank = 0; rank < ranks; ++rank) {
      opinion.lost.push_back(rank % 3 == 0);
      opinion.left.push_back(rank % 5 == 0);
    }
    const std::string bytes = opinion.encode();
    const auto read = Opinion::decode(bytes, ranks);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->lost, opinion.lost);
    EXPECT_EQ(read->left, opinion.left);
    EXPECT_EQ(read->channel, 77u);
    EXPECT_EQ(read->is_decision, opinion.is_decision);
    EXPECT_FALSE(Opinion::decode(bytes.substr(1), ranks));
    EXPECT_FALSE(Opinion::decode(bytes + "x", ranks));
    EXPECT_FALSE(Opinion::decode(bytes, ranks + 8));
  }
}

TEST(Agreement, of_one_is_made_at_once) {
  Agreement alone(0, 1);
  alone.join(5);
  EXPECT_TRUE(alone.is_decided());
  EXPECT_EQ(alone.survivors(), (std::vector<int>{0}));
  EXPECT_EQ(alone.opinion().channel, 5u);
}

TEST(Agreement, tells_a_rank_that_was_taken_for_dead) {
  Agreement one(0, 2), late(1, 2);
  one.join(3);
  (void)one.take_owed();
  one.lose(1);
  EXPECT_EQ(one.survivors(), (std::vector<int>{0}));
  late.join(4);
  one.hear(1, late.opinion());
  EXPECT_EQ(one.take_owed(), (std::vector<int>{1}));
  late.hear(0, one.opinion());
  EXPECT_TRUE(late.is_excluded());
  EXPECT_FALSE(late.is_decided());
}

// Ranks, links that keep their order and take any time, and trouble.
class Survivorship {
 public:
  explicit Survivorship(std::uint64_t seed) : random_(seed) {
    ranks_ = static_cast<int>(1 + random_() % 8);
    for (int rank = 0; rank < ranks_; ++rank) {
      agreements_.emplace_back(rank, ranks_);
      alive_.push_back(true);
      leaves_.push_back(random_() % 12 == 0);
      comes_.push_back(leaves_.back() ? false : random_() % 10 != 0);
    }
    links_.resize(static_cast<std::size_t>(ranks_ * ranks_));
    deaths_ = random_() % static_cast<std::uint64_t>(ranks_);
  }

  void run() {
    for (int round = 0; round < 20000 && !is_over(); ++round) {
      if (deaths_ > 0 && random_() % 40 == 0) kill();
      const int rank = random_rank();
      if (!alive(rank)) continue;
      switch (random_() % 4) {
        case 0: come_or_leave(rank); break;
        default: deliver(random_rank(), rank); break;
      }
      // All is quiet: those who never came are given up, by whoever is the first to lose patience.
      if (is_quiet()) lose_patience();
    }
    ASSERT_TRUE(is_over()) << "somebody waits for ever";
    check();
  }

 private:
  // What is under way: opinions, and last the news that the sender is gone or has left.
  struct Letter {
    enum Kind { opinion, death, goodbye } kind;
    Opinion said;
  };
  using Link = std::deque<Letter>;

  int random_rank() { return static_cast<int>(random_() % static_cast<std::uint64_t>(ranks_)); }
  bool alive(int rank) const { return alive_[static_cast<std::size_t>(rank)]; }
  Agreement& at(int rank) { return agreements_[static_cast<std::size_t>(rank)]; }
  const Agreement& at(int rank) const { return agreements_[static_cast<std::size_t>(rank)]; }
  Link& link(int from, int to) { return links_[static_cast<std::size_t>(from * ranks_ + to)]; }

  void tell(int rank) {
    for (const int peer : at(rank).take_owed()) {
      // It may die while it tells: some hear it, others do not.
      if (deaths_ > 0 && random_() % 30 == 0) return die(rank);
      link(rank, peer).push_back({Letter::opinion, at(rank).opinion()});
    }
  }
  void die(int rank) {
    --deaths_;
    alive_[static_cast<std::size_t>(rank)] = false;
    for (int peer = 0; peer < ranks_; ++peer)
      if (peer != rank) link(rank, peer).push_back({Letter::death, {}});
  }
  void kill() {
    if (const int rank = random_rank(); alive(rank)) die(rank);
  }
  void come_or_leave(int rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (leaves_[index]) {
      leaves_[index] = false;
      for (int peer = 0; peer < ranks_; ++peer)
        if (peer != rank) link(rank, peer).push_back({Letter::goodbye, {}});
    } else if (comes_[index] && !at(rank).has_joined()) {
      at(rank).join(static_cast<std::uint32_t>(100 + rank));
      tell(rank);
    }
  }
  void deliver(int from, int to) {
    Link& incoming = link(from, to);
    if (incoming.empty()) return;
    const Letter letter = incoming.front();
    incoming.pop_front();
    switch (letter.kind) {
      case Letter::opinion: at(to).hear(from, letter.said); break;
      case Letter::death: at(to).lose(from); break;
      case Letter::goodbye: at(to).leave(from); break;
    }
    tell(to);
  }
  bool is_quiet() const {
    for (int from = 0; from < ranks_; ++from)
      for (int to = 0; to < ranks_; ++to)
        if (alive(to) && !links_[static_cast<std::size_t>(from * ranks_ + to)].empty())
          return false;
    for (int rank = 0; rank < ranks_; ++rank)
      if (alive(rank) && (leaves_[static_cast<std::size_t>(rank)] ||
                          (comes_[static_cast<std::size_t>(rank)] && !at(rank).has_joined())))
        return false;
    return true;
  }
  void lose_patience() {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (!alive(rank) || !waits(rank)) continue;
      for (const int silent : at(rank).awaited()) {
        EXPECT_FALSE(at(silent).has_joined()) << "rank " << silent << " came, and is given up";
        at(rank).lose(silent);
      }
      return tell(rank);
    }
  }
  bool waits(int rank) const {
    return at(rank).has_joined() && !at(rank).is_decided() && !at(rank).is_excluded();
  }
  bool is_over() const {
    if (!is_quiet()) return false;
    for (int rank = 0; rank < ranks_; ++rank)
      if (alive(rank) && waits(rank)) return false;
    return true;
  }

  void check() {
    const Agreement* first = nullptr;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (!alive(rank) || !at(rank).has_joined()) continue;
      EXPECT_FALSE(at(rank).is_excluded()) << "rank " << rank << " lives, came, and is shut out";
      if (first == nullptr) first = &at(rank);
      EXPECT_EQ(at(rank).survivors(), first->survivors());
      EXPECT_EQ(at(rank).opinion().channel, first->opinion().channel);
      const auto survivors = first->survivors();
      EXPECT_NE(std::find(survivors.begin(), survivors.end(), rank), survivors.end());
    }
  }

  std::mt19937_64 random_;
  int ranks_ = 0;
  std::uint64_t deaths_ = 0;
  std::vector<Agreement> agreements_;
  std::vector<bool> alive_;
  std::vector<bool> comes_;   // to the agreement
  std::vector<bool> leaves_;  // the group instead, and has not yet
  std::vector<Link> links_;
};

TEST(Agreement, is_the_same_for_all_that_live_whoever_dies_when) {
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Survivorship(seed).run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tutti::engine
