// tool/command.hpp - what the subcommands of `tutti` have in common.
//
// Exit codes: 0 done, 1 it failed, 2 the command line or the environment is wrong (one line on
// stderr names the culprit). `tutti run` ends with its ranks' code instead.
#pragma once

#include <signal.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace CLI {
class App;
}

namespace tutti::tool {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kBadInput = 2;
// As if its signal had ended it: a reader of its output that went away is no failure to talk about.
inline constexpr int kReaderGone = 128 + SIGPIPE;

struct Command {
  CLI::App* parser = nullptr;
  std::function<int()> action;  // after a successful parse; returns the exit code
};

// `words_after_mark` are what followed "--" on the command line, the mark included.
Command make_run(CLI::App& app, std::vector<std::string> words_after_mark);
Command make_show(CLI::App& app);
Command make_info(CLI::App& app);
Command make_doctor(CLI::App& app);
Command make_plan(CLI::App& app);
Command make_trace(CLI::App& app);
Command make_switch(CLI::App& app);
Command make_data(CLI::App& app);
// `words` is the whole command line: the benchmark starts its ranks with it.
Command make_bench(CLI::App& app, std::vector<std::string> words);

// "tutti show: there is no …" on stderr; returns `code`.
int complain(std::string_view command, std::string_view message, int code);
// The same, with the code that fits: 2 for the caller's mistake, 1 otherwise.
int complain(std::string_view command, const Status& status);

// Before the work: whether what `flag` names can be written. An empty path was not said.
Status check_output(std::string_view flag, const std::string& path);
// After it: what was printed has to be out, or the command has failed. Returns the exit code.
int finish_output(int code);

}  // namespace tutti::tool
