// tutti/redistribution.hpp - brings a tensor from one layout on a mesh to another by the cheapest way.
//
// A plan is a chain of steps, found by searching all layouts that the tensor could have in between: it
// may slice along an idle axis first and gather later, fold two axes at once, or fetch boxes where no
// collective fits. What each step costs is asked of the caller; the chain that goes axis by axis, as
// torch's DTensor does on CPU groups, stands beside it with its price.
//
// Pure          plan_redistribution: same input, same plan, on every rank. Costs from a mesh are the
//               same everywhere, so ranks need not agree on a plan.
// Collective    redistribute: all ranks of the mesh call it, with the same plan.
// Buffers       are contiguous boxes (TensorLayout::box), lent until the call returns; input and output
//               must not overlap.
// Failure       as the collectives fail; a rank that was lost is named with its coordinates.
// Bits          a partial sum is folded by the plan's steps: the same plan gives the same bits on all
//               ranks and in every run; another plan may fold in another order.
//
//   const auto plan = tutti::plan_redistribution(from, to, mesh->costs());
//   if (!plan.ok()) return plan.status();
//   return tutti::redistribute(*mesh, *plan, input, output);
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/buffer.hpp"
#include "tutti/tensor_layout.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

class Mesh;

struct RedistributionStep {
  enum class Kind : std::uint8_t {
    slice,           // each rank keeps a part of what it has
    all_gather,      // shards become whole
    reduce_scatter,  // partial becomes shard
    all_reduce,      // partial becomes replicate
    all_to_all,      // cut along another dimension
    transfer,        // each rank fetches what it lacks from one that has it
    make_partial,  // replicate becomes partial: one rank keeps the value, or all where op allows that
  };
  Kind kind = Kind::slice;
  std::vector<int> axes{};  // along which ranks exchange; slice, make_partial: that change
  TensorLayout after{};
  int ranks = 1;                 // that exchange with each other
  std::int64_t array_bytes = 0;  // of the collective's call, as nccl-tests count them
  std::int64_t rank_bytes = 0;   // that the busiest rank sends or receives at the least
  double seconds = 0;
};
std::string_view to_string(RedistributionStep::Kind kind) noexcept;

struct RedistributionChain {
  std::vector<RedistributionStep> steps;
  std::int64_t rank_bytes = 0;
  double seconds = 0;
};

struct RedistributionPlan {
  TensorLayout from, to;
  RedistributionChain chain;  // the cheapest
  RedistributionChain naive;  // axis by axis: gather, then slice
};

// What a step is priced by.
struct StepTraffic {
  RedistributionStep::Kind kind = RedistributionStep::Kind::transfer;
  std::vector<int> axes{};  // along which ranks exchange
  int ranks = 1;
  // Of the collective's call; of a transfer what the busiest rank sends or receives.
  double array_bytes = 0;
  // Of a transfer: what the busiest rank, and the busiest host, send to other hosts or receive.
  double away_bytes = 0;
  double host_bytes = 0;
};

// Of a transfer: the array of an all_to_all of so many ranks, some of which share each host, in which the
// busiest rank and host have as much to do.
double exchange_bytes(const StepTraffic& traffic, int ranks, int ranks_per_host);

struct RedistributionCosts {
  std::function<double(const StepTraffic& traffic)> seconds;
  std::vector<int> hosts{};  // of each position of the mesh; empty: all ranks share one

  // Every message takes alpha_s, every byte that a rank sends 1 / bytes_per_s.
  static RedistributionCosts uniform(double alpha_s, double bytes_per_s);
};

// invalid_argument: the layouts are not of one tensor on one mesh, or one of them cannot be.
Result<RedistributionPlan> plan_redistribution(const TensorLayout& from, const TensorLayout& to,
                                               const RedistributionCosts& costs);

// A table of the steps, with bytes and prices, and the naive chain's.
std::string describe(const RedistributionPlan& plan);
// Who holds what: a line for each rank, or a picture where two dimensions are cut.
std::string draw(const TensorLayout& layout);

// Runs the plan. `input` is this rank's box of plan.from, `output` its box of plan.to.
Status redistribute(Mesh& mesh, const RedistributionPlan& plan, ConstBuffer input, Buffer output);

}  // namespace v1
}  // namespace tutti
