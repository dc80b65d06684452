// tutti - one command for people who run, look at and diagnose collective jobs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>

#include "tool/command.hpp"
#include "tutti/config.hpp"
#include "tutti/version.h"

namespace tutti::tool {

namespace {

std::string names_of(const std::vector<const CLI::App*>& commands) {
  std::string names;
  for (const CLI::App* command : commands) names += " " + command->get_name();
  return names;
}

// Those that are listed to people.
std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

// CLI11 reports an unknown subcommand as a missing one, and words in reverse. So the words are
// followed as far as they lead, and who stands there is complained about.
int complain_about_words(const CLI::App& app, const std::vector<std::string>& words,
                         const CLI::ParseError& error) {
  const CLI::App* reached = &app;
  std::string name;  // " plan model"
  auto next = words.begin();
  for (; next != words.end(); ++next) {
    const auto commands = commands_of(*reached);
    const auto named = std::find_if(commands.begin(), commands.end(), [&](const CLI::App* command) {
      return command->get_name() == *next;
    });
    if (named == commands.end()) break;
    reached = *named;
    name += " " + *next;
  }
  std::string text = error.what();
  text.resize(std::min(text.find('\n'), text.size()));
  const auto commands = commands_of(*reached);
  if (!commands.empty() && reached->get_require_subcommand_min() > 0)
    text = next == words.end() ? fmt::format("say what to do:{}", names_of(commands))
                               : fmt::format("there is no command or flag '{}'; there are:{}",
                                             *next, names_of(commands));
  fmt::print(stderr, "tutti{}: {} (see tutti{} --help)\n", name, text, name);
  return kBadInput;
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
                                         make_doctor(app),
                                         make_bench(app, words),
                                         make_plan(app),
                                         make_trace(app),
                                         make_switch(app),
                                         make_data(app)};
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& request) {
    return app.exit(request);  // --help and --version
  } catch (const CLI::ParseError& error) {
    return complain_about_words(app, words, error);
  }
  (void)Config::from_environment();  // a misspelt variable is told here, once, for every command
  for (const Command& command : commands)
    if (command.parser->parsed()) return command.action();
  return kBadInput;
}

}  // namespace
}  // namespace tutti::tool

int main(int count, char** arguments) {
  using namespace tutti::tool;
  // A shell makes what it starts in the background deaf to it, and so its ranks; whoever sends one to
  // this process means it.
  std::signal(SIGINT, SIG_DFL);
  try {
    return finish_output(run_tool(count, arguments));
  } catch (const std::exception& error) {
    // fmt::print throws where standard output cannot be written: finish_output() tells of that.
    if (std::ferror(stdout) == 0) fmt::print(stderr, "tutti: {}\n", error.what());
  }
  return finish_output(kFailed);
}
