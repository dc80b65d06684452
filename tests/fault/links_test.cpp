// Links that are made at their first use: by both sides at once, to ranks that are idle; and what happens to a
// rank to which there is none yet.
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

World lazy(WorldKind kind, int size) {
  return {.kind = kind, .size = size, .tune = [](Config& config) { config.links = "lazy"; }};
}

// Sockets of this process.
int sockets() {
  DIR* folder = ::opendir("/proc/self/fd");
  int count = 0;
  while (const dirent* entry = ::readdir(folder)) {
    char target[64] = {};
    const auto path = std::string("/proc/self/fd/") + entry->d_name;
    if (::readlink(path.c_str(), target, sizeof target - 1) > 0)
      count += std::string(target).rfind("socket:", 0) == 0;
  }
  ::closedir(folder);
  return count;
}

TEST(LazyLinks, are_made_by_who_uses_them) {
  run(lazy(WorldKind::tcp, 12), [](Context& here) {
    const int before = sockets();
    ASSERT_TRUE(here.group->barrier().ok());
    // Neighbours at distance 1 and 4, and in the tree: not all eleven, with two connections each.
    EXPECT_LT(sockets(), 11 * 2);
    std::vector<float> values(1000, 1.0F);
    const int peer = (here.rank + 6) % here.size;
    Work sent = here.group->isend(ConstBuffer::of(values), peer);
    ASSERT_TRUE(here.group->recv(Buffer::of(values), peer).ok());
    ASSERT_TRUE(sent.wait().ok());
    EXPECT_GT(sockets(), before);
    meet(here);
  });
}

// Every pair connects at the same moment, from both sides.
TEST(LazyLinks, that_both_sides_make_at_once_are_one) {
  for (int round = 0; round < 3; ++round)
    run(lazy(WorldKind::tcp, 9), [](Context& here) {
      std::vector<int> got(static_cast<std::size_t>(here.size), -1);
      std::vector<int> mine(static_cast<std::size_t>(here.size), here.rank);
      std::vector<Transfer> transfers;
      for (int peer = 0; peer < here.size; ++peer) {
        if (peer == here.rank) continue;
        const auto at = static_cast<std::size_t>(peer);
        transfers.push_back({Transfer::Kind::recv, Buffer::of(&got[at], 1), peer});
        transfers.push_back({Transfer::Kind::send, Buffer::of(&mine[at], 1), peer});
      }
      meet(here, "all at once");
      ASSERT_TRUE(here.group->transfer(transfers, {}).wait().ok());
      for (int peer = 0; peer < here.size; ++peer)
        if (peer != here.rank) {
          EXPECT_EQ(got[static_cast<std::size_t>(peer)], peer);
        }
      for (int root = 0; root < here.size; root += 4)
        for (const Collective collective :
             {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter,
              Collective::scan})
          try_out(*here.group, {.collective = collective, .count = 1021, .root = root});
      meet(here);
    });
}

TEST(LazyLinks, to_a_rank_that_does_nothing_are_accepted) {
  run(lazy(WorldKind::tcp, 8), [](Context& here) {
    int value = here.rank;
    if (here.rank == 0) {
      EXPECT_TRUE(here.group->send(ConstBuffer::of(&value, 1), 2).ok());
      meet(here, "sent");
    } else {
      meet(here, "sent");  // rank 2 is in no call of the group meanwhile
      if (here.rank == 2) {
        ASSERT_TRUE(here.group->recv(Buffer::of(&value, 1), 0).ok());
        EXPECT_EQ(value, 0);
      }
    }
    meet(here);
  });
}

// Ranks 0 and 3 have never talked to each other, nor have 3 and 5: others tell them.
TEST(LazyLinks, a_rank_that_dies_without_one_is_named_on_every_rank) {
  World world = lazy(WorldKind::tcp, 8);
  world.doomed = {3};
  run(world, [](Context& here) {
    auto copy = here.group->duplicate();
    ASSERT_TRUE(copy.ok()) << copy.status().to_string();
    meet(here);
    if (here.rank == 3) {
      kill(getpid(), SIGKILL);
      for (;;) pause();
    }
    const auto began = std::chrono::steady_clock::now();
    int value = 0;
    for (Group* group : {here.group.get(), copy->get()}) {
      const Status status = group->recv(Buffer::of(&value, 1), kAnySource).status();
      EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
      EXPECT_EQ(status.peer(), 3) << status.to_string();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  });
}

// News of what ends a group comes to ranks that are in no call, and have no link to who says it.
TEST(LazyLinks, an_abort_reaches_ranks_without_one) {
  run(lazy(WorldKind::tcp, 11), [](Context& here) {
    meet(here);
    if (here.rank == 5) here.group->abort("enough");
    const Status status = here.group->barrier();
    EXPECT_EQ(status.code(), Code::aborted) << status.to_string();
    EXPECT_NE(status.message().find("enough"), std::string::npos) << status.to_string();
    meet(here, "over");
  });
}

TEST(LazyLinks, to_one_who_left_in_good_order_are_an_error_and_its_end_is_none) {
  run(lazy(WorldKind::tcp, 8), [](Context& here) {
    auto rest = here.group->split(here.rank == 7 ? -1 : 0, here.rank, {"rest"});
    ASSERT_TRUE(rest.ok());
    meet(here);
    if (here.rank == 7) {
      here.group.reset();
      return meet(here, "left");
    }
    meet(here, "left");
    EXPECT_TRUE((*rest)->barrier().ok());
    EXPECT_TRUE(here.group->health().ok()) << here.group->health().to_string();
    int value = 0;
    if (here.rank == 2) {
      const Status status = here.group->recv(Buffer::of(&value, 1), 7).status();
      EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
      EXPECT_EQ(status.peer(), 7) << status.to_string();
    }
    EXPECT_TRUE((*rest)->health().ok());
    EXPECT_TRUE((*rest)->barrier().ok());
  });
}

}  // namespace
}  // namespace tutti::test
