// tool/plan/model_flags.hpp - the flags by which `plan model` and `plan search` are told of a model
// and of its batches.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "plan/model_layout.hpp"

namespace tutti::tool::plan {

namespace planner = tutti::plan;

inline constexpr std::int64_t kMostParallel = 10'000'000;  // all kinds together; plan/model_layout
inline constexpr std::int64_t kMostBatch = 1 << 30;

struct ModelWords {
  std::string preset;
  planner::Model shape;  // 0: not said
  bool glu = false, tied = false, bias = false, dropout = false;
  std::string precision = "bf16";
  std::string bucket_bytes;
  bool rank_ordered = false;  // gradients
  std::string cluster = "h100-ib400";
  double efficiency = 0;  // 0: the cluster's
};

void add_model_flags(CLI::App& app, ModelWords& words);
// Sequence, batch, precision, overlaps.
void add_batch_flags(CLI::App& app, ModelWords& words, planner::ModelLayout& layout);

// The preset, changed by what was said besides, or a model of one's own.
Result<planner::Model> read_model(const ModelWords& words);
// With the efficiency that was said.
Result<planner::Cluster> read_cluster(const ModelWords& words);
// Fills the layout's precision, bucket size and order of gradients.
Status read_precision(const ModelWords& words, planner::ModelLayout& layout);

}  // namespace tutti::tool::plan
