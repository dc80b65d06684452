// tutti plan - what a job will cost, before it runs.
#include <CLI/CLI.hpp>

#include "tool/plan/plan.hpp"

namespace tutti::tool {

Command make_plan(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("plan", "say beforehand what a job will cost");
  parser->require_subcommand(1);
  parser->footer(
      "Examples:\n"
      "  tutti plan model --preset llama2-70b --dp 8 --tp 8 --pp 4 --cluster h100-ib400\n"
      "  tutti plan collective all_reduce --ranks 24576 --bytes 8 --cluster summit\n");
  std::vector<Command> questions = {plan::make_model(*parser),      plan::make_search(*parser),
                                    plan::make_collective(*parser), plan::make_calibrate(*parser),
                                    plan::make_validate(*parser),   plan::make_measure(*parser)};
  return {parser, [questions] {
            for (const Command& question : questions)
              if (question.parser->parsed()) return question.action();
            return kBadInput;
          }};
}

}  // namespace tutti::tool
