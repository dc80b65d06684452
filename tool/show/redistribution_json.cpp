// A redistribution for programs, and for the page that draws it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tool/show/redistribution.hpp"
#include "tool/web_page.hpp"
#include "tutti/version.h"

namespace tutti::tool {
namespace {

Json words_of(const std::vector<AxisPlacement>& placements) {
  Json words = Json::array();
  for (const AxisPlacement& placement : placements) words.push_back(to_string(placement));
  return words;
}

Json layout_json(const TensorLayout& layout, bool drawn) {
  Json made = {{"placements", words_of(layout.placements)}};
  if (!layout.nesting.empty()) {
    Json names = Json::array();
    for (const int axis : layout.nesting)
      names.push_back(layout.axes[static_cast<std::size_t>(axis)].name);
    made["nesting"] = names;
  }
  if (!drawn) return made;
  Json boxes = Json::array();
  for (int position = 0; position < ranks_of(layout.axes); ++position) {
    const TensorBox box = layout.box(position);
    boxes.push_back({{"first", box.first}, {"shape", box.shape}});
  }
  made["boxes"] = boxes;
  return made;
}

Json chain_json(const RedistributionChain& chain, bool drawn) {
  Json steps = Json::array();
  for (const RedistributionStep& step : chain.steps) {
    Json along = Json::array();
    for (const int axis : step.axes)
      along.push_back(step.after.axes[static_cast<std::size_t>(axis)].name);
    steps.push_back({{"step", to_string(step.kind)},
                     {"along", along},
                     {"ranks", step.ranks},
                     {"array_bytes", step.array_bytes},
                     {"rank_bytes", step.rank_bytes},
                     {"seconds", step.seconds},
                     {"after", layout_json(step.after, drawn)}});
  }
  return {{"rank_bytes", chain.rank_bytes}, {"seconds", chain.seconds}, {"steps", steps}};
}

}  // namespace

Json to_json(const ShownRedistribution& shown, bool drawn) {
  const TensorLayout& from = shown.plan.from;
  Json axes = Json::array();
  for (const MeshAxis& axis : from.axes) axes.push_back({{"name", axis.name}, {"size", axis.size}});
  return {{"format", "tutti redistribution 1"},
          {"version", TUTTI_VERSION},
          {"mesh", axes},
          {"shape", from.shape},
          {"dtype", to_string(from.dtype)},
          {"cluster", shown.cluster},
          {"rank_at", shown.rank_at},
          {"hosts", shown.hosts},
          {"from", layout_json(from, drawn)},
          {"to", layout_json(shown.plan.to, drawn)},
          {"chain", chain_json(shown.plan.chain, drawn)},
          {"naive", chain_json(shown.plan.naive, drawn)}};
}

std::string make_page(const ShownRedistribution& shown) {
  return assemble({.skeleton = "redistribution.html",
                   .title = fmt::format("({}) to ({})", to_string(shown.plan.from.placements),
                                        to_string(shown.plan.to.placements)),
                   .styles = {"redistribution.css"},
                   .scripts = {"redistribution.js"},
                   .data = to_json(shown, true).dump()});
}

}  // namespace tutti::tool
