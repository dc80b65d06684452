// Positions and coordinates, and which rank stands where.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <numeric>
#include <set>

#include "tutti/mesh_axes.hpp"

namespace tutti {
inline namespace v1 {
namespace {

constexpr std::size_t kLongestName = 16;
// From the least to the most that their ranks have to say to each other.
constexpr std::array<std::string_view, 5> kKnownWords = {"pp", "dp", "ep", "cp", "tp"};

std::optional<int> traffic_of(const MeshAxis& axis) {
  if (axis.traffic) return axis.traffic;
  const auto known = std::find(kKnownWords.begin(), kKnownWords.end(), axis.name);
  if (known == kKnownWords.end()) return std::nullopt;
  return static_cast<int>(known - kKnownWords.begin());
}

// The axes by rising traffic: the last one is the chattiest.
std::vector<int> by_traffic(const MeshAxes& axes) {
  std::vector<int> order(axes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto is_unknown = [](const MeshAxis& axis) { return !traffic_of(axis); };
  if (std::any_of(axes.begin(), axes.end(), is_unknown)) return order;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return traffic_of(axes[static_cast<std::size_t>(a)]) <
           traffic_of(axes[static_cast<std::size_t>(b)]);
  });
  return order;
}

// Ranks in the order in which a mesh takes them: `blocks` are sizes that should stay inside of a host,
// each a multiple of the one before. Every host gives whole blocks, the largest that fit, and blocks are
// taken by falling size: so each begins at a multiple of its size, and what is left of hosts comes last.
std::vector<int> seat_ranks(std::span<const int> hosts, const std::vector<int>& blocks) {
  std::map<int, std::vector<int>> by_first;  // ranks of a host, by the lowest of them
  std::map<int, int> first_of;
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    const int first = first_of.emplace(hosts[static_cast<std::size_t>(rank)], rank).first->second;
    by_first[first].push_back(rank);
  }
  std::map<int, std::vector<int>, std::greater<>> seats;  // by the size of their blocks
  for (const auto& [first, ranks] : by_first) {
    std::size_t given = 0;
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block)
      for (; given + static_cast<std::size_t>(*block) <= ranks.size();
           given += static_cast<std::size_t>(*block))
        seats[*block].insert(seats[*block].end(), ranks.begin() + static_cast<long>(given),
                             ranks.begin() + static_cast<long>(given) + *block);
  }
  std::vector<int> order;
  for (const auto& [block, ranks] : seats) order.insert(order.end(), ranks.begin(), ranks.end());
  return order;
}

}  // namespace

Status check_axes(const MeshAxes& axes) {
  const auto refuse = [](std::string what) {
    return Status(Code::invalid_argument, "mesh: " + std::move(what));
  };
  if (axes.empty() || axes.size() > static_cast<std::size_t>(kMostMeshAxes))
    return refuse(fmt::format("{} axes; there are 1 to {}", axes.size(), kMostMeshAxes));
  std::set<std::string_view> names;
  long ranks = 1;
  for (const MeshAxis& axis : axes) {
    const bool is_word = std::all_of(axis.name.begin(), axis.name.end(), [](unsigned char letter) {
      return std::isalnum(letter) != 0 || letter == '_';
    });
    if (!is_word || axis.name.empty() || axis.name.size() > kLongestName)
      return refuse(fmt::format("'{}' is no name of an axis: 1 to {} letters, digits and _",
                                axis.name, kLongestName));
    if (!names.insert(axis.name).second)
      return refuse(fmt::format("there are two axes '{}'", axis.name));
    if (axis.size < 1)
      return refuse(fmt::format("axis '{}' has size {}; 1 is the least", axis.name, axis.size));
    ranks *= axis.size;
    if (ranks > kMostMeshRanks)
      return refuse(fmt::format("{} has more than {} ranks", to_string(axes), kMostMeshRanks));
  }
  return {};
}

int ranks_of(const MeshAxes& axes) {
  int ranks = 1;
  for (const MeshAxis& axis : axes) ranks *= axis.size;
  return ranks;
}

int find_axis(const MeshAxes& axes, std::string_view name) {
  const auto at = std::find_if(axes.begin(), axes.end(),
                               [&](const MeshAxis& axis) { return axis.name == name; });
  return at == axes.end() ? -1 : static_cast<int>(at - axes.begin());
}

Coordinates coordinates_of(const MeshAxes& axes, int position) {
  Coordinates coordinates(axes.size());
  for (std::size_t i = axes.size(); i-- > 0;) {
    coordinates[i] = position % axes[i].size;
    position /= axes[i].size;
  }
  return coordinates;
}

int position_of(const MeshAxes& axes, const Coordinates& coordinates) {
  if (coordinates.size() != axes.size()) return -1;
  int position = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (coordinates[i] < 0 || coordinates[i] >= axes[i].size) return -1;
    position = position * axes[i].size + coordinates[i];
  }
  return position;
}

std::vector<int> place_ranks(const MeshAxes& axes, std::span<const int> hosts) {
  const std::vector<int> nesting = by_traffic(axes);
  std::vector<int> blocks{1};
  for (auto axis = nesting.rbegin(); axis != nesting.rend(); ++axis)
    if (const int size = axes[static_cast<std::size_t>(*axis)].size; size > 1)
      blocks.push_back(blocks.back() * size);
  const std::vector<int> seats = seat_ranks(hosts, blocks);
  std::vector<int> rank_at(seats.size());
  for (int position = 0; position < static_cast<int>(seats.size()); ++position) {
    const Coordinates coordinates = coordinates_of(axes, position);
    std::size_t seat = 0;
    for (const int axis : nesting) {
      const auto index = static_cast<std::size_t>(axis);
      seat = seat * static_cast<std::size_t>(axes[index].size) +
             static_cast<std::size_t>(coordinates[index]);
    }
    rank_at[static_cast<std::size_t>(position)] = seats[seat];
  }
  return rank_at;
}

std::string to_string(const MeshAxes& axes) {
  std::string text;
  for (const MeshAxis& axis : axes)
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", axis.name, axis.size);
  return text;
}

std::string to_string(const MeshAxes& axes, const Coordinates& coordinates) {
  std::string text;
  for (std::size_t i = 0; i < axes.size() && i < coordinates.size(); ++i)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axes[i].name, coordinates[i]);
  return text;
}

}  // namespace v1
}  // namespace tutti
