// From two layouts to a plan: the chain that goes axis by axis, and the cheapest of all.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mesh/naive_chain.hpp"
#include "mesh/search.hpp"
#include "mesh/step_maker.hpp"
#include "tutti/redistribution.hpp"

namespace tutti {
inline namespace v1 {
namespace {

using mesh::Arrangement;
using mesh::Leg;
using mesh::StepKind;

bool are_same_ranks(const MeshAxes& a, const MeshAxes& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(),
      [](const MeshAxis& x, const MeshAxis& y) { return x.name == y.name && x.size == y.size; });
}

Status check_ends(const TensorLayout& from, const TensorLayout& to) {
  if (Status status = from.check(); !status.ok()) return status.annotate("from");
  if (Status status = to.check(); !status.ok()) return status.annotate("to");
  const auto refuse = [](std::string what) {
    return Status(Code::invalid_argument, "redistribution: " + std::move(what));
  };
  if (!are_same_ranks(from.axes, to.axes))
    return refuse(fmt::format("from a mesh {} to a mesh {}; a tensor stays on its mesh",
                              to_string(from.axes), to_string(to.axes)));
  if (from.shape != to.shape)
    return refuse(fmt::format("a tensor of {} does not become one of {}",
                              fmt::join(from.shape, "x"), fmt::join(to.shape, "x")));
  if (from.dtype != to.dtype)
    return refuse(fmt::format("{} does not become {}", to_string(from.dtype), to_string(to.dtype)));
  return {};
}

// Of whatever is partial; sum where nothing is.
ReduceOp op_of(const TensorLayout& layout) {
  for (const AxisPlacement& placement : layout.placements)
    if (placement.kind == AxisPlacement::Kind::partial) return placement.op;
  return ReduceOp::sum;
}

// Slices in a row are one.
std::vector<Leg> merged(std::vector<Leg> legs) {
  std::vector<Leg> result;
  for (Leg& leg : legs) {
    if (!result.empty() && result.back().kind == StepKind::slice && leg.kind == StepKind::slice) {
      result.back().axes |= leg.axes;
      result.back().after = std::move(leg.after);
    } else {
      result.push_back(std::move(leg));
    }
  }
  return result;
}

class Planner {
 public:
  Planner(const TensorLayout& from, const TensorLayout& to, const RedistributionCosts& costs)
      : from_(from), to_(to), maker_(from, op_of(from), costs) {
    start_ = Arrangement::of(from);
    goal_ = Arrangement::of(to);
    // What is partial by another operation has to be folded, and is made partial in the end.
    const mesh::AxisSet kept = op_of(from) == op_of(to) ? start_.partial & goal_.partial : 0;
    made_partial_ = goal_.partial & ~kept;
    goal_.partial = kept;
  }

  RedistributionPlan run() {
    const std::vector<Leg> naive = mesh::naive_chain(from_, start_, goal_);
    const std::vector<Leg> best = mesh::cheapest_chain(from_, start_, goal_, naive, maker_);
    return {from_, to_, chain(best), chain(naive)};
  }

 private:
  RedistributionChain chain(const std::vector<Leg>& legs) {
    std::vector<RedistributionStep> steps;
    const Arrangement* now = &start_;
    const std::vector<Leg> taken = merged(legs);
    for (const Leg& leg : taken) {
      steps.push_back(maker_.step(leg, *now));
      now = &leg.after;
    }
    if (made_partial_ != 0) {
      steps.emplace_back();
      steps.back().kind = StepKind::make_partial;
      steps.back().axes = mesh::axes_in(made_partial_);
    }
    if (!steps.empty()) steps.back().after = to_;
    return mesh::chain_of(std::move(steps));
  }

  const TensorLayout& from_;
  const TensorLayout& to_;
  mesh::StepMaker maker_;
  Arrangement start_, goal_;
  mesh::AxisSet made_partial_ = 0;
};

}  // namespace

std::string_view to_string(RedistributionStep::Kind kind) noexcept {
  switch (kind) {
    case StepKind::slice: return "slice";
    case StepKind::all_gather: return "all_gather";
    case StepKind::reduce_scatter: return "reduce_scatter";
    case StepKind::all_reduce: return "all_reduce";
    case StepKind::all_to_all: return "all_to_all";
    case StepKind::transfer: return "transfer";
    case StepKind::make_partial: return "make_partial";
  }
  return "?";
}

double exchange_bytes(const StepTraffic& traffic, int ranks, int ranks_per_host) {
  if (ranks < 2) return 0;
  const double all = ranks, here = ranks_per_host, away = ranks - ranks_per_host;
  if (away <= 0) return traffic.array_bytes * all / (all - 1);
  return std::max({traffic.array_bytes, traffic.away_bytes * all / away,
                   traffic.host_bytes * all / (here * away)});
}

RedistributionCosts RedistributionCosts::uniform(double alpha_s, double bytes_per_s) {
  return {[=](const StepTraffic& traffic) {
    const double others = traffic.ranks - 1;
    double bytes = traffic.array_bytes * others / traffic.ranks;
    if (traffic.kind == StepKind::all_reduce) bytes *= 2;
    if (traffic.kind == StepKind::transfer) bytes = traffic.array_bytes;
    return others * alpha_s + bytes / bytes_per_s;
  }};
}

Result<RedistributionPlan> plan_redistribution(const TensorLayout& from, const TensorLayout& to,
                                               const RedistributionCosts& costs) {
  if (Status status = check_ends(from, to); !status.ok()) return status;
  if (!costs.seconds)
    return Status(Code::invalid_argument, "redistribution: costs say nothing of seconds");
  if (!costs.hosts.empty() && costs.hosts.size() != static_cast<std::size_t>(ranks_of(from.axes)))
    return Status(Code::invalid_argument,
                  fmt::format("redistribution: costs name {} hosts for {} ranks",
                              costs.hosts.size(), ranks_of(from.axes)));
  return Planner(from, to, costs).run();
}

}  // namespace v1
}  // namespace tutti
