// tool/show/redistribution.hpp - `tutti show redistribute`: the cheapest chain of steps from one layout of
// a tensor to another on a described cluster, beside the one that goes axis by axis.
#pragma once

#include <string>
#include <vector>

#include "core/json.hpp"
#include "plan/prices.hpp"
#include "tutti/redistribution.hpp"

namespace tutti::tool {

struct RedistributionOptions {
  std::string mesh;   // "dp=2,tp=4"
  std::string shape;  // "1024x4096"
  std::string dtype = "f32";
  std::string from, to;  // "shard(0),replicate"
  std::string cluster = "h100-ib400";
  int hosts = 0;  // 0: as many as the cluster's take
  bool json = false;
  std::string html;
};
int show_redistribution(const RedistributionOptions& options);

// What is shown: a plan, and where its ranks sit.
struct ShownRedistribution {
  RedistributionPlan plan;
  std::string cluster;
  std::vector<int> rank_at;  // by position of the mesh
  std::vector<int> hosts;    // likewise
};
// docs/formats/redistribution.md; of `drawn` every rank's box is told, too.
Json to_json(const ShownRedistribution& shown, bool drawn);
std::string make_page(const ShownRedistribution& shown);

// Prices of a described cluster, whose hosts have `ranks_per_host`. `prices` is lent.
RedistributionCosts cluster_costs(tutti::plan::Prices& prices, const MeshAxes& axes,
                                  const std::vector<int>& rank_at);

}  // namespace tutti::tool
