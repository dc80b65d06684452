// tutti trace - what a job did, after it ran.
#include <CLI/CLI.hpp>

#include "tool/trace/trace.hpp"

namespace tutti::tool {

Command make_trace(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("trace", "see what a job did: merge, report, hang");
  parser->require_subcommand(1);
  parser->footer(
      "Example:\n"
      "  TUTTI_TRACE_DIR=d tutti run -n 4 ./my_program\n"
      "  tutti trace report d --html report.html\n");
  const std::vector<Command> questions = {trace::make_merge(*parser), trace::make_report(*parser),
                                          trace::make_hang(*parser)};
  return {parser, [questions] {
            for (const Command& question : questions)
              if (question.parser->parsed()) return question.action();
            return kBadInput;
          }};
}

}  // namespace tutti::tool
