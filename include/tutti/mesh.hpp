// tutti/mesh.hpp - a group's ranks as a box with named axes, and a group along each of them.
//
// Ranks are laid out so that the chattiest axis stays inside of a host (MeshAxis::traffic). Every rank
// is named with its coordinates from then on, wherever it is named: "rank 3 (dp 1, tp 1; host b, pid 4182)".
//
// Ordering       create is collective; so is along for several axes, at its first use, over the ranks
//                along these axes. Groups are ordered as the mesh is.
// Ownership      the mesh keeps the group and those that it makes.
// Thread-safety  one thread at a time; groups that it has handed out are as any group is.
// Failure        axes that do not fit the group are invalid_argument; ranks that want different meshes
//                all get mismatch.
//
//   auto mesh = tutti::Mesh::create(group, {{"dp", 2}, {"tp", 2}, {"pp", 2}});
//   if (!mesh.ok()) return mesh.status();
//   auto tp = (*mesh)->along("tp");              // this rank and its neighbour in tp
//   (*tp)->all_reduce(activations, tutti::ReduceOp::sum);
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/group.hpp"
#include "tutti/mesh_axes.hpp"
#include "tutti/redistribution.hpp"

namespace tutti {
// Defined in the source tree, not in the installed headers.
namespace mesh {
class AxisGroups;
class PlanRun;
class PredictedCosts;
}  // namespace mesh

inline namespace [[gnu::visibility("default")]] v1 {

struct MeshOptions {
  // By axis: how the group along it differs from the mesh's.
  std::map<std::string, GroupSpec> specs{};
  // Groups along several axes that create makes, too.
  std::vector<std::vector<std::string>> combinations{};
  // Whether ranks are named with their coordinates (Group::label_ranks).
  bool labels = true;
};

class Mesh {
 public:
  // Collective. The axes' sizes multiply to the group's.
  static Result<std::shared_ptr<Mesh>> create(std::shared_ptr<Group> group, MeshAxes axes,
                                              MeshOptions options = {});

  const MeshAxes& axes() const { return axes_; }
  // 0: there is no such axis.
  int size(std::string_view axis) const;
  // The group that the mesh is of, with the ranks that it had before.
  const std::shared_ptr<Group>& group() const { return group_; }
  // Of a rank of that group (empty: it has none such); this one's.
  Coordinates coordinates(int rank) const;
  Coordinates coordinates() const { return coordinates(group_->rank()); }
  // The rank of that group; -1: these lie outside.
  int rank_at(const Coordinates& coordinates) const;
  // The rank at each position.
  const std::vector<int>& ranks() const { return rank_at_; }

  // The ranks that differ from this one in these axes only, in the order of the mesh.
  template <class... Names>
  Result<std::shared_ptr<Group>> along(const Names&... names) {
    const std::initializer_list<std::string_view> list{names...};
    return along_axes(std::span(list.begin(), list.size()));
  }
  Result<std::shared_ptr<Group>> along_axes(std::span<const std::string_view> names);
  // The mesh of these ranks, with these axes. Its groups are this one's.
  template <class... Names>
  Result<std::shared_ptr<Mesh>> sub(const Names&... names) {
    const std::initializer_list<std::string_view> list{names...};
    return sub_axes(std::span(list.begin(), list.size()));
  }
  Result<std::shared_ptr<Mesh>> sub_axes(std::span<const std::string_view> names);

  // What steps of a redistribution cost here, by Group::predict: the same on all ranks.
  RedistributionCosts costs();
  // Who stands where, and what stays inside of a host.
  std::string describe() const;

 private:
  friend class mesh::PlanRun;
  Mesh(std::shared_ptr<Group> group, MeshAxes axes, std::vector<int> rank_at,
       std::shared_ptr<mesh::AxisGroups> groups, std::vector<int> axis_of);
  Result<std::shared_ptr<Group>> along_set(std::uint32_t set);

  std::shared_ptr<Group> group_;
  MeshAxes axes_;
  std::vector<int> rank_at_;                  // by position
  std::vector<int> position_of_;              // by rank
  std::shared_ptr<mesh::AxisGroups> groups_;  // of the whole mesh
  std::vector<int> axis_of_;                  // of the whole mesh, by axis of this one
  std::shared_ptr<mesh::PredictedCosts> costs_;
};

}  // namespace v1
}  // namespace tutti
