#include "cost/symmetry.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "schedule/hazards.hpp"

namespace tutti::cost {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;

// How many members in a row share what `of` says; 0: not the same number everywhere.
template <class Of>
int run_length(const std::vector<int>& seats, Of of) {
  std::size_t first = 1;
  while (first < seats.size() && of(seats[first]) == of(seats[0])) ++first;
  for (std::size_t i = 1; i < seats.size(); ++i)
    if ((i % first == 0) == (of(seats[i]) == of(seats[i - 1]))) return 0;
  return seats.size() % first == 0 ? static_cast<int>(first) : 0;
}

int ranks_per_host(const Site& site, const std::vector<int>& seats) {
  return run_length(seats, [&](int seat) { return site.host(seat); });
}

// The least k with which wires and cores are alike.
int modulus_of_wires(const Site& site, const std::vector<int>& seats) {
  const int n = static_cast<int>(seats.size());
  if (site.torus) return 0;
  const bool crowded = site.is_crowded();
  if (crowded && site.machine_of != site.host_of) return 0;
  const int here = ranks_per_host(site, seats);
  if (here == n) return crowded ? 0 : 1;  // all on one host, where all are alike
  if (here == 0 || site.leaf_of.empty()) return here;
  const int under_leaf = run_length(seats, [&](int seat) { return site.leaf(site.host(seat)); });
  if (under_leaf == n) return here;
  return under_leaf % here == 0 ? under_leaf : 0;
}

class Likeness {
 public:
  Likeness(const Site& site, const std::vector<int>& seats, int k)
      : site_(site), seats_(seats), k_(k) {}

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
  // Which ways two ranks have between them.
  int kind(int from, int to) const {
    const int a = seats_[static_cast<std::size_t>(from)];
    const int b = seats_[static_cast<std::size_t>(to)];
    return site_.are_together(a, b) ? 0 : site_.climbs(a, b) ? 2 : 1;
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

  const Site& site_;
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

int find_modulus(const Site& site, const schedule::Entry& entry, const schedule::Request& request,
                 const std::vector<int>& seats) {
  const int k = modulus_of_wires(site, seats);
  const int n = request.size;
  if (k == 0 || k == n) return 0;
  const Likeness alike(site, seats, k);
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

Standing standing_for(const Site& site, const std::vector<int>& seats, int modulus) {
  Standing standing = Standing::everybody(site);
  for (auto* numbers : {&standing.seat, &standing.host, &standing.leaf, &standing.machine})
    std::fill(numbers->begin(), numbers->end(), 0);
  const int per_host = std::max(1, ranks_per_host(site, seats));
  for (std::size_t i = 0; i < seats.size(); ++i) {
    const auto seat = static_cast<std::size_t>(seats[i]);
    const int place = static_cast<int>(i) % modulus;
    standing.seat[seat] = place;
    standing.host[static_cast<std::size_t>(site.host_of[seat])] = place / per_host;
    if (!site.machine_of.empty())
      standing.machine[static_cast<std::size_t>(site.machine_of[seat])] = place / per_host;
  }
  return standing;
}

}  // namespace tutti::cost
