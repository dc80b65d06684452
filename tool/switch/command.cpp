// tutti switch - folds what a job's ranks send, and returns the result to each.
#include "tool/command.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>

#include "core/clock.hpp"
#include "core/json.hpp"
#include "tool/interruption.hpp"
#include "tool/numbers.hpp"
#include "tutti/switch.hpp"

namespace tutti::tool {
namespace {

constexpr const char* kSwitchFooter = R"(Examples:
  tutti run -n 4 --switch ./my_program                   starts one beside the ranks
  TUTTI_SECRET_FILE=secret tutti switch -n 4 --store host0:29500
                                                         on a host with a fat link; the ranks have
                                                         TUTTI_SWITCH=1, and meet at host0:29500

It joins one job as a rank behind the last, serves until the ranks have gone, and ends with 0.
Where its link is n times as wide as a rank's, a long all_reduce gains up to 2(n-1)/n over a ring
(docs/algorithms/in_network.md). If it is lost, the ranks say so and go on without it.
)";

struct Words {
  int ranks = 0;
  std::string store;
  std::string group = "world";
  bool json = false;
};

int serve(const Words& words) {
  // Where the job's own variables are read from.
  if (words.ranks > 0) ::setenv("TUTTI_SIZE", std::to_string(words.ranks).c_str(), 1);
  if (std::getenv("TUTTI_SIZE") == nullptr)
    return complain("switch", "say how many ranks the job has: -n 4, or TUTTI_SIZE", kBadInput);
  if (!words.store.empty()) ::setenv("TUTTI_STORE", words.store.c_str(), 1);
  if (std::getenv("TUTTI_STORE") == nullptr && std::getenv("TUTTI_RENDEZVOUS") == nullptr)
    return complain(
        "switch",
        "say where the job's ranks meet: --store HOST:PORT, TUTTI_STORE or TUTTI_RENDEZVOUS",
        kBadInput);
  catch_interruptions();
  SwitchOptions options;
  options.name = words.group;
  options.stop = [] { return interruption() != 0; };
  const Nanoseconds start = steady_clock().now();
  const Status status = run_switch_from_environment(std::move(options));
  if (!status.ok()) return complain("switch", status);
  const bool stopped = interruption() != 0;
  const double seconds = in_seconds(steady_clock().now() - start);
  if (words.json)
    fmt::print("{}\n", Json{{"seconds", seconds}, {"ranks_have_gone", !stopped}}.dump(1));
  return stopped ? 128 + interruption() : kDone;
}

}  // namespace

Command make_switch(CLI::App& app) {
  auto words = std::make_shared<Words>();
  CLI::App* parser = app.add_subcommand(
      "switch", "fold what a job's ranks send, as a process on a host with a fat link");
  parser->add_option("-n,--ranks", words->ranks, "ranks of the job (default: TUTTI_SIZE)")
      ->check(between(2, 1000));
  parser
      ->add_option("--store", words->store,
                   "HOST:PORT where its ranks meet (default: TUTTI_STORE or TUTTI_RENDEZVOUS)")
      ->type_name("HOST:PORT");
  parser->add_option("--group", words->group, "name of the group that the ranks create")
      ->capture_default_str();
  parser->add_flag("--json", words->json, "say as JSON how long it served and why it ended");
  parser->footer(kSwitchFooter);
  return {parser, [words] { return serve(*words); }};
}

}  // namespace tutti::tool
