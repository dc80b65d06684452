// mesh/axis_groups.hpp - a mesh's groups along its axes, as this rank sees them: made once, kept.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mesh/arrangement.hpp"
#include "tutti/group.hpp"

namespace tutti::mesh {

class AxisGroups {
 public:
  AxisGroups(std::shared_ptr<Group> group, MeshAxes axes, const std::vector<int>& rank_at,
             std::map<std::string, GroupSpec> specs);

  // Of one axis each. Collective over the mesh.
  Status make_single();
  // Made at its first use, by the ranks along these axes.
  Result<std::shared_ptr<Group>> along(AxisSet set);

 private:
  // The ranks of the group along these axes, in the order of the mesh.
  std::vector<int> ranks_along(AxisSet set) const;
  GroupSpec spec_of(AxisSet set) const;

  std::shared_ptr<Group> group_;
  MeshAxes axes_;
  const std::vector<int> rank_at_;  // by position
  std::map<std::string, GroupSpec> specs_;
  Coordinates own_;
  std::map<AxisSet, std::shared_ptr<Group>> made_;
};

}  // namespace tutti::mesh
