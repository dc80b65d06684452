#include "mesh/search.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <queue>
#include <span>

#include "core/check.hpp"

namespace tutti::mesh {
namespace {

// Working out who sends what takes ranks² steps; a search spends so many of them on transfers.
constexpr std::int64_t kMostMatches = 10'000'000;
// Arrangements grow with the factorial of the axes: idle ones take part up to so many in all, so many are
// looked at, and so many axes are rearranged at once.
constexpr int kMostSearched = 4;
constexpr int kMostExpanded = 20'000;
constexpr std::size_t kMostRearranged = 3;

// Seconds first; of what takes as long, fewer exchanges, collectives before transfers, fewer slices.
struct Price {
  double seconds = 0;
  int exchanges = 0;
  int transfers = 0;
  int slices = 0;

  Price after(StepKind kind, double more) const {
    const bool is_slice = kind == StepKind::slice;
    return {seconds + more, exchanges + !is_slice, transfers + (kind == StepKind::transfer),
            slices + is_slice};
  }
  friend auto operator<=>(const Price&, const Price&) = default;
};

using Cuts = std::vector<std::vector<int>>;

// Calls `found` once for every way to append all of `axes` to some of the lists, in any order.
void append_in_all_ways(const Cuts& cuts, std::span<const int> axes,
                        const std::function<void(const Cuts&)>& found) {
  std::vector<std::size_t> given;
  for (const auto& cut : cuts) given.push_back(cut.size());
  const std::function<void(Cuts&, std::span<const int>)> add = [&](Cuts& made,
                                                                   std::span<const int> rest) {
    if (rest.empty()) return found(made);
    for (std::size_t list = 0; list < made.size(); ++list)
      for (std::size_t at = given[list]; at <= made[list].size(); ++at) {
        made[list].insert(made[list].begin() + static_cast<long>(at), rest[0]);
        add(made, rest.subspan(1));
        made[list].erase(made[list].begin() + static_cast<long>(at));
      }
  };
  Cuts made = cuts;
  add(made, axes);
}

// Every set of axes that are the innermost of their dimensions, and what cuts without them.
void for_each_inner_set(const Arrangement& now,
                        const std::function<void(AxisSet, const Arrangement&)>& found,
                        std::size_t dimension = 0, AxisSet taken = 0) {
  if (dimension == now.cuts.size()) {
    if (taken != 0) found(taken, now);
    return;
  }
  Arrangement rest = now;
  for (;;) {
    for_each_inner_set(rest, found, dimension + 1, taken);
    std::vector<int>& cut = rest.cuts[dimension];
    if (cut.empty()) return;
    taken |= set_of(cut.back());
    cut.pop_back();
  }
}

class ChainSearch {
 public:
  ChainSearch(const TensorLayout& tensor, const Arrangement& from, const Arrangement& to,
              StepMaker& maker)
      : tensor_(tensor), from_(from), to_(to), maker_(maker) {
    choose_axes();
    const std::int64_t ranks = ranks_of(tensor.axes);
    matches_left_ = std::max<std::int64_t>(1, kMostMatches / (ranks * ranks));
    choose_dimensions();
  }

  std::vector<Leg> run(const std::vector<Leg>& known) {
    reach(from_, {}, nullptr, {});
    for (auto here = nodes_.begin(); const Leg& leg : known) {
      if (here->first == to_) break;  // what goes on from there comes back
      go(*here, leg.kind, leg.axes, leg.after);
      here = nodes_.find(leg.after);
    }
    for (int expanded = 0; !open_.empty() && expanded < kMostExpanded;) {
      const auto [price, at] = open_.top();
      open_.pop();
      Node& node = at->second;
      if (node.is_done) continue;
      node.is_done = true;
      if (at->first == to_) break;
      expand(*at);
      ++expanded;
    }
    return legs_to(to_);
  }

 private:
  struct Node {
    Price price;
    bool is_done = false;
    const std::pair<const Arrangement, Node>* before = nullptr;
    Leg leg;
  };
  using Nodes = std::map<Arrangement, Node>;
  using Place = Nodes::value_type;
  struct Later {
    bool operator()(const std::pair<Price, Place*>& a, const std::pair<Price, Place*>& b) const {
      return a.first > b.first;
    }
  };

  // Those that change have to take part, others may.
  void choose_axes() {
    AxisSet idle = 0;
    for (int axis = 0; axis < static_cast<int>(tensor_.axes.size()); ++axis) {
      if (tensor_.axes[static_cast<std::size_t>(axis)].size == 1) continue;
      ((from_.sharded() | from_.partial | to_.sharded()) & set_of(axis) ? searched_ : idle) |=
          set_of(axis);
    }
    for (const int axis : axes_in(idle))
      if (std::popcount(searched_) < kMostSearched) searched_ |= set_of(axis);
  }

  // Those that the ends cut, and the longest of the others: more would only be like it.
  void choose_dimensions() {
    const auto length_of = [&](int i) { return tensor_.shape[static_cast<std::size_t>(i)]; };
    int longest = -1;
    for (int i = 0; i < static_cast<int>(tensor_.shape.size()); ++i) {
      const auto index = static_cast<std::size_t>(i);
      if (!from_.cuts[index].empty() || !to_.cuts[index].empty())
        dimensions_.push_back(i);
      else if (longest < 0 || length_of(i) > length_of(longest))
        longest = i;
    }
    if (longest >= 0) dimensions_.push_back(longest);
  }

