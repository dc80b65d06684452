// Groups made from groups, several in flight at once, and their end.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <random>
#include <thread>

#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

class Groups : public WorldTest {};
class GroupsOfProcesses : public WorldTest {};  // each with descriptors of its own

std::vector<int> everyone(const Context& here) {
  std::vector<int> all;
  for (int rank = 0; rank < here.size; ++rank) all.push_back(rank);
  return all;
}

void expect_works(Group& group, std::uint64_t seed) {
  try_out(group, {.collective = Collective::all_reduce, .count = 33, .seed = seed});
  try_out(group, {.collective = Collective::all_gather, .count = 5, .seed = seed + 1});
  try_out(group, {.collective = Collective::broadcast, .count = 70'001, .root = group.size() - 1});
}

// What the members of a group are called in the world, in the group's order.
std::vector<std::int32_t> members(Group& group, int world_rank) {
  std::vector<std::int32_t> mine{world_rank}, all(static_cast<std::size_t>(group.size()));
  const Status status = group.all_gather(ConstBuffer::of(mine), Buffer::of(all));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return all;
}

// How long ranks may take to meet is the join timeout's matter: under load it is seconds.
TEST(Joining, does_not_hurry_because_operations_must) {
  for (const WorldKind kind : {WorldKind::threads, WorldKind::shm, WorldKind::tcp})
    run(World{.kind = kind,
              .size = 3,
              .tune = [](Config& config) { config.timeout = std::chrono::microseconds(1); }},
        [](Context&) {});
}

TEST_P(Groups, split_by_color_and_are_ordered_by_key_then_by_old_rank) {
  in_world([](Context& here) {
    auto reversed = here.group->split(0, -here.rank, {"reversed"});
    ASSERT_TRUE(reversed.ok()) << reversed.status().to_string();
    EXPECT_EQ((*reversed)->rank(), here.size - 1 - here.rank);
    EXPECT_EQ((*reversed)->name(), "reversed");
    std::vector<std::int32_t> expected;
    for (int rank = here.size; rank-- > 0;) expected.push_back(rank);
    EXPECT_EQ(members(**reversed, here.rank), expected);
    expect_works(**reversed, 10);

    auto halves = here.group->split(here.rank % 2, 7);  // all keys tie
    ASSERT_TRUE(halves.ok()) << halves.status().to_string();
    EXPECT_EQ((*halves)->rank(), here.rank / 2);
    EXPECT_EQ((*halves)->size(), (here.size + (here.rank % 2 == 0 ? 1 : 0)) / 2);
    expect_works(**halves, 20);
    expect_works(*here.group, 30);
  });
}

TEST_P(Groups, are_as_their_spec_says_and_otherwise_as_what_they_are_made_from) {
  in_world([](Context& here) {
    auto copy = here.group->duplicate({"copy", ReductionOrder::rank, Urgency::urgent});
    ASSERT_TRUE(copy.ok()) << copy.status().to_string();
    EXPECT_EQ((*copy)->reduction_order(), ReductionOrder::rank);
    EXPECT_EQ((*copy)->urgency(), Urgency::urgent);
    auto half = (*copy)->split(here.rank % 2, 0);
    ASSERT_TRUE(half.ok()) << half.status().to_string();
    EXPECT_EQ((*half)->reduction_order(), ReductionOrder::rank);
    EXPECT_EQ((*half)->urgency(), Urgency::normal);
    auto list = (*copy)->subgroup(everyone(here), 3, {.reduction_order = ReductionOrder::any});
    ASSERT_TRUE(list.ok()) << list.status().to_string();
    EXPECT_EQ((*list)->reduction_order(), ReductionOrder::any);
  });
}

TEST_P(Groups, know_which_ranks_share_a_host) {
  in_world([](Context& here) {
    const std::vector<int> hosts = here.group->hosts();
    ASSERT_EQ(hosts.size(), static_cast<std::size_t>(here.size));
    EXPECT_EQ(hosts[0], 0);
    auto pair = here.group->split(hosts[static_cast<std::size_t>(here.rank)], 0);
    ASSERT_TRUE(pair.ok()) << pair.status().to_string();
    EXPECT_EQ((*pair)->hosts(), std::vector<int>(static_cast<std::size_t>((*pair)->size()), 0));
  });
}

TEST_P(Groups, name_ranks_by_their_labels_in_all_groups_of_them) {
  in_world([](Context& here) {
    std::vector<std::string> labels;
    for (int rank = 0; rank < here.size; ++rank)
      labels.push_back("seat " + std::to_string(10 * rank));
    const Status status = here.group->label_ranks(labels);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_NE(here.group->describe().find("seat 20; host "), std::string::npos)
        << here.group->describe();
    auto reversed = here.group->split(0, -here.rank, {"reversed"});
    ASSERT_TRUE(reversed.ok());
    std::vector<float> values(here.rank == 1 ? 7 : 8);
    const Status differ = (*reversed)->all_reduce(Buffer::of(values), ReduceOp::sum);
    EXPECT_EQ(differ.code(), Code::mismatch);
    const std::string who = "rank " + std::to_string(here.size - 2) + " (seat 10; ";
    EXPECT_NE(differ.message().find(who), std::string::npos) << differ.to_string();
  });
}

TEST(Labels, that_cannot_be_printed_are_refused) {
  run(World{.size = 2}, [](Context& here) {
    const auto code_of = [&](std::vector<std::string> labels) {
      return here.group->label_ranks(labels).code();
    };
    EXPECT_EQ(code_of({"a"}), Code::invalid_argument);
    EXPECT_EQ(code_of({"a", "b (c)"}), Code::invalid_argument);
    EXPECT_EQ(code_of({"a", "b\n"}), Code::invalid_argument);
    EXPECT_EQ(code_of({"a", std::string(81, 'b')}), Code::invalid_argument);
    EXPECT_EQ(code_of({"a", ""}), Code::ok);
  });
}

TEST_P(Groups, give_none_to_a_negative_color) {
  in_world([](Context& here) {
    auto some = here.group->split(here.rank == 0 ? -1 : 5, 0);
    ASSERT_TRUE(some.ok()) << some.status().to_string();
    EXPECT_EQ(*some == nullptr, here.rank == 0);
    if (*some) {
      EXPECT_EQ((*some)->size(), here.size - 1);
      expect_works(**some, 1);
    }
    expect_works(*here.group, 2);
  });
}

TEST_P(Groups, from_a_list_are_made_by_their_members_alone_in_the_order_of_the_list) {
  in_world([](Context& here) {
    const std::vector<int> list{here.size - 1, 0};
    if (here.rank == 0 || here.rank == here.size - 1) {
      auto pair = here.group->subgroup(list, 1, {"ends"});
      ASSERT_TRUE(pair.ok()) << pair.status().to_string();
      EXPECT_EQ((*pair)->rank(), here.rank == 0 ? 1 : 0);
      EXPECT_EQ(members(**pair, here.rank), (std::vector<std::int32_t>{here.size - 1, 0}));
      expect_works(**pair, 3);
    }
    expect_works(*here.group, 4);
  });
}

TEST_P(Groups, from_lists_with_different_tags_do_not_meet) {
  in_world([](Context& here) {
    auto one = here.group->subgroup(everyone(here), 1);
    auto two = here.group->subgroup(everyone(here), 2);
    ASSERT_TRUE(one.ok() && two.ok());
    std::vector<std::int32_t> a{1}, b{2};
    // Opposite orders on odd and even ranks.
    Work first = here.rank % 2 ? (*one)->all_reduce_async(Buffer::of(a), ReduceOp::sum)
                               : (*two)->all_reduce_async(Buffer::of(b), ReduceOp::sum);
    Work second = here.rank % 2 ? (*two)->all_reduce_async(Buffer::of(b), ReduceOp::sum)
                                : (*one)->all_reduce_async(Buffer::of(a), ReduceOp::sum);
    EXPECT_TRUE(first.wait().ok());
    EXPECT_TRUE(second.wait().ok());
    EXPECT_EQ(a[0], here.size);
    EXPECT_EQ(b[0], 2 * here.size);
  });
}

TEST_P(Groups, may_be_made_by_several_threads_at_once) {
  in_world([](Context& here) {
    std::vector<int> all(static_cast<std::size_t>(here.size));
    std::iota(all.begin(), all.end(), 0);
    const auto make_some = [&](std::uint32_t tag) {
      for (std::uint32_t round = 0; round < 5; ++round) {
        auto made = here.group->subgroup(all, tag + round);
        ASSERT_TRUE(made.ok()) << made.status().to_string();
        expect_works(**made, tag + round);
      }
    };
    std::thread other([&] { make_some(here.rank % 2 == 0 ? 100 : 200); });
    make_some(here.rank % 2 == 0 ? 200 : 100);
    other.join();
  });
}

TEST_P(Groups, in_flight_at_once_do_not_wait_for_each_other) {
  in_world([](Context& here) {
    std::vector<std::shared_ptr<Group>> groups{here.group};
    for (int i = 0; i < 4; ++i) {
      auto copy = here.group->duplicate({"copy " + std::to_string(i)});
      ASSERT_TRUE(copy.ok()) << copy.status().to_string();
      groups.push_back(*copy);
    }
    for (std::uint64_t round = 1; round <= 6; ++round) {
      std::vector<std::size_t> order(groups.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::mt19937_64 random(mix(round, static_cast<std::uint64_t>(here.rank)));
      std::shuffle(order.begin(), order.end(), random);
      std::list<Trial> trials;
      std::vector<Work> works;
      for (std::size_t i : order) {
        const Case what{.collective = static_cast<Collective>((i + round) % kCollectives),
                        .count = i % 2 ? 40'009U : 3U,
                        .seed = round * 10 + i};
        trials.emplace_back(*groups[i], what);
        works.push_back(trials.back().start());
      }
      // Waited for in this rank's order, which is nobody else's.
      std::size_t next = 0;
      for (Trial& trial : trials) trial.check(works[next++].wait());
    }
  });
}

TEST_P(Groups, may_be_nested_and_outlive_their_parents) {
  in_world([](Context& here) {
    auto child = here.group->duplicate();
    ASSERT_TRUE(child.ok()) << child.status().to_string();
    auto grandchild = (*child)->split(0, here.rank);
    ASSERT_TRUE(grandchild.ok()) << grandchild.status().to_string();
    child->reset();
    here.group.reset();
    expect_works(**grandchild, 7);
  });
}

TEST_P(Groups, may_come_and_go_while_others_work) {
  in_world([](Context& here) {
    Trial trial(*here.group, {.count = 100'003});
    Work work = trial.start();
    for (int i = 0; i < (reduced() ? 5 : 20); ++i) {
      auto passing = here.group->duplicate();
      ASSERT_TRUE(passing.ok()) << passing.status().to_string();
      std::vector<std::int32_t> value{1};
      EXPECT_TRUE((*passing)->all_reduce(Buffer::of(value), ReduceOp::sum).ok());
      EXPECT_EQ(value[0], here.size);
    }
    trial.check(work.wait());
    expect_works(*here.group, 8);
  });
}

// A rank whose part is done leaves; the others must still get theirs.
TEST_P(Groups, may_be_left_by_a_rank_that_is_done) {
  in_world([](Context& here) {
    auto copy = here.group->duplicate();
    ASSERT_TRUE(copy.ok()) << copy.status().to_string();
    Trial trial(**copy, {.collective = Collective::broadcast, .count = 300'007, .root = 0});
    trial.check(trial.run());
    copy->reset();
    expect_works(*here.group, 9);
  });
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// From here on this process may open so many more.
void leave_descriptors(int left) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max = 256;  // or the library would help itself
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<int> filling;
  for (int each = 0; (each = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
    filling.push_back(each);
  ASSERT_EQ(errno, EMFILE);
  for (int i = 0; i < left; ++i) ::close(filling[static_cast<std::size_t>(i)]);
}

TEST_P(GroupsOfProcesses, by_the_hundred_take_no_descriptors) {
  in_world([](Context& here) {
    leave_descriptors(8);
    meet(here);
    const std::ptrdiff_t before = open_descriptors();
    std::vector<std::shared_ptr<Group>> groups;
    for (int i = 0; i < (reduced() ? 20 : 100); ++i) {
      auto copy = here.group->duplicate();
      ASSERT_TRUE(copy.ok()) << copy.status().to_string();
      groups.push_back(*copy);
    }
    for (const auto& group : groups) {
      std::vector<std::int32_t> value{1};
      ASSERT_TRUE(group->all_reduce(Buffer::of(value), ReduceOp::sum).ok());
      EXPECT_EQ(value[0], here.size);
    }
    EXPECT_EQ(open_descriptors(), before);
  });
}

// A rank that cannot take the memory of the others says so, and all of them go on without it.
TEST_P(GroupsOfProcesses, are_made_although_one_rank_has_no_descriptor_left) {
  in_world([](Context& here) {
    if (here.rank == 1) leave_descriptors(0);
    meet(here);
    auto copy = here.group->duplicate();
    ASSERT_TRUE(copy.ok()) << copy.status().to_string();
    expect_works(**copy, 11);
    auto shared = here.group->allocate(4096);
    const bool memory = GetParam().kind == WorldKind::shm;
    EXPECT_EQ(shared.status().code(), memory ? Code::out_of_memory : Code::ok);
    expect_works(*here.group, 12);
  });
}

// It says so to those who wait for it: they do not wait until the join timeout.
TEST_P(GroupsOfProcesses, are_given_up_by_all_when_one_rank_cannot_link) {
  for (const int left : {0, 7})
    in_world([left](Context& here) {
      if (here.rank == 1) leave_descriptors(left);
      meet(here);
      const auto begin = std::chrono::steady_clock::now();
      auto again =
          Group::create(here.store, {.rank = here.rank, .size = here.size, .name = "again"});
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
      const Status& status = again.status();
      EXPECT_EQ(status.code(), here.rank == 1 ? Code::out_of_memory : Code::peer_lost)
          << status.to_string();
      for (const char* words : {"rank 1 needs", "descriptors", "its limit is 256"})
        EXPECT_NE(status.message().find(words), std::string::npos) << status.to_string();
      EXPECT_EQ(status.peer(), 1) << status.to_string();
    });
}

TEST_P(Groups, from_a_list_name_the_rank_that_does_not_come) {
  in_world([](Context& here) {
    if (here.rank == 2) return meet(here);
    auto group = here.group->subgroup(everyone(here), 9, {"few"}, std::chrono::milliseconds(100));
    EXPECT_EQ(group.status().code(), Code::timed_out);
    EXPECT_EQ(group.status().peer(), 2) << group.status().to_string();
    EXPECT_NE(group.status().message().find("'few'"), std::string::npos);
    meet(here);
  });
}

TEST_P(Groups, from_a_list_fail_at_once_when_a_rank_has_left) {
  in_world([](Context& here) {
    if (here.rank == 2) here.group.reset();
    meet(here);
    if (here.rank == 2) return;
    auto group = here.group->subgroup(everyone(here), 9, {"few"});
    EXPECT_EQ(group.status().code(), Code::peer_lost) << group.status().to_string();
  });
}

INSTANTIATE_TEST_SUITE_P(World, Groups, testing::ValuesIn(one_world_of_each()), name_of);
INSTANTIATE_TEST_SUITE_P(World, GroupsOfProcesses,
                         testing::Values(World{.kind = WorldKind::shm, .size = 3},
                                         World{.kind = WorldKind::tcp, .size = 3}),
                         name_of);

TEST(GroupOfOne, needs_nobody) {
  run(World{.size = 1}, [](Context& here) {
    expect_works(*here.group, 1);
    std::vector<std::int32_t> out{4}, in{0};
    const Transfer both[] = {{Transfer::Kind::recv, Buffer::of(in), 0, 0},
                             {Transfer::Kind::send, Buffer::of(out), 0, 0}};
    EXPECT_TRUE(here.group->transfer(both, {}).wait().ok());
    EXPECT_EQ(in[0], 4);
  });
}

}  // namespace
}  // namespace tutti::test
