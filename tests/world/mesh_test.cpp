// Meshes and redistribution through real groups, in every kind of world.
#include "tutti/mesh.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <numeric>

#include "support/worlds.hpp"
#include "unit/mesh/random_layouts.hpp"
#include "unit/mesh/reference_layout.hpp"

namespace tutti::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<Mesh> made(Context& here, MeshAxes axes, MeshOptions options = {}) {
  auto mesh = Mesh::create(here.group, std::move(axes), std::move(options));
  EXPECT_TRUE(mesh.ok()) << mesh.status().to_string();
  return mesh.ok() ? *mesh : nullptr;
}

// What the members of a group are called in the world, in the group's order.
std::vector<std::int32_t> members_of(Group& group, int world_rank) {
  std::vector<std::int32_t> mine{world_rank}, all(static_cast<std::size_t>(group.size()));
  const Status status = group.all_gather(ConstBuffer::of(mine), Buffer::of(all));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return all;
}

class Meshes : public WorldTest {};

TEST_P(Meshes, have_a_group_along_every_axis_and_along_several) {
  in_world([](Context& here) {
    MeshOptions options;
    options.specs["tp"] = {"heads", ReductionOrder::rank, Urgency::urgent};
    options.combinations = {{"tp", "dp"}};
    const auto mesh = made(here, {{"dp", 2}, {"pp", 1}, {"tp", 2}}, options);
    ASSERT_NE(mesh, nullptr);
    const Coordinates own = mesh->coordinates();
    EXPECT_EQ(mesh->rank_at(own), here.rank);
    EXPECT_EQ(mesh->size("tp"), 2);
    EXPECT_EQ(mesh->size("cp"), 0);
    EXPECT_EQ(mesh->rank_at({2, 0, 0}), -1);
    const auto tp = mesh->along("tp");
    ASSERT_TRUE(tp.ok()) << tp.status().to_string();
    EXPECT_EQ((*tp)->rank(), own[2]);
    EXPECT_EQ((*tp)->urgency(), Urgency::urgent);
    EXPECT_EQ((*tp)->reduction_order(), ReductionOrder::rank);
    EXPECT_EQ((*tp)->name(), "heads of dp " + std::to_string(own[0]) + ", pp 0");
    EXPECT_THAT(members_of(**tp, here.rank),
                ElementsAre(mesh->rank_at({own[0], 0, 0}), mesh->rank_at({own[0], 0, 1})));
    const auto dp = mesh->along("dp");
    ASSERT_TRUE(dp.ok());
    EXPECT_THAT(members_of(**dp, here.rank),
                ElementsAre(mesh->rank_at({0, 0, own[2]}), mesh->rank_at({1, 0, own[2]})));
    const auto both = mesh->along("tp", "dp");
    ASSERT_TRUE(both.ok());
    std::vector<std::int32_t> all(mesh->ranks().begin(), mesh->ranks().end());
    EXPECT_EQ(members_of(**both, here.rank), all);
    EXPECT_EQ(mesh->along("dp", "tp")->get(), both->get());
    EXPECT_EQ((*mesh->along("pp"))->size(), 1);
    EXPECT_THAT(mesh->along("cp").status().message(), HasSubstr("no axis 'cp'"));
  });
}

TEST_P(Meshes, keep_the_chattiest_axis_inside_of_a_host) {
  in_world([](Context& here) {
    const auto mesh = made(here, {{"tp", 2}, {"dp", 2}});
    ASSERT_NE(mesh, nullptr);
    const std::vector<int> hosts = (*mesh->along("tp"))->hosts();
    // Where ranks are made to use tcp, each counts as a host.
    EXPECT_THAT(hosts, ElementsAre(0, here.world.kind == WorldKind::tcp ? 1 : 0));
    const std::string told = mesh->describe();
    const bool many = here.world.kind == WorldKind::mixed;
    EXPECT_EQ(told.find("tp stays inside of a host") != std::string::npos, many) << told;
  });
}