  void reach(const Arrangement& after, Price price, const Place* before, Leg leg) {
    if (const auto end = nodes_.find(to_); end != nodes_.end() && price >= end->second.price)
      return;
    const auto [at, is_new] = nodes_.try_emplace(after);
    Node& node = at->second;
    if (!is_new && price >= node.price) return;
    node = {price, false, before, std::move(leg)};
    open_.push({price, &*at});
  }

  void go(const Place& here, StepKind kind, AxisSet axes, Arrangement after) {
    Leg leg{kind, axes, std::move(after)};
    const Arrangement there = leg.after;
    const double seconds = maker_.seconds(leg, here.first);
    reach(there, here.second.price.after(kind, seconds), &here, std::move(leg));
  }

  void transfer(const Place& here, const Arrangement& after) {
    if (after == here.first || after.partial != here.first.partial || matches_left_ <= 0) return;
    --matches_left_;
    const DeliveryList list = maker_.deliveries(here.first, after);
    // Where nobody lacks anything it is a slice.
    const StepKind kind = list.deliveries.empty() ? StepKind::slice : StepKind::transfer;
    reach(after, here.second.price.after(kind, maker_.seconds(list)), &here,
          {kind, after.sharded() & ~here.first.sharded(), after});
  }

  void expand(const Place& here) {
    transfer(here, to_);  // first: it bounds the rest
    gather(here);
    fold(here);
    slice(here);
    exchange(here);
    rearrange(here);
  }

  void gather(const Place& here) {
    for_each_inner_set(here.first, [&](AxisSet axes, const Arrangement& rest) {
      go(here, StepKind::all_gather, axes, rest);
    });
  }

  // Over every set of partial axes that need not stay so.
  void fold(const Place& here) {
    const AxisSet all = here.first.partial & ~to_.partial;
    for (AxisSet axes = all; axes != 0; axes = (axes - 1) & all) {
      Arrangement folded = here.first;
      folded.partial &= ~axes;
      go(here, StepKind::all_reduce, axes, folded);
      append_in_all_ways(chosen(folded), axes_in(axes), [&](const Cuts& cuts) {
        go(here, StepKind::reduce_scatter, axes, with(folded, cuts));
      });
    }
  }

  void slice(const Place& here) {
    const AxisSet idle = searched_ & ~here.first.partial & ~here.first.sharded();
    for (const int axis : axes_in(idle))
      for (const int dimension : dimensions_) {
        Arrangement cut = here.first;
        cut.cuts[static_cast<std::size_t>(dimension)].push_back(axis);
        go(here, StepKind::slice, set_of(axis), std::move(cut));
      }
  }

  void exchange(const Place& here) {
    for (const int from : dimensions_) {
      Arrangement rest = here.first;
      std::vector<int>& cut = rest.cuts[static_cast<std::size_t>(from)];
      if (cut.empty()) continue;
      const int axis = cut.back();
      cut.pop_back();
      for (const int to : dimensions_) {
        if (to == from) continue;
        Arrangement other = rest;
        other.cuts[static_cast<std::size_t>(to)].push_back(axis);
        go(here, StepKind::all_to_all, set_of(axis), std::move(other));
      }
    }
  }

  // The same axes cut in any other way. Of one axis there is no other way than all_to_all's.
  void rearrange(const Place& here) {
    const std::vector<int> axes = axes_in(here.first.sharded());
    if (axes.size() < 2 || axes.size() > kMostRearranged) return;
    const Arrangement bare{Cuts(tensor_.shape.size()), here.first.partial};
    append_in_all_ways(chosen(bare), axes,
                       [&](const Cuts& cuts) { transfer(here, with(bare, cuts)); });
  }

  // The cuts of the dimensions that are looked at, and back.
  Cuts chosen(const Arrangement& whole) const {
    Cuts cuts;
    for (const int dimension : dimensions_)
      cuts.push_back(whole.cuts[static_cast<std::size_t>(dimension)]);
    return cuts;
  }
  Arrangement with(Arrangement whole, const Cuts& cuts) const {
    for (std::size_t i = 0; i < dimensions_.size(); ++i)
      whole.cuts[static_cast<std::size_t>(dimensions_[i])] = cuts[i];
    return whole;
  }

  std::vector<Leg> legs_to(const Arrangement& end) {
    std::vector<Leg> legs;
    const auto at = nodes_.find(end);
    TUTTI_CHECK(at != nodes_.end());  // everything can be gathered, and cut again
    for (const Place* place = &*at; place->second.before != nullptr; place = place->second.before)
      legs.push_back(place->second.leg);
    std::reverse(legs.begin(), legs.end());
    return legs;
  }

  const TensorLayout& tensor_;
  const Arrangement& from_;
  const Arrangement& to_;
  StepMaker& maker_;
  AxisSet searched_ = 0;         // axes that may cut
  std::vector<int> dimensions_;  // that are looked at
  std::int64_t matches_left_ = 0;
  Nodes nodes_;
  std::priority_queue<std::pair<Price, Place*>, std::vector<std::pair<Price, Place*>>, Later> open_;
};

}  // namespace

std::vector<Leg> cheapest_chain(const TensorLayout& tensor, const Arrangement& from,
                                const Arrangement& to, const std::vector<Leg>& known,
                                StepMaker& maker) {
  return ChainSearch(tensor, from, to, maker).run(known);
}

}  // namespace tutti::mesh
