#include "tutti/mesh.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "mesh/axis_groups.hpp"
#include "mesh/predicted_costs.hpp"

namespace tutti {
inline namespace v1 {
namespace {

constexpr std::size_t kLongestLabel = 80;  // Group::label_ranks

Status refuse_mesh(std::string what) {
  return {Code::invalid_argument, "mesh: " + std::move(what)};
}

Result<mesh::AxisSet> set_of_names(const MeshAxes& axes, std::span<const std::string_view> names) {
  mesh::AxisSet set = 0;
  for (const std::string_view name : names) {
    const int axis = find_axis(axes, name);
    if (axis < 0)
      return refuse_mesh(fmt::format("there is no axis '{}' in {}", name, to_string(axes)));
    set |= mesh::set_of(axis);
  }
  return set == 0 ? Result<mesh::AxisSet>(refuse_mesh("say along which axes")) : set;
}

Result<std::vector<mesh::AxisSet>> combinations_of(const MeshAxes& axes,
                                                   const MeshOptions& options) {
  std::vector<mesh::AxisSet> sets;
  for (const auto& names : options.combinations) {
    const auto set = set_of_names(axes, std::vector<std::string_view>(names.begin(), names.end()));
    if (!set.ok()) return set.status();
    sets.push_back(*set);
  }
  return sets;
}

Status check_mesh(const Group& group, const MeshAxes& axes, const MeshOptions& options) {
  if (Status status = check_axes(axes); !status.ok()) return status;
  if (ranks_of(axes) != group.size())
    return refuse_mesh(fmt::format("{} has {} ranks, and group '{}' has {}", to_string(axes),
                                   ranks_of(axes), group.name(), group.size()));
  for (const auto& [name, spec] : options.specs)
    if (find_axis(axes, name) < 0)
      return refuse_mesh(fmt::format("a group is described for axis '{}', which {} has not", name,
                                     to_string(axes)));
  return combinations_of(axes, options).status();
}

// What ranks must say alike.
std::string words_of(const MeshAxes& axes, const MeshOptions& options) {
  std::string words = to_string(axes);
  for (const MeshAxis& axis : axes)
    if (axis.traffic) words += fmt::format(", traffic of {} {}", axis.name, *axis.traffic);
  for (const auto& names : options.combinations)
    words += fmt::format(", along {}", fmt::join(names, " and "));
  for (const auto& [name, spec] : options.specs)
    words += fmt::format(", {} '{}' {}{}", name, spec.name, to_string(spec.urgency),
                         spec.reduction_order ? to_string(*spec.reduction_order) : "");
  return words;
}

// Ranks that want different meshes would each make groups that are none.
Status check_agreement(Group& group, const std::string& words) {
  constexpr std::size_t kRoom = 240;
  std::vector<char> mine(kRoom, '\0');
  std::copy_n(words.begin(), std::min(words.size(), kRoom - 1), mine.begin());
  std::vector<char> all(kRoom * static_cast<std::size_t>(group.size()));
  const Status status = group.all_gather(ConstBuffer{mine.data(), kRoom, Dtype::u8},
                                         Buffer{all.data(), all.size(), Dtype::u8});
  if (!status.ok()) return status.annotate("mesh");
  for (int rank = 1; rank < group.size(); ++rank) {
    const char* theirs = all.data() + kRoom * static_cast<std::size_t>(rank);
    if (std::strncmp(all.data(), theirs, kRoom) != 0)
      return {Code::mismatch,
              fmt::format("ranks want different meshes: rank 0 {}; rank {} {}", all.data(), rank,
                          theirs),
              {group.rank(), rank, 0}};
  }
  return {};
}

Status label_with_coordinates(Group& group, const MeshAxes& axes,
                              const std::vector<int>& position_of) {
  std::vector<std::string> labels;
  for (const int position : position_of) {
    std::string label = to_string(axes, coordinates_of(axes, position));
    if (label.size() > kLongestLabel) label.replace(kLongestLabel - 2, label.npos, "..");
    labels.push_back(std::move(label));
  }
  return group.label_ranks(labels);
}

std::vector<int> inverse(const std::vector<int>& order) {
  std::vector<int> places(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    places[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  return places;
}

}  // namespace

Mesh::Mesh(std::shared_ptr<Group> group, MeshAxes axes, std::vector<int> rank_at,
           std::shared_ptr<mesh::AxisGroups> groups, std::vector<int> axis_of)
    : group_(std::move(group)),
      axes_(std::move(axes)),
      rank_at_(std::move(rank_at)),
      position_of_(inverse(rank_at_)),
      groups_(std::move(groups)),
      axis_of_(std::move(axis_of)) {}

Result<std::shared_ptr<Mesh>> Mesh::create(std::shared_ptr<Group> group, MeshAxes axes,
                                           MeshOptions options) {
  if (!group) return refuse_mesh("there is no group to make it of");
  // What is wrong on one rank must not leave the others waiting for it: each says it before they meet.
  const Status wrong = check_mesh(*group, axes, options);
  const std::string words = wrong.ok() ? words_of(axes, options) : "nothing: " + wrong.message();
  if (Status status = check_agreement(*group, words); !status.ok() || !wrong.ok())
    return wrong.ok() ? status : wrong;
  std::vector<int> rank_at = place_ranks(axes, group->hosts());
  if (options.labels)
    if (Status status = label_with_coordinates(*group, axes, inverse(rank_at)); !status.ok())
      return status;
  auto groups = std::make_shared<mesh::AxisGroups>(group, axes, rank_at, std::move(options.specs));
  if (Status status = groups->make_single(); !status.ok()) return status;
  std::vector<int> axis_of(axes.size());
  std::iota(axis_of.begin(), axis_of.end(), 0);
  std::shared_ptr<Mesh> made(new Mesh(std::move(group), std::move(axes), std::move(rank_at),
                                      std::move(groups), std::move(axis_of)));
  const auto combinations = combinations_of(made->axes_, options);
  for (const mesh::AxisSet set : *combinations)
    if (const auto along = made->groups_->along(set); !along.ok()) return along.status();
  return made;
}

int Mesh::size(std::string_view axis) const {
  const int index = find_axis(axes_, axis);
  return index < 0 ? 0 : axes_[static_cast<std::size_t>(index)].size;
}

Coordinates Mesh::coordinates(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return index < position_of_.size() ? coordinates_of(axes_, position_of_[index]) : Coordinates();
}

int Mesh::rank_at(const Coordinates& coordinates) const {
  const int position = position_of(axes_, coordinates);
  return position < 0 ? -1 : rank_at_[static_cast<std::size_t>(position)];
}

Result<std::shared_ptr<Group>> Mesh::along_axes(std::span<const std::string_view> names) {
  const auto set = set_of_names(axes_, names);
  return set.ok() ? along_set(*set) : set.status();
}

Result<std::shared_ptr<Group>> Mesh::along_set(std::uint32_t set) {
  mesh::AxisSet of_whole = 0;
  for (const int axis : mesh::axes_in(set))
    of_whole |= mesh::set_of(axis_of_[static_cast<std::size_t>(axis)]);
  return groups_->along(of_whole);
}

Result<std::shared_ptr<Mesh>> Mesh::sub_axes(std::span<const std::string_view> names) {
  const auto set = set_of_names(axes_, names);
  if (!set.ok()) return set.status();
  auto group = along_set(*set);
  if (!group.ok()) return group.status();
  MeshAxes axes;
  std::vector<int> axis_of;
  for (const int axis : mesh::axes_in(*set)) {
    axes.push_back(axes_[static_cast<std::size_t>(axis)]);
    axis_of.push_back(axis_of_[static_cast<std::size_t>(axis)]);
  }
  std::vector<int> rank_at(static_cast<std::size_t>((*group)->size()));
  std::iota(rank_at.begin(), rank_at.end(), 0);
  return std::shared_ptr<Mesh>(new Mesh(*std::move(group), std::move(axes), std::move(rank_at),
                                        groups_, std::move(axis_of)));
}

RedistributionCosts Mesh::costs() {
  if (!costs_) costs_ = std::make_shared<mesh::PredictedCosts>(group_, axes_, rank_at_);
  return {[costs = costs_](const StepTraffic& traffic) { return costs->seconds(traffic); },
          costs_->hosts()};
}

}  // namespace v1
}  // namespace tutti
