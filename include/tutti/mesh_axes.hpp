// tutti/mesh_axes.hpp - the axes of a mesh: how many ranks stand along each, and who stands where.
//
// A mesh is a box of ranks with named axes. A *position* counts its places row by row, the last axis
// fastest; *coordinates* say the same with a number for each axis, in the order of the axes. Pure:
// nothing here needs a group (tutti/mesh.hpp has one).
//
//   const tutti::MeshAxes axes{{"dp", 2}, {"tp", 4}};
//   tutti::coordinates_of(axes, 5);                      // {1, 1}: "dp 1, tp 1"
//   tutti::place_ranks(axes, {0, 0, 0, 0, 1, 1, 1, 1});  // who stands there: tp inside of a host
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

struct MeshAxis {
  std::string name;  // letters, digits and _, at most 16
  int size = 1;
  // How much its ranks have to say to each other: the chattiest axis gets neighbours of one host.
  // Absent: by its name, tp > cp > ep > dp > pp. Where a name is not among these, or two say the same,
  // the later axis is the chattier one, as torch's DeviceMesh has it.
  std::optional<int> traffic{};

  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};
using MeshAxes = std::vector<MeshAxis>;
using Coordinates = std::vector<int>;  // one for each axis

inline constexpr int kMostMeshAxes = 8;
inline constexpr int kMostMeshRanks = 1 << 20;

// invalid_argument names the axis that cannot be.
Status check_axes(const MeshAxes& axes);
// How many ranks there are.
int ranks_of(const MeshAxes& axes);
// -1: there is no such axis.
int find_axis(const MeshAxes& axes, std::string_view name);

Coordinates coordinates_of(const MeshAxes& axes, int position);
// -1: they lie outside.
int position_of(const MeshAxes& axes, const Coordinates& coordinates);

// The rank at each position, for ranks whose hosts these are (Group::hosts). Ranks of a host are taken
// together, and the chattiest axes lie inside of hosts as far as these are large enough: along the
// chattiest one all ranks share a host wherever its size divides that of every host. As many hosts as
// ranks of the mesh.
std::vector<int> place_ranks(const MeshAxes& axes, std::span<const int> hosts);

// "dp 2 x tp 4".
std::string to_string(const MeshAxes& axes);
// "dp 1, tp 3".
std::string to_string(const MeshAxes& axes, const Coordinates& coordinates);

}  // namespace v1
}  // namespace tutti
