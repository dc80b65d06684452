// tool/bench/compare.hpp - `tutti bench compare`: all libraries by one protocol, run by run.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace tutti::tool {

// Adds the subcommand to `bench`; the action returns the exit code.
struct CompareCommand {
  CLI::App* parser = nullptr;
  std::function<int()> action;
};
CompareCommand make_compare(CLI::App& bench);

}  // namespace tutti::tool
