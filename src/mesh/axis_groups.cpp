#include "mesh/axis_groups.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::mesh {
namespace {

// Of the lists by which ranks find each other: few programs will use the like.
constexpr std::uint32_t kTag = 0x6d657300;

}  // namespace

AxisGroups::AxisGroups(std::shared_ptr<Group> group, MeshAxes axes, const std::vector<int>& rank_at,
                       std::map<std::string, GroupSpec> specs)
    : group_(std::move(group)),
      axes_(std::move(axes)),
      rank_at_(rank_at),
      specs_(std::move(specs)) {
  const auto mine = std::find(rank_at_.begin(), rank_at_.end(), group_->rank());
  own_ = coordinates_of(axes_, static_cast<int>(mine - rank_at_.begin()));
}

std::vector<int> AxisGroups::ranks_along(AxisSet set) const {
  std::vector<int> ranks;
  for (int position = 0; position < static_cast<int>(rank_at_.size()); ++position) {
    const Coordinates at = coordinates_of(axes_, position);
    bool is_in = true;
    for (std::size_t axis = 0; axis < axes_.size(); ++axis)
      is_in = is_in && (at[axis] == own_[axis] || (set & set_of(static_cast<int>(axis))) != 0);
    if (is_in) ranks.push_back(rank_at_[static_cast<std::size_t>(position)]);
  }
  return ranks;
}

// "tp of dp 1, pp 0": groups that are not the same have different names, wherever these are read.
GroupSpec AxisGroups::spec_of(AxisSet set) const {
  GroupSpec spec;
  std::string name, others;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    const bool is_in = (set & set_of(static_cast<int>(axis))) != 0;
    const auto given = specs_.find(axes_[axis].name);
    if (is_in && set == set_of(static_cast<int>(axis)) && given != specs_.end())
      spec = given->second;
    if (is_in)
      name += (name.empty() ? "" : "+") + axes_[axis].name;
    else
      others += fmt::format("{}{} {}", others.empty() ? "" : ", ", axes_[axis].name, own_[axis]);
  }
  if (!spec.name.empty()) name = spec.name;
  spec.name = others.empty() ? name : fmt::format("{} of {}", name, others);
  return spec;
}

Status AxisGroups::make_single() {
  for (int axis = 0; axis < static_cast<int>(axes_.size()); ++axis) {
    const AxisSet set = set_of(axis);
    Coordinates first = own_;
    first[static_cast<std::size_t>(axis)] = 0;
    auto made = group_->split(position_of(axes_, first), own_[static_cast<std::size_t>(axis)],
                              spec_of(set));
    if (!made.ok())
      return made.status().annotate(
          fmt::format("the groups along '{}'", axes_[static_cast<std::size_t>(axis)].name));
    made_[set] = *std::move(made);
  }
  return {};
}

Result<std::shared_ptr<Group>> AxisGroups::along(AxisSet set) {
  if (const auto known = made_.find(set); known != made_.end()) return known->second;
  const GroupSpec spec = spec_of(set);
  auto made = group_->subgroup(ranks_along(set), kTag | set, spec);
  if (!made.ok()) return made.status().annotate(fmt::format("the group {}", spec.name));
  made_[set] = *made;
  return made;
}

}  // namespace tutti::mesh
