// The page of `tutti show --html`: web/show.html with style, script and data in it.

#include <fmt/format.h>

#include <set>

#include "core/json.hpp"
#include "tool/show/page_schedules.hpp"
#include "tool/show/predictions.hpp"
#include "tool/show/show.hpp"
#include "tool/web_page.hpp"
#include "tutti/version.h"

namespace tutti::tool {
namespace {

constexpr int kAlwaysDrawn = 16;  // groups of 2 … 16 are in every page
constexpr int kAllPasses = 8;     // up to here also as built: two megabytes are enough

// Sizes that the page offers: the small ones, and the one that was asked for.
std::set<int> sizes_for(int asked) {
  std::set<int> sizes{asked};
  for (int n = 2; n <= kAlwaysDrawn; ++n) sizes.insert(n);
  return sizes;
}

}  // namespace

Result<std::string> make_page(const ShownCall& call) {
  const schedule::Request& request = call.request;
  // What was asked for must exist; the rest may.
  if (const auto asked = message_forms(call.algorithm, request); !asked.ok()) return asked.status();

  const bool on_hosts = call.placement() == "hosts";
  std::string schedules;
  Json predictions = Json::object();
  for (const int n : sizes_for(request.size)) {
    const std::vector<int> host_of =
        on_hosts && n == request.size ? call.host_of : default_hosts(n);
    PageRequest page{request, host_of, n <= kAllPasses || (n == request.size && n <= kAlwaysDrawn),
                     call.machine};
    page.request.size = n;
    page.request.host_of = {};
    if (page.request.root >= n) page.request.root = 0;
    if (Status status = add_schedules(page, schedules); !status.ok()) return status;
    predictions[std::to_string(n)] = predict(request, n, host_of, call.machine);
  }
  Json head = {{"format", "tutti page 2"},
               {"version", TUTTI_VERSION},
               {"collective", to_string(request.collective)},
               {"reduces", has_reduction(request.collective)},
               {"order", to_string(request.order)},
               {"start",
                {{"algorithm", to_string(call.algorithm)},
                 {"size", request.size},
                 {"placement", call.placement()},
                 {"memory", call.memory == CallMemory::symmetric ? "symmetric" : "ordinary"},
                 {"bytes", call.bytes}}},
               {"machine", machine_facts(call.machine)},
               {"sizes", prediction_sizes()},
               {"predictions", predictions}};
  std::string data = head.dump();
  data.back() = ',';
  return assemble({.skeleton = "show.html",
                   .title = fmt::format("{} by {} on {} ranks", to_string(request.collective),
                                        to_string(call.algorithm), request.size),
                   .styles = {"show.css"},
                   .scripts = {"show/run.js", "show/host_run.js", "show/words.js", "show/stage.js",
                               "show/cost.js", "show/page.js"},
                   .data = data + "\"schedules\":[" + schedules + "]}"});
}

}  // namespace tutti::tool
