// A switch that folds: it gives what the reference gives, for every type, to every group whose ranks reach it;
// and whoever loses it goes on without it, with the right results.
#include <signal.h>

#include <cstdlib>
#include <thread>

#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr Algorithm kBySwitch = Algorithm::in_network;

World with_switch(WorldKind kind, int size, ReductionOrder order = ReductionOrder::any) {
  World world{.kind = kind, .size = size, .order = order};
  world.has_switch = true;
  return world;
}

class Switch : public WorldTest {};

TEST_P(Switch, folds_every_type_and_reduction_to_the_bit) {
  in_world([](Context& here) {
    std::uint64_t seed = 0;
    for (int type = 0; type < kDtypes; ++type)
      for (const Reduction& reduction : {Reduction(ReduceOp::sum), Reduction(ReduceOp::max),
                                         Reduction(ReduceOp::avg), Reduction::premul_sum(2.0)}) {
        Case what{.dtype = static_cast<Dtype>(type), .reduction = reduction, .count = 1021};
        if (!is_sensible(reduction.op, what.dtype)) continue;
        what.algorithm = kBySwitch;
        what.in_place = ++seed % 2 == 0;
        what.seed = seed;
        try_out(*here.group, what);
      }
  });
}

TEST_P(Switch, takes_any_length_in_place_and_not) {
  in_world([](Context& here) {
    std::uint64_t seed = 0;
    // None, one, and more than a round of the switch's.
    for (const std::size_t count : {0UL, 1UL, 40'961UL, (8UL << 20) / 4 + 12'345})
      for (const bool in_place : {false, true}) {
        if (count > 100'000 && !in_place) continue;  // in place there is more to go wrong
        Case what{.count = count, .algorithm = kBySwitch, .in_place = in_place};
        what.seed = ++seed;
        try_out(*here.group, what);
        if (count < 100'000) try_out_async(*here.group, what);
      }
    Case wide{.dtype = Dtype::bf16, .count = 1021, .algorithm = kBySwitch};
    wide.widens = true;
    try_out(*here.group, wide);
  });
}

TEST_P(Switch, serves_groups_that_are_made_from_the_first) {
  in_world([](Context& here) {
    auto part = here.group->split(here.rank % 2, 0);
    ASSERT_TRUE(part.ok()) << part.status().to_string();
    for (int time = 0; time < 3; ++time) {
      if ((*part)->size() > 1) try_out(**part, {.count = 4'099, .algorithm = kBySwitch, .seed = 7});
      try_out(*here.group, {.count = 4'099, .algorithm = kBySwitch, .seed = 8});
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Switch,
                         testing::Values(with_switch(WorldKind::threads, 3),
                                         with_switch(WorldKind::shm, 2),
                                         with_switch(WorldKind::tcp, 4),
                                         with_switch(WorldKind::tcp, 3, ReductionOrder::rank),
                                         with_switch(WorldKind::tcp, 5, ReductionOrder::tree),
                                         with_switch(WorldKind::mixed, 4)),
                         name_of);

TEST(SwitchOfARank, does_not_serve_functions_of_the_users) {
  run(with_switch(WorldKind::tcp, 2), [](Context& here) {
    const auto add = [](const void* in, void* inout, std::size_t count, Dtype, void*) {
      for (std::size_t i = 0; i < count; ++i)
        static_cast<float*>(inout)[i] += static_cast<const float*>(in)[i];
    };
    const UserReduction own{.name = "add", .function = add};
    std::vector<float> values(10, 1.0F);
    CallOptions by_switch;
    by_switch.algorithm = kBySwitch;
    const Status status = here.group->all_reduce(Buffer::of(values), Reduction::by(own), by_switch);
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    EXPECT_NE(status.message().find("tutti switch"), std::string::npos) << status.to_string();
  });
}

// ---- that is lost

pid_t pid_of_switch(Context& here) {
  const auto pid = here.store->get("switch", 10s);
  return pid.ok() ? std::atoi(pid->c_str()) : 0;
}

// Calls one after the other, while rank 0 sends the switch a signal in the midst of them.
void lose_switch(const World& world, int signal, std::size_t count) {
  run(world, [=](Context& here) {
    const pid_t victim = pid_of_switch(here);
    ASSERT_GT(victim, 0);
    std::thread striker;
    if (here.rank == 0)
      striker = std::thread([=] {
        std::this_thread::sleep_for(60ms);
        kill(victim, signal);
      });
    // Until all have noticed: the rank that struck says when it has been long enough.
    const auto end = std::chrono::steady_clock::now() + 400ms;
    std::int32_t goes_on = 1;
    for (std::uint64_t seed = 1; goes_on != 0; ++seed) {
      Case what{.dtype = Dtype::f32, .count = count, .algorithm = kBySwitch};
      what.in_place = seed % 2 == 0;
      what.seed = seed;
      try_out(*here.group, what);
      goes_on = std::chrono::steady_clock::now() < end ? 1 : 0;
      ASSERT_TRUE(here.group->broadcast(Buffer{&goes_on, 1, Dtype::i32}, 0).ok());
    }
    if (striker.joinable()) striker.join();
    // A group that has not heard of it.
    auto other = here.group->duplicate();
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    try_out(**other, {.count = 1021, .algorithm = kBySwitch});
    EXPECT_TRUE(here.group->health().ok()) << here.group->health().to_string();
  });
}

World without_switch(WorldKind kind, int size, ReductionOrder order = ReductionOrder::any) {
  World world = with_switch(kind, size, order);
  world.doomed = {size};
  return world;
}

TEST(LostSwitch, that_was_killed_costs_no_result) {
  for (const std::size_t count : {100UL, 200'003UL, 3'000'017UL})
    lose_switch(without_switch(WorldKind::tcp, 4), SIGKILL, count);
  lose_switch(without_switch(WorldKind::tcp, 3, ReductionOrder::rank), SIGKILL, 50'021);
  lose_switch(without_switch(WorldKind::shm, 3), SIGKILL, 50'021);
}

TEST(LostSwitch, that_was_stopped_is_given_up_when_it_is_silent) {
  World world = without_switch(WorldKind::tcp, 3);
  world.tune = [](Config& config) { config.dead_after = 1s; };
  lose_switch(world, SIGSTOP, 200'003);
}

// The last one may be under way on some ranks, and over on others.
TEST(LostSwitch, between_calls_is_noticed_by_the_next) {
  World world = without_switch(WorldKind::tcp, 4);
  run(world, [](Context& here) {
    for (int time = 0; time < 20; ++time) {
      if (time == 10 && here.rank == 1) kill(pid_of_switch(here), SIGKILL);
      try_out(*here.group, {.count = 33, .algorithm = kBySwitch});
    }
  });
}

TEST(LostSwitch, that_never_was_is_an_error_that_says_how_to_start_one) {
  run(World{.kind = WorldKind::tcp, .size = 2}, [](Context& here) {
    std::vector<float> values(10, 1.0F);
    CallOptions by_switch;
    by_switch.algorithm = kBySwitch;
    const Status status = here.group->all_reduce(Buffer::of(values), ReduceOp::sum, by_switch);
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    EXPECT_NE(status.message().find("tutti switch"), std::string::npos) << status.to_string();
  });
}

}  // namespace
}  // namespace tutti::test
