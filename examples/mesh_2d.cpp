// Four ranks as a mesh of two axes: sums along one axis and along the other, then a matrix that goes from
// rows over dp to columns over tp. The plan says by which steps, and what they would have cost axis by axis.
//
//   tutti run -n 4 build/bin/examples/mesh_2d
#include "example.hpp"

using namespace example;

int main() {
  auto world = join(4, "mesh_2d");
  auto mesh = value_of(tutti::Mesh::create(world, {{"dp", 2}, {"tp", 2}}));
  const tutti::Coordinates at = mesh->coordinates();
  const std::string place = to_string(mesh->axes(), at);

  // The same call on different groups: each rank is in one along dp and in one along tp.
  float along_dp = static_cast<float>(world->rank()), along_tp = along_dp;
  check(value_of(mesh->along("dp"))
            ->all_reduce(tutti::Buffer::of(&along_dp, 1), tutti::ReduceOp::sum));
  check(value_of(mesh->along("tp"))
            ->all_reduce(tutti::Buffer::of(&along_tp, 1), tutti::ReduceOp::sum));
  say("rank %d (%s): ranks along dp sum to %g, along tp to %g", world->rank(), place.c_str(),
      along_dp, along_tp);

  // A 4x4 matrix 0 … 15: two rows for each dp, the same on both tp.
  const tutti::TensorLayout rows{
      mesh->axes(), {tutti::shard(0), tutti::replicate()}, {4, 4}, tutti::Dtype::f32};
  tutti::TensorLayout columns = rows;
  columns.placements = {tutti::replicate(), tutti::shard(1)};
  std::vector<float> mine(8), out(8);
  for (int i = 0; i < 8; ++i) mine[static_cast<std::size_t>(i)] = static_cast<float>(8 * at[0] + i);

  const auto plan = value_of(tutti::plan_redistribution(rows, columns, mesh->costs()));
  check(tutti::redistribute(*mesh, plan, tutti::ConstBuffer::of(mine), tutti::Buffer::of(out)));
  say("rank %d (%s) has columns %d and %d: %s", world->rank(), place.c_str(), 2 * at[1],
      2 * at[1] + 1, text(out).c_str());
  if (world->rank() == 0) say("by %zu steps:\n%s", plan.chain.steps.size(), describe(plan).c_str());
}
