// tutti - one command for people who run, look at and diagnose collective jobs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "tool/command.hpp"
#include "tutti/version.h"

namespace tutti::tool {

namespace {

// CLI11 reports an unknown subcommand as a missing one, and words in reverse.
int complain_about_words(const CLI::App& app, const std::vector<std::string>& words,
                         const CLI::ParseError& error) {
  std::string known;
  for (const CLI::App* command : app.get_subcommands({}))
    known.append(" ").append(command->get_name());
  if (words.empty()) {
    fmt::print(stderr, "tutti: say what to do:{}; see tutti --help\n", known);
    return kBadInput;
  }
  const auto names = app.get_subcommands({});
  const bool is_command = std::any_of(names.begin(), names.end(), [&](const CLI::App* command) {
    return command->get_name() == words.front();
  });
  if (!is_command) {
    fmt::print(stderr, "tutti: there is no command or flag '{}'; there are:{}\n", words.front(),
               known);
    return kBadInput;
  }
  std::string text = error.what();
  if (const std::size_t end = text.find('\n'); end != std::string::npos) text.resize(end);
  return complain(words.front(), fmt::format("{} (see tutti {} --help)", text, words.front()),
                  kBadInput);
}

int run_tool(int count, char** arguments) {
  std::vector<std::string> words(arguments + 1, arguments + count);
  std::vector<std::string> after_mark;
  // CLI11 has its own idea of "--"; what follows it belongs to the started program.
  if (!words.empty() && words.front() == "run") {
    const auto mark = std::find(words.begin(), words.end(), "--");
    after_mark.assign(mark, words.end());
    words.erase(mark, words.end());
  }

  CLI::App app("Collective communication: start ranks, look at schedules, see what is there.");
  app.name("tutti");
  app.set_version_flag("--version", "tutti " TUTTI_VERSION, "print the version");
  app.require_subcommand(1);
  app.footer("Example:\n  tutti run -n 4 ./my_program\n");
  const std::vector<Command> commands = {make_run(app, std::move(after_mark)),
                                         make_show(app),
                                         make_info(app),
                                         make_bench(app, words),
                                         make_plan(app),
                                         make_trace(app)};
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& request) {
    return app.exit(request);  // --help and --version
  } catch (const CLI::ParseError& error) {
    return complain_about_words(app, words, error);
  }
  for (const Command& command : commands)
    if (command.parser->parsed()) return command.action();
  return kBadInput;
}

}  // namespace
}  // namespace tutti::tool

int main(int count, char** arguments) {
  try {
    return tutti::tool::run_tool(count, arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "tutti: {}\n", error.what());
    return tutti::tool::kFailed;
  }
}