TEST_P(Meshes, have_meshes_of_some_of_their_axes) {
  in_world([](Context& here) {
    const auto mesh = made(here, {{"dp", 2}, {"tp", 2}, {"pp", 1}});
    ASSERT_NE(mesh, nullptr);
    const auto sub = mesh->sub("pp", "tp");
    ASSERT_TRUE(sub.ok()) << sub.status().to_string();
    EXPECT_EQ(to_string((*sub)->axes()), "tp 2 x pp 1");
    EXPECT_EQ((*sub)->group()->size(), 2);
    EXPECT_THAT((*sub)->coordinates(), ElementsAre(mesh->coordinates()[1], 0));
    EXPECT_EQ((*sub)->along("tp")->get(), mesh->along("tp")->get());
  });
}

TEST_P(Meshes, that_ranks_describe_differently_fail_on_every_rank) {
  in_world([](Context& here) {
    const int odd = here.size - 1;
    const auto mesh = Mesh::create(here.group, here.rank == odd ? MeshAxes{{"dp", 4}, {"tp", 1}}
                                                                : MeshAxes{{"dp", 2}, {"tp", 2}});
    EXPECT_EQ(mesh.status().code(), Code::mismatch) << mesh.status().to_string();
    EXPECT_EQ(mesh.status().peer(), odd);
    const auto wrong = Mesh::create(here.group, {{"dp", 3}, {"tp", 2}});
    EXPECT_EQ(wrong.status().code(), Code::invalid_argument);
    EXPECT_THAT(wrong.status().message(),
                HasSubstr("dp 3 x tp 2 has 6 ranks, and group 'world' has 4"));
    EXPECT_TRUE(here.group->barrier().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(World, Meshes,
                         testing::Values(World{.kind = WorldKind::threads, .size = 4},
                                         World{.kind = WorldKind::shm, .size = 4},
                                         World{.kind = WorldKind::tcp, .size = 4},
                                         World{.kind = WorldKind::mixed, .size = 4}),
                         name_of);

TEST(MeshOfOne, needs_nobody) {
  run(World{.size = 1}, [](Context& here) {
    const auto mesh = made(here, {{"dp", 1}});
    ASSERT_NE(mesh, nullptr);
    EXPECT_EQ((*mesh->along("dp"))->size(), 1);
    const TensorLayout from{mesh->axes(), {shard(0)}, {3}, Dtype::f32};
    TensorLayout to = from;
    to.placements = {partial()};
    const std::vector<float> in{1, 2, 3};
    std::vector<float> out(3);
    const auto plan = plan_redistribution(from, to, mesh->costs());
    ASSERT_TRUE(plan.ok());
    EXPECT_TRUE(redistribute(*mesh, *plan, ConstBuffer::of(in), Buffer::of(out)).ok());
    EXPECT_EQ(in, out);
  });
}

// ---- redistribution

// The value of one element; of what is partial a rank has this one's share.
std::int64_t value_of(std::int64_t element) { return 1000003 * element + 17; }

// What the rank at `at` holds of a tensor whose elements are value_of: shares of partial ones sum up, or
// are bxored, to it.
std::vector<std::int64_t> contents(const TensorLayout& layout, const Coordinates& at) {
  std::vector<std::int64_t> values;
  int place = 0, places = 1;
  ReduceOp op = ReduceOp::max;
  for (std::size_t axis = 0; axis < at.size(); ++axis)
    if (layout.placements[axis].kind == AxisPlacement::Kind::partial) {
      place = place * layout.axes[axis].size + at[axis];
      places *= layout.axes[axis].size;
      op = layout.placements[axis].op;
    }
  for (const std::int64_t element : held(layout, at)) {
    const auto share = [&](int i) { return 7919 * element + 31 * i; };
    std::int64_t value = value_of(element);
    if (op == ReduceOp::max && place > 0) value -= place;
    if (op == ReduceOp::sum || op == ReduceOp::bxor) {
      for (int i = 1; i < places && place == 0; ++i)
        value = op == ReduceOp::sum ? value - share(i) : value ^ share(i);
      if (place > 0) value = share(place);
    }
    values.push_back(value);
  }
  return values;
}

// The result, with what is partial folded by a plain all_reduce, is the tensor.
void expect_tensor(Mesh& mesh, const TensorLayout& to, std::vector<std::int64_t> got) {
  std::vector<std::string_view> axes;
  ReduceOp op = ReduceOp::sum;
  for (std::size_t axis = 0; axis < to.axes.size(); ++axis)
    if (to.placements[axis].kind == AxisPlacement::Kind::partial) {
      axes.push_back(to.axes[axis].name);
      op = to.placements[axis].op;
    }
  if (!axes.empty()) {
    const auto along = mesh.along_axes(axes);
    ASSERT_TRUE(along.ok()) << along.status().to_string();
    ASSERT_TRUE((*along)->all_reduce(Buffer::of(got), op).ok());
  }
  std::vector<std::int64_t> expected;
  for (const std::int64_t element : held(to, mesh.coordinates()))
    expected.push_back(value_of(element));
  ASSERT_EQ(got, expected) << to_string(to);
}

void try_redistribution(Mesh& mesh, const TensorLayout& from, const TensorLayout& to,
                        const RedistributionCosts& costs, bool naive) {
  auto plan = plan_redistribution(from, to, costs);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  if (naive) plan->chain = plan->naive;
  const std::vector<std::int64_t> input = contents(from, mesh.coordinates());
  std::vector<std::int64_t> output(
      static_cast<std::size_t>(to.box(position_of(to.axes, mesh.coordinates())).count()), -1);
  const Status status = redistribute(mesh, *plan, ConstBuffer::of(input), Buffer::of(output));
  ASSERT_TRUE(status.ok()) << status.to_string() << "\n" << describe(*plan);
  expect_tensor(mesh, to, std::move(output));
  if (testing::Test::HasFailure()) ADD_FAILURE() << describe(*plan);
}

// Every rank draws the same cases.
void try_random_redistributions(Mesh& mesh, std::uint64_t seed, int rounds) {
  RandomLayouts random(seed);
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    TensorLayout tensor = random.tensor(8);
    tensor.axes = mesh.axes();
    tensor.placements.assign(tensor.axes.size(), replicate());
    tensor.dtype = Dtype::i64;
    const ReduceOp ops[] = {ReduceOp::sum, ReduceOp::bxor, ReduceOp::max};
    const TensorLayout from = random.placed(tensor, ops[random.draw(0, 2)]);
    const TensorLayout to = random.placed(tensor, ops[random.draw(0, 2)]);
    const bool predicted = random.draw(0, 3) == 0;
    const RedistributionCosts costs =
        predicted ? mesh.costs()
                  : RedistributionCosts::uniform(random.draw(0, 2) * 1e-6, random.draw(1, 9) * 1e6);
    try_redistribution(mesh, from, to, costs, random.draw(0, 4) == 0);
  }
}

class Redistributions : public WorldTest {};

TEST_P(Redistributions, put_every_element_where_it_belongs) {
  in_world([](Context& here) {
    const std::vector<MeshAxes> shapes =
        here.size == 8 ? std::vector<MeshAxes>{{{"a", 2}, {"b", 2}, {"c", 2}}, {{"a", 4}, {"b", 2}}}
        : here.size == 6
            ? std::vector<MeshAxes>{{{"a", 3}, {"b", 2}}, {{"a", 2}, {"b", 3}}, {{"a", 6}}}
            : std::vector<MeshAxes>{{{"a", 2}, {"b", 2}}, {{"a", 4}, {"b", 1}}};
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const auto mesh = made(here, shapes[i]);
      ASSERT_NE(mesh, nullptr);
      try_random_redistributions(*mesh, 100 + i, reduced() || here.size == 8 ? 20 : 50);
    }
  });
}

TEST_P(Redistributions, of_small_types_and_large_tensors_are_right) {
  in_world([](Context& here) {
    const auto mesh = made(here, {{"a", 2}, {"b", here.size / 2}});
    ASSERT_NE(mesh, nullptr);
    const TensorLayout from{mesh->axes(), {shard(0), shard(1)}, {301, 1003}, Dtype::i16};
    TensorLayout to = from;
    to.placements = {shard(1), replicate()};
    std::vector<std::int16_t> in, expected;
    for (const std::int64_t element : held(from, mesh->coordinates()))
      in.push_back(static_cast<std::int16_t>(element));
    for (const std::int64_t element : held(to, mesh->coordinates()))
      expected.push_back(static_cast<std::int16_t>(element));
    std::vector<std::int16_t> out(expected.size());
    const auto plan = plan_redistribution(from, to, mesh->costs());
    ASSERT_TRUE(plan.ok());
    const Status status = redistribute(*mesh, *plan, ConstBuffer::of(in), Buffer::of(out));
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(out == expected) << describe(*plan);
  });
}

INSTANTIATE_TEST_SUITE_P(World, Redistributions,
                         testing::Values(World{.kind = WorldKind::threads, .size = 8},
                                         World{.kind = WorldKind::threads, .size = 6},
                                         World{.kind = WorldKind::shm, .size = 4},
                                         World{.kind = WorldKind::tcp, .size = 4},
                                         World{.kind = WorldKind::mixed, .size = 4}),
                         name_of);

TEST(Redistribution, of_products_starts_from_ones) {
  run(World{.size = 2}, [](Context& here) {
    const auto mesh = made(here, {{"a", 2}});
    const TensorLayout from{mesh->axes(), {replicate()}, {5}, Dtype::f32};
    TensorLayout to = from;
    to.placements = {partial(ReduceOp::prod)};
    const std::vector<float> in{1, 2, 3, 4, 5};
    std::vector<float> out(5);
    const auto plan = plan_redistribution(from, to, mesh->costs());
    ASSERT_TRUE(redistribute(*mesh, *plan, ConstBuffer::of(in), Buffer::of(out)).ok());
    EXPECT_EQ(out, here.rank == 0 ? in : std::vector<float>(5, 1.0F));
  });
}

TEST(Redistribution, refuses_buffers_that_do_not_fit) {
  run(World{.size = 2}, [](Context& here) {
    const auto mesh = made(here, {{"a", 2}});
    const TensorLayout from{mesh->axes(), {shard(0)}, {4}, Dtype::f32};
    TensorLayout to = from;
    to.placements = {replicate()};
    const auto plan = plan_redistribution(from, to, mesh->costs());
    std::vector<float> in(2), out(4), shorter(3);
    std::vector<double> other(2);
    const auto why = [&](ConstBuffer input, Buffer output) {
      return redistribute(*mesh, *plan, input, output).message();
    };
    EXPECT_THAT(why(ConstBuffer::of(in), Buffer::of(shorter)), HasSubstr("output has 3 elements"));
    EXPECT_THAT(why(ConstBuffer::of(other), Buffer::of(out)), HasSubstr("input is f64"));
    EXPECT_THAT(why(ConstBuffer::of(out.data(), 2), Buffer::of(out)), HasSubstr("overlap"));
    EXPECT_THAT(why(ConstBuffer::of(static_cast<float*>(nullptr), 2), Buffer::of(out)),
                HasSubstr("null"));
    const auto elsewhere = made(here, {{"b", 2}});
    EXPECT_THAT(redistribute(*elsewhere, *plan, ConstBuffer::of(in), Buffer::of(out)).message(),
                HasSubstr("a plan for a mesh a 2, and this one is b 2"));
    EXPECT_TRUE(redistribute(*mesh, *plan, ConstBuffer::of(in), Buffer::of(out)).ok());
  });
}

}  // namespace
}  // namespace tutti::test
