// Groups that go before others where the same thread, link or core would serve both.
#include <atomic>

#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

constexpr std::size_t kBulkCount = 1 << 21;     // 8 MiB of 32-bit integers
constexpr std::size_t kMessageCount = 1 << 18;  // 1 MiB

using Values = std::vector<std::int32_t>;

std::shared_ptr<Group> copy_of(Context& here, Urgency urgency) {
  auto made = here.group->duplicate({.urgency = urgency});
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? *made : nullptr;
}

class Urgent : public WorldTest {};

// An all_reduce and a message each way, and what is to have come.
struct SmallOperations {
  Values sums = Values(1024, 1);
  Values sent = Values(kMessageCount, 7);
  Values come = Values(kMessageCount, -1);
  std::atomic<int> ended{0};
  std::vector<Work> works;

  void start(Group& group) {
    const int size = group.size(), rank = group.rank();
    works = {group.all_reduce_async(Buffer::of(sums), ReduceOp::sum),
             group.irecv(Buffer::of(come), (rank + size - 1) % size),
             group.isend(ConstBuffer::of(sent), (rank + 1) % size)};
    for (Work& work : works)
      work.on_complete([this](const Status& status) { ended += status.ok() ? 1 : 100; });
  }
  void expect_right(int size) {
    for (Work& work : works) EXPECT_TRUE(work.wait().ok());
    EXPECT_EQ(sums, Values(sums.size(), size));
    EXPECT_EQ(come, sent);
  }
};

TEST_P(Urgent, operations_end_while_the_same_thread_is_in_a_bulk_one) {
  // Without a progress thread nobody moves an operation but whoever is in a call.
  World world = GetParam();
  world.tune = [](Config& config) { config.progress_thread = false; };
  run(world, [](Context& here) {
    const auto urgent = copy_of(here, Urgency::urgent), bulk = copy_of(here, Urgency::bulk);
    Values many(kBulkCount, 1);
    for (const bool blocking : {true, false}) {
      SmallOperations small;
      small.start(*urgent);
      // Nobody has moved them yet, and nobody waits for them.
      meet(here, blocking ? "blocking" : "waited for");
      Work work;
      Status status;
      if (blocking) {
        status = bulk->all_reduce(Buffer::of(many), ReduceOp::max);
      } else {
        work = bulk->all_reduce_async(Buffer::of(many), ReduceOp::max);
        status = work.wait();
      }
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(small.ended, 3);
      small.expect_right(here.size);
    }
  });
}

// It gives way to what can move, and not to what waits for somebody who never comes.
TEST_P(Urgent, operations_that_wait_leave_the_way_to_bulk_ones) {
  in_world([](Context& here) {
    const auto urgent = copy_of(here, Urgency::urgent), bulk = copy_of(here, Urgency::bulk);
    std::int32_t never = 0;
    Work waiting = urgent->irecv(Buffer::of(&never, 1), here.rank, 5);
    Values many(kBulkCount, here.rank);
    std::vector<Work> works;
    for (int i = 0; i < 3; ++i)
      works.push_back(bulk->all_reduce_async(Buffer::of(many), ReduceOp::max));
    for (Work& work : works) EXPECT_TRUE(work.wait().ok());
    EXPECT_EQ(many, Values(kBulkCount, here.size - 1));
    EXPECT_FALSE(waiting.done());
    EXPECT_TRUE(urgent->send(ConstBuffer::of(&never, 1), here.rank, 5).ok());
    EXPECT_TRUE(waiting.wait().ok());
  });
}

// All three at once, of every kind and size: nothing is lost, mixed up or late for good.
TEST_P(Urgent, operations_and_others_all_end_right_beside_each_other) {
  in_world([](Context& here) {
    std::vector<std::shared_ptr<Group>> groups;
    for (const Urgency urgency : {Urgency::bulk, Urgency::urgent, Urgency::normal})
      groups.push_back(copy_of(here, urgency));
    std::list<Trial> trials;
    std::vector<Work> works;
    for (int i = 0; i < (reduced() ? 30 : 90); ++i) {
      Case what{.collective = static_cast<Collective>(i % kCollectives), .dtype = Dtype::i32};
      what.count = i % 5 == 0 ? 30'011 : 70;
      what.root = i % here.size;
      what.seed = static_cast<std::uint64_t>(i) + 1;
      trials.emplace_back(*groups[static_cast<std::size_t>(i % 3)], what);
      works.push_back(trials.back().start());
    }
    SmallOperations small;
    small.start(*groups[1]);
    std::size_t i = 0;
    for (Trial& trial : trials) trial.check(works[i++].wait());
    small.expect_right(here.size);
  });
}

INSTANTIATE_TEST_SUITE_P(World, Urgent, testing::ValuesIn(one_world_of_each()), name_of);

}  // namespace
}  // namespace tutti::test
