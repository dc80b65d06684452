#include "plan/symmetry.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "schedule/hazards.hpp"

namespace tutti::plan {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;

// Ranks of the group on one host; 0: not the same everywhere.
int ranks_per_host(const Cluster& cluster, const std::vector<int>& seats) {
  const auto host = [&](std::size_t i) { return seats[i] / cluster.ranks_per_host; };
  std::size_t first = 1;
  while (first < seats.size() && host(first) == host(0)) ++first;
  for (std::size_t i = 0; i < seats.size(); ++i)
    if (i > 0 && (i % first == 0) == (host(i) == host(i - 1))) return 0;
  return seats.size() % first == 0 ? static_cast<int>(first) : 0;
}

// The least k with which wires are alike.
int modulus_of_wires(const Cluster& cluster, const std::vector<int>& seats) {
  const int n = static_cast<int>(seats.size());
  if (cluster.fabric == Fabric::torus_2d) return 0;
  const int here = ranks_per_host(cluster, seats);
  if (here == 0) return 0;
  if (here == n) return 1;  // all on one host, where all are alike
  int k = here;
  const auto leaf = [&](int i) {
    return seats[static_cast<std::size_t>(i)] / cluster.ranks_per_host /
           std::max(1, cluster.hosts_per_switch);
  };
  if (cluster.fabric == Fabric::fat_tree && cluster.oversubscription > 1) {
    while (k < n && leaf(k) == leaf(0)) k += here;
    for (int i = 0; i < n; ++i)
      if (i > 0 && (i % k == 0) == (leaf(i) == leaf(i - 1))) return 0;
  }
  return n % k == 0 ? k : 0;
}

class Likeness {
 public:
  Likeness(const Network& network, const std::vector<int>& seats, int k)
      : network_(network), seats_(seats), k_(k) {}

  bool operator()(const Program& a, const Program& b) const {
    if (a.ops.size() != b.ops.size() || a.cut != b.cut) return false;
    for (std::size_t i = 0; i < a.ops.size(); ++i)
      if (!alike(a, a.ops[i], b, b.ops[i])) return false;
    return true;
  }

 private:
  // How many operands lie in each space; their order costs nothing.
  static std::array<int, 4> operands(const Op& op) {
    std::array<int, 4> counts{};
    for (const auto& source : op.sources)
      ++counts[source.peer >= 0 ? 3 : static_cast<std::size_t>(source.region.space)];
    return counts;
  }
  int kind(int from, int to) const {
    return network_.kind(seats_[static_cast<std::size_t>(from)],
                         seats_[static_cast<std::size_t>(to)]);
  }
  bool alike(const Program& p, const Op& a, const Program& q, const Op& b) const {
    if (a.kind != b.kind || a.step != b.step || a.dst.count != b.dst.count ||
        a.src.count != b.src.count || a.dst.space != b.dst.space || a.src.space != b.src.space ||
        a.sources.size() != b.sources.size() || (a.peer < 0) != (b.peer < 0))
      return false;
    if (operands(a) != operands(b)) return false;
    if (a.peer < 0) return true;
    return a.peer % k_ == b.peer % k_ && kind(p.rank, a.peer) == kind(q.rank, b.peer);
  }

  const Network& network_;
  const std::vector<int>& seats_;
  int k_;
};

// Members of each class that are looked at: neighbours, the middle, the end, and some between.
std::set<int> members_to_compare(int classes) {
  std::set<int> members;
  for (const int m : {1, 2, classes / 3, classes / 2, classes - 2, classes - 1})
    if (m > 0 && m < classes) members.insert(m);
  if (classes <= 8)
    for (int m = 1; m < classes; ++m) members.insert(m);
  return members;
}

std::vector<schedule::Hazard> sorted_hazards(const Program& program) {
  auto found = schedule::hazards(program);
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

Program sorted_receives(Program program) {
  const int n = program.size;
  const auto distance = [&](const Op& op) { return ((program.rank - op.peer) % n + n) % n; };
  auto& ops = program.ops;
  for (auto first = ops.begin(); first != ops.end();) {
    const auto last = std::find_if(first, ops.end(), [](const Op& op) {
      return op.kind != OpKind::recv || op.dst.space != schedule::Space::scratch;
    });
    // Scratch that is handed out one after the other is never the same.
    bool apart = true;
    for (auto op = first; op != last && op + 1 != last; ++op)
      apart &= op->dst.first + op->dst.count <= (op + 1)->dst.first;
    if (apart)
      std::stable_sort(first, last, [&](const Op& a, const Op& b) {
        return std::pair(a.step, distance(a)) < std::pair(b.step, distance(b));
      });
    first = last == ops.end() ? last : last + 1;
  }
  return program;
}

int find_modulus(const Cluster& cluster, const schedule::Entry& entry,
                 const schedule::Request& request, const std::vector<int>& seats) {
  const int k = modulus_of_wires(cluster, seats);
  const int n = request.size;
  if (k == 0 || k == n) return 0;
  const Network network(cluster, seats.back() + 1);
  const Likeness alike(network, seats, k);
  schedule::Request one = request;
  const auto program = [&](int rank) {
    one.rank = rank;
    return sorted_receives(entry.build(one));
  };
  // Far ones first: most schedules that differ at all differ there.
  const std::set<int> members = members_to_compare(n / k);
  for (int place = 0; place < k; ++place) {
    const Program first = program(place);
    std::vector<schedule::Hazard> hazards;
    bool has_hazards = false;
    for (auto member = members.rbegin(); member != members.rend(); ++member) {
      const Program other = program(place + *member * k);
      if (!alike(first, other)) return 0;
      if (!has_hazards) hazards = sorted_hazards(first);
      has_hazards = true;
      if (sorted_hazards(other) != hazards) return 0;
    }
  }
  return k;
}

Standing standing_for(const Cluster& cluster, const std::vector<int>& seats, int modulus) {
  Standing standing;
  const int per_host = std::max(1, ranks_per_host(cluster, seats));
  const int seat_count = seats.back() + 1;
  const int hosts = (seat_count + cluster.ranks_per_host - 1) / cluster.ranks_per_host;
  const int per_leaf = std::max(1, cluster.hosts_per_switch);
  standing.seat.assign(static_cast<std::size_t>(seat_count), 0);
  standing.host.assign(static_cast<std::size_t>(hosts), 0);
  standing.leaf.assign(static_cast<std::size_t>((hosts + per_leaf - 1) / per_leaf), 0);
  for (std::size_t i = 0; i < seats.size(); ++i) {
    const int place = static_cast<int>(i) % modulus;
    standing.seat[static_cast<std::size_t>(seats[i])] = place;
    standing.host[static_cast<std::size_t>(seats[i] / cluster.ranks_per_host)] = place / per_host;
  }
  return standing;
}

}  // namespace tutti::plan
