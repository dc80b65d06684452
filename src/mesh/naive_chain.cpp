#include "mesh/naive_chain.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace tutti::mesh {
namespace {

// The dimension that an axis cuts; or one of these.
constexpr int kReplicated = -1;
constexpr int kPartial = -2;

class AxisByAxis {
 public:
  AxisByAxis(const TensorLayout& tensor, const Arrangement& from, const Arrangement& to)
      : axes_(static_cast<int>(tensor.axes.size())), now_(from), to_(to) {}

  std::vector<Leg> run() {
    if (is_torchs(now_) && is_torchs(to_)) {
      for (int axis = axes_; axis-- > 0;) turn(axis, reachable(axis));
      for (int axis = 0; axis < axes_; ++axis) turn(axis, goal(to_, axis));
    } else {
      make_all_whole();
      cut_as_wanted();
    }
    TUTTI_CHECK(now_ == to_);
    return std::move(legs_);
  }

 private:
  static int goal(const Arrangement& arrangement, int axis) {
    if ((arrangement.partial & set_of(axis)) != 0) return kPartial;
    for (std::size_t i = 0; i < arrangement.cuts.size(); ++i)
      if (std::find(arrangement.cuts[i].begin(), arrangement.cuts[i].end(), axis) !=
          arrangement.cuts[i].end())
        return static_cast<int>(i);
    return kReplicated;
  }

  static bool is_torchs(const Arrangement& arrangement) {
    return std::all_of(arrangement.cuts.begin(), arrangement.cuts.end(),
                       [](const auto& cut) { return std::is_sorted(cut.begin(), cut.end()); });
  }

  // Where other axes before this one cut its dimension in another way than they will, it must be whole
  // first.
  int reachable(int axis) const {
    const int wanted = goal(to_, axis);
    if (wanted < 0) return wanted;
    const auto before = [&](const Arrangement& arrangement) {
      std::vector<int> cut = arrangement.cuts[static_cast<std::size_t>(wanted)];
      std::erase_if(cut, [&](int other) { return other >= axis; });
      return cut;
    };
    return before(now_) == before(to_) ? wanted : kReplicated;
  }

  void turn(int axis, int wanted) {
    const int had = goal(now_, axis);
    if (had == wanted) return;
    if (had == kPartial && wanted >= 0) {
      now_.partial &= ~set_of(axis);
      now_.cuts[static_cast<std::size_t>(wanted)].push_back(axis);
      return add(StepKind::reduce_scatter, axis);
    }
    if (had == kPartial) {
      now_.partial &= ~set_of(axis);
      return add(StepKind::all_reduce, axis);
    }
    if (had >= 0) {
      std::vector<int>& cut = now_.cuts[static_cast<std::size_t>(had)];
      TUTTI_CHECK(cut.back() == axis);  // what lies inside of it is whole already
      cut.pop_back();
      add(StepKind::all_gather, axis);
    }
    if (wanted < 0) return;
    now_.cuts[static_cast<std::size_t>(wanted)].push_back(axis);
    add(StepKind::slice, axis);
  }

  void make_all_whole() {
    for (const int axis : axes_in(now_.partial & ~to_.partial)) turn(axis, kReplicated);
    for (std::vector<int>& cut : now_.cuts)
      while (!cut.empty()) turn(cut.back(), kReplicated);
  }

  void cut_as_wanted() {
    for (std::size_t i = 0; i < to_.cuts.size(); ++i)
      for (const int axis : to_.cuts[i]) turn(axis, static_cast<int>(i));
  }

  void add(StepKind kind, int axis) { legs_.push_back({kind, set_of(axis), now_}); }

  int axes_;
  Arrangement now_;
  const Arrangement& to_;
  std::vector<Leg> legs_;
};

}  // namespace

std::vector<Leg> naive_chain(const TensorLayout& tensor, const Arrangement& from,
                             const Arrangement& to) {
  return AxisByAxis(tensor, from, to).run();
}

}  // namespace tutti::mesh
