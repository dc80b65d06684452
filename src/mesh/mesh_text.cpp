// A mesh for people: who stands where, on which host.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tutti/mesh.hpp"

namespace tutti {
inline namespace v1 {
namespace {

// More rows would be no help.
constexpr int kMostRows = 64;

// How many hosts the ranks along one axis lie on at the most.
int widest_spread(const MeshAxes& axes, const std::vector<int>& host_at, std::size_t axis) {
  std::map<Coordinates, std::set<int>> hosts;
  for (int position = 0; position < static_cast<int>(host_at.size()); ++position) {
    Coordinates first = coordinates_of(axes, position);
    first[axis] = 0;
    hosts[first].insert(host_at[static_cast<std::size_t>(position)]);
  }
  std::size_t most = 0;
  for (const auto& [first, seen] : hosts) most = std::max(most, seen.size());
  return static_cast<int>(most);
}

std::string hosts_text(const std::vector<int>& hosts) {
  std::string text;
  for (const int host : std::set<int>(hosts.begin(), hosts.end()))
    text += (text.empty() ? "" : ", ") + fmt::to_string(host);
  return text;
}

}  // namespace

std::string Mesh::describe() const {
  const std::vector<int> hosts = group_->hosts();
  std::vector<int> host_at;
  for (const int rank : rank_at_) host_at.push_back(hosts[static_cast<std::size_t>(rank)]);
  const std::size_t host_count = std::set<int>(hosts.begin(), hosts.end()).size();
  std::string text = fmt::format(
      "mesh {} of group '{}': {} rank{} on {} host{}\n", to_string(axes_), group_->name(),
      rank_at_.size(), rank_at_.size() == 1 ? "" : "s", host_count, host_count == 1 ? "" : "s");
  for (std::size_t axis = 0; axis < axes_.size() && host_count > 1; ++axis) {
    const int spread = widest_spread(axes_, host_at, axis);
    text += spread == 1 ? fmt::format("  {} stays inside of a host\n", axes_[axis].name)
                        : fmt::format("  {} crosses {} hosts\n", axes_[axis].name, spread);
  }
  // A row for each place of the other axes, with the ranks along the last one.
  const MeshAxes others(axes_.begin(), axes_.end() - 1);
  const int columns = axes_.back().size;
  const int rows = ranks_of(others);
  for (int row = 0; row < std::min(rows, kMostRows); ++row) {
    std::string cells;
    std::vector<int> here;
    for (int column = 0; column < columns; ++column) {
      const auto position = static_cast<std::size_t>(row * columns + column);
      cells += fmt::format("{:>5}", rank_at_[position]);
      here.push_back(host_at[position]);
    }
    text += fmt::format("  {:<20}{} 0..{}:{}   host {}\n",
                        to_string(others, coordinates_of(others, row)), axes_.back().name,
                        columns - 1, cells, hosts_text(here));
  }
  if (rows > kMostRows) text += fmt::format("  … and {} more rows\n", rows - kMostRows);
  return text;
}

}  // namespace v1
}  // namespace tutti
