#include "recompute.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "flags.hpp"
#include "range.hpp"

namespace pretrain {

void add_recompute(CLI::App& app, Flags& flags) {
  const char* group = "Memory";
  app.add_option(
         "--recompute-granularity", flags.recompute_granularity,
         "What backward computes once more, instead of keeping it: selective (scores and softmax of "
         "attention) or full (whole layers)")
      ->check(CLI::IsMember({kSelective, kFull}))
      ->group(group);
  app.add_option(
         "--recompute-method", flags.recompute_method,
         "Of full: uniform (all layers, in chunks of --recompute-num-layers) or block (so many "
         "layers of each stage)")
      ->check(CLI::IsMember({kUniform, kBlock}))
      ->group(group);
  app.add_option("--recompute-num-layers", flags.recompute_num_layers, "Of full")
      ->check(whole(0, 10000))
      ->group(group);
}

tutti::Status check_recompute(const Flags& flags) {
  const bool full = flags.recompute_granularity == kFull;
  if (full && flags.recompute_method.empty())
    return misfit("--recompute-granularity full needs --recompute-method uniform or block");
  if (full && flags.recompute_num_layers == 0)
    return misfit("--recompute-granularity full needs --recompute-num-layers of at least 1");
  if (!full && !flags.recompute_method.empty())
    return misfit(fmt::format("--recompute-method {} needs --recompute-granularity full",
                              flags.recompute_method));
  if (!full && flags.recompute_num_layers != 0)
    return misfit(fmt::format("--recompute-num-layers {} needs --recompute-granularity full",
                              flags.recompute_num_layers));
  if (flags.recompute_num_layers > flags.num_layers)
    return misfit(fmt::format("--recompute-num-layers {} is more than --num-layers {}",
                              flags.recompute_num_layers, flags.num_layers));
  return {};
}

std::vector<LayerChunk> chunks_of(const Flags& flags, int layers) {
  if (flags.recompute_granularity != kFull) return {{0, layers, false}};
  const bool uniform = flags.recompute_method == kUniform;
  const int again = uniform ? layers : std::min(flags.recompute_num_layers, layers);
  const int size = uniform ? flags.recompute_num_layers : 1;
  std::vector<LayerChunk> chunks;
  for (int first = 0; first < again; first += size)
    chunks.push_back({first, std::min(size, again - first), true});
  if (again < layers) chunks.push_back({again, layers - again, false});
  return chunks;
}

tutti::plan::RecomputeShape recompute_shape(const Flags& flags) {
  using Kind = tutti::plan::RecomputeShape::Kind;
  if (flags.recompute_granularity == kSelective) return {Kind::selective, 0};
  if (flags.recompute_granularity != kFull) return {};
  return {flags.recompute_method == kUniform ? Kind::uniform : Kind::block,
          flags.recompute_num_layers};
}

}  // namespace pretrain
