// tutti trace - what a job did, after it ran.
#include <CLI/CLI.hpp>

#include "tool/trace/trace.hpp"

namespace tutti::tool {

Command make_trace(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("trace", "see what a job did: merge, report, hang");
  parser->require_subcommand(1);
  std::vector<Command> questions;
  return {parser, [questions] {
            for (const Command& question : questions)
              if (question.parser->parsed()) return question.action();
            return kBadInput;
          }};
}

}  // namespace tutti::tool
