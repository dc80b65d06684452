// Random programs: many collectives and messages over several groups, in flight together.
//
// A program is a list of numbers, each of which decodes to one step, so that it can be made from a
// seed (printed when it fails) and be shrunk number by number where RapidCheck is there.
#include <random>

#ifdef TUTTI_HAVE_RAPIDCHECK
#include <rapidcheck.h>
#endif

#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

using Numbers = std::vector<std::uint64_t>;

constexpr Dtype kDtypesTried[] = {Dtype::f32, Dtype::i32, Dtype::bf16, Dtype::u8, Dtype::f64};
constexpr ReduceOp kOpsTried[] = {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::prod};
constexpr Shape kShapes[] = {Shape::even, Shape::even, Shape::uneven, Shape::list};
constexpr std::size_t kCounts[] = {0, 1, 17, 257, 1021, 4099, 30'011};

// Takes a small number off the low end of a large one.
std::size_t draw(std::uint64_t& number, std::size_t choices) {
  const std::size_t drawn = number % choices;
  number /= choices;
  return drawn;
}

struct Step {
  std::size_t group;
  bool blocking;
  bool wait_all;   // first wait for everything that is under way
  bool symmetric;  // this rank's buffers, drawn by rank: ranks differ
  Case what;
};

Step decode_step(std::uint64_t number, std::size_t groups, int rank) {
  Step step;
  step.what.seed = mix(number);
  step.group = draw(number, groups);
  step.what.collective = static_cast<Collective>(draw(number, kCollectives));
  step.what.count = kCounts[draw(number, std::size(kCounts))];
  step.what.root = static_cast<int>(draw(number, 64));
  step.what.dtype = kDtypesTried[draw(number, std::size(kDtypesTried))];
  step.what.reduction = kOpsTried[draw(number, std::size(kOpsTried))];
  step.what.shape = kShapes[draw(number, std::size(kShapes))];
  step.what.in_place = draw(number, 2) == 1;
  if (!exists(step.what)) step.what.shape = Shape::even;
  if (step.what.shape != Shape::even)
    step.what.count = std::min<std::size_t>(step.what.count, 1021);
  step.blocking = draw(number, 3) == 0;
  step.wait_all = draw(number, 6) == 0;
  // What follows is each rank's own affair.
  const std::uint64_t own = mix(number, static_cast<std::uint64_t>(rank) + 1);
  step.what.misalign = own % 4 == 0 ? own / 4 % 9 : 0;
  step.symmetric = own / 64 % 3 == 0;
  return step;
}

// The world, a copy of it, two halves, and everybody but rank 0 in reverse order.
std::vector<std::shared_ptr<Group>> make_groups(Context& here) {
  std::vector<std::shared_ptr<Group>> groups{here.group};
  auto copy = here.group->duplicate();
  auto halves = here.group->split(here.rank % 2, 0);
  auto most = here.group->split(here.rank == 0 ? -1 : 0, -here.rank);
  EXPECT_TRUE(copy.ok() && halves.ok() && most.ok());
  if (!copy.ok() || !halves.ok() || !most.ok()) return {};
  groups.insert(groups.end(), {*copy, *halves, *most});
  return groups;
}

// Both sides of a call with n parts, and the guards of n blocks.
bool fits(const Arena& arena, const Case& what, const Group& group) {
  const auto parts = static_cast<std::size_t>(group.size());
  return arena.room() > 2 * parts * ((what.count + 64) * size_of(what.dtype) + 512);
}

struct Flight {
  Trial trial;
  Work work;
};

void run_program(Context& here, const Numbers& numbers) {
  const auto groups = make_groups(here);
  if (groups.empty()) return;
  Arena arena(*here.group, 8 << 20);
  std::list<Flight> flights;
  const auto land = [&] {
    for (Flight& flight : flights) flight.trial.check(flight.work.wait());
    flights.clear();
    arena.reset();
  };
  for (std::uint64_t number : numbers) {
    Step step = decode_step(number, groups.size(), here.rank);
    if (step.wait_all || flights.size() > 12) land();
    Group* group = groups[step.group].get();
    if (!group) continue;  // rank 0 is not in the last one
    step.what.root %= group->size();
    Trial trial(*group, step.what,
                step.symmetric && fits(arena, step.what, *group) ? &arena : nullptr);
    if (step.blocking) {
      trial.check(trial.run());
    } else {
      flights.push_back({std::move(trial), Work()});
      flights.back().work = flights.back().trial.start();
    }
  }
  land();
}

class RandomPrograms : public WorldTest {};

TEST_P(RandomPrograms, end_with_right_data) {
  in_world([](Context& here) {
    for (std::uint64_t seed = 1; seed <= (reduced() ? 2U : 6U); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(here.size));
      Numbers numbers(reduced() ? 40 : 120);
      for (auto& number : numbers) number = random();
      run_program(here, numbers);
    }
  });
}

std::vector<World> random_worlds() {
  std::vector<World> worlds;
  const std::vector<int> some = reduced() ? std::vector{2, 3} : std::vector{2, 3, 5, 8};
  for (WorldKind kind : {WorldKind::threads, WorldKind::shm, WorldKind::tcp})
    for (int size : some) worlds.push_back(World{.kind = kind, .size = size});
  worlds.push_back(World{.kind = WorldKind::mixed, .size = 4});
  return worlds;
}

INSTANTIATE_TEST_SUITE_P(World, RandomPrograms, testing::ValuesIn(random_worlds()), name_of);

#ifdef TUTTI_HAVE_RAPIDCHECK
TEST(ShrinkablePrograms, end_with_right_data) {
  setenv("RC_PARAMS", reduced() ? "max_success=5" : "max_success=40", 0);
  EXPECT_TRUE(rc::check([](const Numbers& numbers) {
    const int size = *rc::gen::inRange(2, 6);
    const World world{.size = size, .limit = std::chrono::seconds(20)};
    const auto failures = collect(world, [&](Context& here) { run_program(here, numbers); });
    for (const Failure& failure : failures)
      RC_LOG() << failure.rank << ": " << failure.text << "\n";
    RC_ASSERT(failures.empty());
  }));
}
#endif

}  // namespace
}  // namespace tutti::test
