// Every algorithm of the catalog, forced: it runs and is right wherever it exists, and is a clear
// error wherever it does not.
#include <map>

#include "schedule/catalog.hpp"
#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

class Algorithms : public WorldTest {};

// Hosts as the worlds make them: mixed has two, all others one.
std::vector<int> hosts_of(const World& world) {
  std::vector<int> hosts(static_cast<std::size_t>(world.size), 0);
  if (world.kind == WorldKind::mixed)
    for (std::size_t rank = hosts.size() / 2; rank < hosts.size(); ++rank) hosts[rank] = 1;
  return hosts;
}

bool applies(const schedule::Entry& entry, const Context& here, bool in_place) {
  if (entry.by_switch) return false;  // these worlds have none: switch_test.cpp
  const std::vector<int> hosts = hosts_of(here.world);
  schedule::Request request;
  request.collective = entry.collective;
  request.size = here.size;
  request.rank = here.rank;
  request.in_place = in_place;
  request.host_of = hosts;
  return !entry.applies || entry.applies(request);
}

template <class Visit>
void for_each_entry(const Context& here, Visit visit) {
  for (const schedule::Entry& entry : schedule::catalog())
    for (bool in_place : {false, true})
      if (applies(entry, here, in_place)) visit(entry, in_place);
}

TEST_P(Algorithms, give_what_the_reference_gives_when_forced) {
  in_world([](Context& here) {
    std::uint64_t turn = 0;
    for_each_entry(here, [&](const schedule::Entry& entry, bool in_place) {
      for (std::size_t count : {0, 1, 1021}) {
        Case what{.collective = entry.collective, .count = count, .algorithm = entry.algorithm};
        what.in_place = in_place;
        what.root = static_cast<int>(turn % static_cast<std::uint64_t>(here.size));
        what.seed = ++turn;
        try_out(*here.group, what);
      }
    });
  });
}

TEST_P(Algorithms, average_and_premultiply_once_however_they_fold) {
  in_world([](Context& here) {
    std::uint64_t turn = 0;
    for_each_entry(here, [&](const schedule::Entry& entry, bool in_place) {
      if (!has_reduction(entry.collective)) return;
      for (const Reduction& reduction : {Reduction(ReduceOp::avg), Reduction::premul_sum(2.0)}) {
        Case what{.collective = entry.collective, .reduction = reduction, .count = 19};
        what.algorithm = entry.algorithm;
        what.in_place = in_place;
        what.root = here.size - 1;
        what.seed = ++turn;
        try_out(*here.group, what);
      }
    });
  });
}

TEST_P(Algorithms, that_can_take_parts_of_different_size) {
  in_world([](Context& here) {
    std::uint64_t turn = 0;
    for_each_entry(here, [&](const schedule::Entry& entry, bool in_place) {
      if (!entry.uneven) return;
      for (Shape shape : {Shape::uneven, Shape::list}) {
        Case what{.collective = entry.collective, .count = 29, .algorithm = entry.algorithm};
        what.shape = shape;
        what.in_place = in_place;
        what.root = static_cast<int>(turn % static_cast<std::uint64_t>(here.size));
        what.seed = ++turn;
        if (exists(what)) try_out(*here.group, what);
      }
    });
  });
}

TEST_P(Algorithms, that_do_not_exist_for_a_call_are_an_error_and_change_nothing) {
  in_world([](Context& here) {
    Case what{.collective = Collective::broadcast, .count = 5, .algorithm = Algorithm::bruck};
    ASSERT_EQ(schedule::find(what.collective, what.algorithm), nullptr);
    Trial trial(*here.group, what);
    const Status status = trial.run();
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    EXPECT_NE(status.message().find("binomial_tree"), std::string::npos)
        << "the message should list the algorithms there are: " << status.to_string();
    try_out(*here.group, {.collective = Collective::all_reduce, .count = 5});
  });
}

std::vector<World> worlds_for_algorithms() {
  std::vector<World> worlds;
  for (int size : sizes()) worlds.push_back(World{.kind = WorldKind::threads, .size = size});
  for (int size : reduced() ? std::vector{3} : std::vector{3, 8}) {
    worlds.push_back(World{.kind = WorldKind::shm, .size = size});
    worlds.push_back(World{.kind = WorldKind::tcp, .size = size});
  }
  worlds.push_back(World{.kind = WorldKind::mixed, .size = 4});
  return worlds;
}

INSTANTIATE_TEST_SUITE_P(World, Algorithms, testing::ValuesIn(worlds_for_algorithms()), name_of);

class LargeMessagesByAlgorithm : public WorldTest {};

// Several segments per chunk, so that steps of one rank overlap steps of another.
TEST_P(LargeMessagesByAlgorithm, arrive_whole) {
  in_world([](Context& here) {
    std::map<Collective, Bytes> expected;  // the same whatever the way
    for_each_entry(here, [&](const schedule::Entry& entry, bool in_place) {
      if (entry.collective == Collective::barrier) return;
      Case what{.collective = entry.collective, .count = reduced() ? 9001U : 70'001U};
      what.algorithm = entry.algorithm;
      what.in_place = in_place;
      what.root = 1;
      Trial trial(*here.group, what);
      // Rank 0's output of exclusive_scan stays as it was, which is not the same in place.
      const bool known =
          expected.count(entry.collective) && entry.collective != Collective::exclusive_scan;
      const Status status = trial.run();
      if (!known) expected[entry.collective] = trial.expected();
      trial.check(status, expected[entry.collective]);
    });
  });
}

std::vector<World> segmented_worlds() {
  std::vector<World> worlds;
  for (WorldKind kind : {WorldKind::threads, WorldKind::shm, WorldKind::tcp})
    worlds.push_back(World{
        .kind = kind, .size = 5, .tune = [](Config& config) { config.segment_bytes = 16 * 1024; }});
  // Large segments take turns on three connections.
  worlds.push_back(World{.kind = WorldKind::tcp, .size = 3, .tune = [](Config& config) {
                           config.segment_bytes = 16 * 1024;
                           config.streams = 3;
                         }});
  return worlds;
}

INSTANTIATE_TEST_SUITE_P(World, LargeMessagesByAlgorithm, testing::ValuesIn(segmented_worlds()),
                         name_of);

}  // namespace
}  // namespace tutti::test
