// Wherever a rank of a mesh is at fault, it is named with its coordinates, on every rank that hears of it.
#include "tutti/mesh.hpp"

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include "support/worlds.hpp"

namespace tutti::test {
namespace {

using testing::HasSubstr;

class MeshLoss : public WorldTest {};
class MeshMismatch : public WorldTest {};

MeshAxes axes_for(const Context& here) {
  MeshAxes axes{{"dp", 2}, {"tp", 2}};
  if (here.size == 8) axes.push_back({"pp", 2});
  return axes;
}

// "(dp 1, tp 0, pp 1; host "
std::string named(const Mesh& mesh, int rank) {
  return " (" + to_string(mesh.axes(), mesh.coordinates(rank)) + "; host ";
}

[[noreturn]] void die_on_the_spot() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

TEST_P(MeshLoss, a_killed_rank_is_named_with_its_coordinates_along_every_axis) {
  in_world([](Context& here) {
    const int victim = here.world.doomed.front();
    const auto mesh = Mesh::create(here.group, axes_for(here));
    ASSERT_TRUE(mesh.ok()) << mesh.status().to_string();
    ASSERT_TRUE(here.group->barrier().ok());
    meet(here);
    if (here.rank == victim) die_on_the_spot();
    std::vector<float> values(1000, 1.0F);
    for (const MeshAxis& axis : (*mesh)->axes()) {
      const auto along = (*mesh)->along(axis.name);
      ASSERT_TRUE(along.ok());
      Coordinates theirs = (*mesh)->coordinates(victim);
      const int index = find_axis((*mesh)->axes(), axis.name);
      const auto at = static_cast<std::size_t>(index);
      const int seat = std::exchange(theirs[at], (*mesh)->coordinates()[at]);
      const bool is_hit = theirs == (*mesh)->coordinates();
      const Status status = (*along)->all_reduce(Buffer::of(values), ReduceOp::sum);
      EXPECT_EQ(status.ok(), !is_hit) << status.to_string();
      if (!is_hit) continue;
      EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
      EXPECT_EQ(status.peer(), seat);
      EXPECT_THAT(status.message(),
                  HasSubstr("rank " + std::to_string(seat) + named(**mesh, victim)));
    }
    const Status status = here.group->barrier();
    EXPECT_THAT(status.message(),
                HasSubstr("rank " + std::to_string(victim) + named(**mesh, victim)));
  });
}

TEST_P(MeshMismatch, a_rank_that_calls_something_else_is_named_with_its_coordinates) {
  in_world([](Context& here) {
    const auto mesh = Mesh::create(here.group, axes_for(here));
    ASSERT_TRUE(mesh.ok()) << mesh.status().to_string();
    const int odd = here.size - 2;
    std::vector<float> values(here.rank == odd ? 9 : 8);
    const Status status = here.group->all_reduce(Buffer::of(values), ReduceOp::sum);
    EXPECT_EQ(status.code(), Code::mismatch) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("rank " + std::to_string(odd) + named(**mesh, odd)));
  });
}

TEST_P(MeshLoss, a_rank_that_dies_in_a_redistribution_ends_it_for_all) {
  in_world([](Context& here) {
    const int victim = here.world.doomed.front();
    const auto mesh = Mesh::create(here.group, axes_for(here));
    ASSERT_TRUE(mesh.ok());
    TensorLayout from{(*mesh)->axes(), {}, {64, 64}, Dtype::f32};
    from.placements.assign(from.axes.size(), shard(0));
    TensorLayout to = from;
    to.placements.assign(to.axes.size(), replicate());
    auto plan = plan_redistribution(from, to, (*mesh)->costs());
    ASSERT_TRUE(plan.ok());
    plan->chain = plan->naive;  // in several steps: not everybody meets the victim in the first
    ASSERT_GT(plan->chain.steps.size(), 1u);
    const int position = position_of(from.axes, (*mesh)->coordinates());
    std::vector<float> in(static_cast<std::size_t>(from.box(position).count())), out(64 * 64);
    ASSERT_TRUE(redistribute(**mesh, *plan, ConstBuffer::of(in), Buffer::of(out)).ok());
    meet(here);
    if (here.rank == victim) die_on_the_spot();
    const Status status = redistribute(**mesh, *plan, ConstBuffer::of(in), Buffer::of(out));
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr(named(**mesh, victim)));
    EXPECT_THAT(status.message(), HasSubstr("redistribute, step "));
  });
}

INSTANTIATE_TEST_SUITE_P(World, MeshLoss,
                         testing::ValuesIn(each_victim_in({{.kind = WorldKind::shm, .size = 8},
                                                           {.kind = WorldKind::tcp, .size = 4},
                                                           {.kind = WorldKind::mixed, .size = 4}})),
                         name_of);

INSTANTIATE_TEST_SUITE_P(World, MeshMismatch,
                         testing::Values(World{.kind = WorldKind::threads, .size = 8},
                                         World{.kind = WorldKind::shm, .size = 4},
                                         World{.kind = WorldKind::tcp, .size = 4},
                                         World{.kind = WorldKind::mixed, .size = 4}),
                         name_of);

}  // namespace
}  // namespace tutti::test
