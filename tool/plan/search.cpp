// tutti plan search - which layout of a model on so many ranks is fastest, and what binds it.
#include "plan/search.hpp"

#include <fmt/format.h>

#include <memory>

#include "core/json.hpp"
#include "plan/units.hpp"
#include "tool/fitted_table.hpp"
#include "tool/numbers.hpp"
#include "tool/plan/model_flags.hpp"
#include "tool/plan/model_report.hpp"
#include "tool/plan/plan.hpp"

namespace tutti::tool::plan {
namespace {

constexpr const char* kSearchCommand = "plan search";
constexpr const char* kSearchFooter = R"(Examples:
  tutti plan search --preset llama2-70b --gpus 512 --cluster h100-ib400
  tutti plan search --preset gpt3-175b --gpus 1024 --global-batch 1536 --top 20 --json

All dp × tp × pp × cp × ZeRO × recompute × micro-batch × virtual stages that are sensible: tp within a
host, ZeRO-2 and 3 without a pipeline. Exit code 1: no layout fits into memory; 2: wrong flags.
)";

struct SearchRequest {
  ModelWords words;
  planner::SearchOptions options;
  std::int64_t top = 10;
  bool json = false;
  bool wide = false;
};

std::string counts_of(const std::map<std::string, std::int64_t>& counts) {
  std::string text;
  for (const auto& [what, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  return text;
}

std::string table(const planner::SearchResult& result, std::size_t width) {
  constexpr auto kSideLeft = TableColumn::Side::left;
  const FittedTable columns({{"rank", "", 4, 60, TableColumn::Side::right, ""},
                             {"dp", "", 5, 100},
                             {"tp", "", 4, 100},
                             {"pp", "", 4, 100},
                             {"cp", "", 4, 90},
                             {"v", "", 3, 50},
                             {"ZeRO", "", 5, 90},
                             {"recompute", "", 10, 55, kSideLeft},
                             {"micro", "", 6, 80},
                             {"step", "", 10, 100},
                             {"MFU", "", 7, 70},
                             {"tokens/s", "", 12, 10},
                             {"memory", "", 10, 65},
                             {"binds", "", 12, 20, kSideLeft, "  "}},
                            width);
  std::string text = columns.names() + "\n";
  int place = 0;
  for (const planner::Candidate& each : result.best) {
    const planner::ModelLayout& l = each.layout;
    const std::string cells[] = {std::to_string(++place),
                                 std::to_string(l.dp),
                                 std::to_string(l.tp),
                                 std::to_string(l.pp),
                                 std::to_string(l.cp),
                                 std::to_string(l.virtual_stages),
                                 std::to_string(l.zero),
                                 std::string(to_string(l.recompute)),
                                 std::to_string(l.micro_batch),
                                 planner::short_text(each.step_s, planner::Unit::seconds),
                                 fmt::format("{:.1f} %", each.mfu * 100),
                                 fmt::format("{:.0f}", each.tokens_per_s),
                                 planner::short_text(each.memory_bytes, planner::Unit::bytes),
                                 std::string(to_string(each.constraint))};
    text += columns.line(cells) + "\n";
  }
  if (const std::string left_out = columns.left_out(); !left_out.empty())
    text += fmt::format("(--wide adds: {})\n", left_out);
  return text;
}

std::string summary(const planner::SearchResult& result) {
  std::int64_t too_large = result.planned - result.fitting;
  std::string text = fmt::format("{} layouts: {} fit", result.planned, result.fitting);
  if (result.fitting > 0) text += fmt::format(" (bound by: {})", counts_of(result.constraints));
  text += fmt::format(", {} do not fit into memory", too_large);
  if (too_large > 0) text += fmt::format(" (most of it: {})", counts_of(result.too_large));
  if (!result.impossible.empty())
    text += fmt::format("; not possible: {}", counts_of(result.impossible));
  return text + "\n";
}

Json candidate_json(const planner::Candidate& each) {
  return {{"layout", layout_json(each.layout)},
          {"step_s", each.step_s},
          {"mfu", each.mfu},
          {"tokens_per_s", each.tokens_per_s},
          {"memory_bytes", each.memory_bytes},
          {"binds", to_string(each.constraint)}};
}

Json to_json(const planner::SearchResult& result, const planner::Model& model,
             const planner::Cluster& cluster, int ranks) {
  Json document = {{"version", 1},
                   {"model", model.name},
                   {"cluster", cluster.name},
                   {"ranks", ranks},
                   {"planned", result.planned},
                   {"fitting", result.fitting},
                   {"bound_by", result.constraints},
                   {"too_large_by", result.too_large},
                   {"impossible_by", result.impossible},
                   {"best", Json::array()}};
  for (const planner::Candidate& each : result.best)
    document["best"].push_back(candidate_json(each));
  return document;
}

// What to do with the winner, or what is missing where nothing fits.
std::string last_line(const planner::SearchResult& result, const planner::Model& model,
                      const planner::Cluster& cluster) {
  planner::Prices prices(cluster);
  const planner::Candidate& shown = result.best.empty() ? result.nearest : result.best.front();
  const auto plan = planner::plan_step(model, shown.layout, prices);
  const planner::ModelLayout& l = shown.layout;
  return fmt::format("{}: dp {} tp {} pp {} cp {} ZeRO {}: {}\n",
                     result.best.empty() ? "nothing fits; the smallest is" : "verdict on the first",
                     l.dp, l.tp, l.pp, l.cp, l.zero, planner::verdict(plan, cluster));
}

int search_answer(SearchRequest& state) {
  state.options.keep = static_cast<std::size_t>(state.top);
  if (Status status = read_precision(state.words, state.options.base); !status.ok())
    return complain(kSearchCommand, status);
  const auto model = read_model(state.words);
  if (!model.ok()) return complain(kSearchCommand, model.status());
  const auto cluster = read_cluster(state.words);
  if (!cluster.ok()) return complain(kSearchCommand, cluster.status());
  const auto result = planner::search_layouts(*model, *cluster, state.options);
  if (!result.ok()) return complain(kSearchCommand, result.status());
  const int code = result->best.empty() ? kFailed : kDone;
  if (state.json) {
    fmt::print("{}\n", to_json(*result, *model, *cluster, state.options.ranks).dump(2));
    return code;
  }
  const planner::ModelLayout& first =
      result->best.empty() ? result->nearest.layout : result->best.front().layout;
  fmt::print("{} on {} ranks of {}, {} sequences of {} tokens a step\n", model->name,
             state.options.ranks, cluster->name, first.global_batch, first.seq);
  if (!result->best.empty())
    fmt::print("{}", table(*result, state.wide ? kAnyWidth : window_width()));
  fmt::print("{}{}", summary(*result), last_line(*result, *model, *cluster));
  return code;
}

}  // namespace

Command make_search(CLI::App& plan) {
  auto state = std::make_shared<SearchRequest>();
  CLI::App* parser =
      plan.add_subcommand("search", "the fastest layouts of a model on so many ranks");
  add_model_flags(*parser, state->words);
  add_batch_flags(*parser, state->words, state->options.base);
  parser->add_option("--gpus,--ranks", state->options.ranks, "ranks to use, all of them")
      ->check(between(1, kMostParallel))
      ->required();
  parser
      ->add_option("--most-tp", state->options.most_tp, "largest tp (default: the ranks of a host)")
      ->check(between(1, kMostParallel));
  parser->add_option("--top", state->top, "layouts to show")
      ->check(between(1, 100'000))
      ->capture_default_str();
  parser->add_flag("--wide", state->wide, "all columns, however narrow the window");
  parser->add_flag("--json", state->json, "as JSON (docs/formats/plan_model.md)");
  parser->footer(kSearchFooter);
  return {parser, [state] { return search_answer(*state); }};
}

}  // namespace tutti::tool::plan
