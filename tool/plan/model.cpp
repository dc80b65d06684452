// tutti plan model - what one step of a training job costs: memory, traffic, time, and what binds.
#include <fmt/format.h>

#include <memory>

#include "core/words.hpp"
#include "plan/verdict.hpp"
#include "tool/fitted_table.hpp"
#include "tool/numbers.hpp"
#include "tool/plan/model_flags.hpp"
#include "tool/plan/model_report.hpp"
#include "tool/plan/plan.hpp"

namespace tutti::tool::plan {
namespace {

constexpr const char* kModelCommand = "plan model";
constexpr const char* kModelFooter = R"(Examples:
  tutti plan model --preset llama2-70b --dp 8 --tp 8 --pp 4 --zero 1 --seq 4096 \
      --micro-batch 1 --global-batch 1024 --cluster h100-ib400
  tutti plan model --layers 24 --hidden 2048 --heads 16 --vocab 50257 --dp 8 --explain
  tutti plan model --preset llama3-8b --dp 64 --zero 3 --no-overlap-param-gather --json

docs/algorithms/model_arithmetic.md has the formulas; --explain prints them with their numbers.
Exit code 2: flags that contradict each other (one line names them).
)";

struct ModelRequest {
  ModelWords words;
  planner::ModelLayout layout;
  std::string recompute = "selective";
  bool whole_sequences = false;
  bool json = false;
  bool explain = false;
  bool wide = false;
};

void add_layout_flags(CLI::App& app, ModelRequest& state) {
  const char* group = "Layout";
  planner::ModelLayout& layout = state.layout;
  app.add_option("--dp", layout.dp, "data parallel replicas")
      ->check(between(1, kMostParallel))
      ->capture_default_str()
      ->group(group);
  app.add_option("--tp", layout.tp, "tensor parallel ranks")
      ->check(between(1, kMostParallel))
      ->capture_default_str()
      ->group(group);
  app.add_option("--pp", layout.pp, "pipeline stages")
      ->check(between(1, kMostParallel))
      ->capture_default_str()
      ->group(group);
  app.add_option("--cp", layout.cp, "context parallel ranks")
      ->check(between(1, kMostParallel))
      ->capture_default_str()
      ->group(group);
  app.add_option("--virtual-stages", layout.virtual_stages,
                 "pieces of the model on a pipeline rank")
      ->check(between(1, kMostParallel))
      ->capture_default_str()
      ->group(group);
  app.add_option("--zero", layout.zero, "1: optimizer sharded, 2: and gradients, 3: and weights")
      ->check(between(0, 3))
      ->capture_default_str()
      ->group(group);
  app.add_option("--recompute", state.recompute, "none, selective (the scores) or full")
      ->capture_default_str()
      ->group(group);
  app.add_flag("--no-sequence-parallel", state.whole_sequences,
               "tensor parallel with all_reduces: norms on whole sequences")
      ->group(group);
  app.add_option("--micro-batch", layout.micro_batch, "sequences computed at once")
      ->check(between(1, kMostBatch))
      ->capture_default_str()
      ->group(group);
}

Status understand(ModelRequest& state) {
  const auto recompute = planner::parse_recompute(state.recompute);
  if (!recompute) {
    const std::string_view known[] = {"none", "selective", "full"};
    return {Code::invalid_argument, unknown_word("recompute", state.recompute, known)};
  }
  state.layout.recompute = *recompute;
  state.layout.sequence_parallel = !state.whole_sequences;
  return read_precision(state.words, state.layout);
}

int model_answer(ModelRequest& state) {
  if (Status status = understand(state); !status.ok()) return complain(kModelCommand, status);
  const auto model = read_model(state.words);
  if (!model.ok()) return complain(kModelCommand, model.status());
  const auto cluster = read_cluster(state.words);
  if (!cluster.ok()) return complain(kModelCommand, cluster.status());
  const auto layout = planner::complete(state.layout, *model, *cluster);
  if (!layout.ok()) return complain(kModelCommand, layout.status());
  planner::Prices prices(*cluster);
  ModelAnswer answer;
  answer.plan = planner::plan_step(*model, *layout, prices);
  answer.gain = planner::gather_gain(answer.plan, prices);
  answer.cluster = cluster->name;
  answer.binds = planner::to_string(planner::binding_constraint(answer.plan));
  answer.verdict = planner::verdict(answer.plan, *cluster);
  const auto sections = planner::explain(answer.plan, prices);
  if (state.json) {
    auto document = model_json(answer);
    if (state.explain)
      for (const auto& section : sections)
        for (const auto& term : section.terms)
          document["explain"][section.title].push_back({{"term", term.name},
                                                        {"formula", term.formula},
                                                        {"numbers", term.numbers},
                                                        {"result", term.result}});
    fmt::print("{}\n", document.dump(2));
    return kDone;
  }
  fmt::print("{}", model_text(answer, state.wide ? kAnyWidth : window_width()));
  if (state.explain) fmt::print("{}", explain_text(sections));
  return kDone;
}

}  // namespace

Command make_model(CLI::App& plan) {
  auto state = std::make_shared<ModelRequest>();
  CLI::App* parser =
      plan.add_subcommand("model", "memory, traffic, step time and MFU of a model on a cluster");
  add_model_flags(*parser, state->words);
  add_layout_flags(*parser, *state);
  add_batch_flags(*parser, state->words, state->layout);
  parser->add_flag("--explain", state->explain, "every term with its formula and numbers");
  parser->add_flag("--wide", state->wide, "all columns, however narrow the window");
  parser->add_flag("--json", state->json, "as JSON (docs/formats/plan_model.md)");
  parser->footer(kModelFooter);
  return {parser, [state] { return model_answer(*state); }};
}

}  // namespace tutti::tool::plan
