// tutti trace hang - after a failure: who diverged first, from what to what.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "core/json.hpp"
#include "tool/trace/divergence.hpp"
#include "tool/trace/trace.hpp"

namespace tutti::tool::trace {
namespace {

constexpr const char* kHangCommand = "trace hang";

struct HangOptions {
  std::string folder;
  bool json = false;
};

Json last_of(const Flight& flight) {
  Json last = Json::array();
  for (const auto& [channel, group] : flight.groups) {
    if (group.calls.empty()) continue;
    const auto& [sequence, call] = *group.calls.rbegin();
    last.push_back({{"group", group.name},
                    {"sequence", sequence},
                    {"collective", call.collective},
                    {"bytes", call.bytes},
                    {"finished", call.finished}});
  }
  return last;
}

std::string json_of(const Flights& flights, const Divergence& found) {
  Json ranks = Json::array();
  for (const Flight& flight : flights.ranks)
    ranks.push_back({{"rank", flight.rank},
                     {"dump", flight.has_dump},
                     {"trace", flight.has_trace},
                     {"reason", flight.reason},
                     {"lost", flight.lost},
                     {"last", last_of(flight)}});
  return Json{{"verdict", to_string(found.kind)},
              {"diverged", found.ranks},
              {"others", found.others},
              {"group", found.group},
              {"sequence", found.sequence},
              {"from", found.from},
              {"to", found.to},
              {"text", found.text},
              {"remarks", flights.remarks},
              {"ranks", ranks}}
      .dump();
}

int hang(const HangOptions& options) {
  auto flights = read_flights(options.folder);
  if (!flights.ok()) return complain(kHangCommand, flights.status());
  const Divergence found = find_divergence(*flights);
  if (options.json) {
    fmt::print("{}\n", json_of(*flights, found));
    return kDone;
  }
  for (const std::string& remark : flights->remarks)
    fmt::print(stderr, "tutti {}: {}\n", kHangCommand, remark);
  fmt::print("{}\n", found.text);
  return kDone;
}

}  // namespace

Command make_hang(CLI::App& trace) {
  CLI::App* parser =
      trace.add_subcommand("hang", "after a failure: which rank diverged first, from what to what");
  auto options = std::make_shared<HangOptions>();
  parser->add_option("folder", options->folder, "what TUTTI_DUMP_DIR or TUTTI_TRACE_DIR was")
      ->required();
  parser->add_flag("--json", options->json,
                   "print the verdict and every rank's last calls as JSON");
  parser->footer(
      "Ranks write their dumps when a group fails; a rank that merely hangs does on "
      "SIGUSR1.\nExample:\n  TUTTI_TRACE_DIR=d tutti run -n 4 ./my_program\n"
      "  tutti trace hang d\n");
  return {parser, [options] { return hang(*options); }};
}

}  // namespace tutti::tool::trace
