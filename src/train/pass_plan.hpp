// train/pass_plan.hpp - which weights are gathered when, where they are kept in shards alone.
//
// Found in the first micro-batch, and from then on the same on all ranks, whatever one of them uses: gathers
// are collective.
//
//   forward                                  backward
//   embedding  block 0  block 1  block 2     block 2   block 1  block 0  embedding      one gather each
//                                            (kept)                                     but this
//
// One whose bucket is used again within `depth` gathers stays in memory for that. What the first
// micro-batch did not use is gathered between the passes, twice, for ranks that may: behind forward, and before
// backward, where nobody can have to wait for a rank that waits for it.
//
// Pure: same input, same plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/bucket_layout.hpp"

namespace tutti::train {

// That a parameter is needed, or no longer.
struct WeightUse {
  std::size_t parameter = 0;
  bool begins = true;
  bool in_backward = false;
  std::int64_t ns = 0;  // when, without the time in which compute waited for weights
};

struct PassPlan {
  std::vector<std::size_t> buckets;  // in the order of gathers
  std::vector<bool> is_kept;         // has the memory of its bucket's gather before
  std::size_t backward = 0;          // the first one of backward
  std::size_t used_backward = 0;     // … that the first micro-batch used
  std::size_t depth = 1;             // how many gathers are under way beyond what is in use
  std::size_t bytes_at_once = 0;     // of weights, where each rank uses them as they were found
};
PassPlan make_pass_plan(const BucketLayout& layout, std::span<const WeightUse> uses,
                        std::size_t depth);

// Between the starts of two uses there is this much compute, and a gather takes so long.
struct PacedGather {
  double compute_s = 0;
  double gather_s = 0;
};
// What compute waits for weights when each gather starts `depth` uses ahead, one after the other.
double exposed_s(std::span<const PacedGather> gathers, std::size_t depth);
// The smallest depth that hides nearly as much as any up to `most`.
std::size_t choose_depth(std::span<const PacedGather> gathers, std::size_t most);

}  // namespace tutti::train
