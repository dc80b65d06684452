// tutti trace merge - all ranks of a job in one file for Perfetto.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "core/json.hpp"
#include "tool/trace/chrome.hpp"
#include "tool/trace/output.hpp"
#include "tool/trace/trace.hpp"
#include "tool/trace/words.hpp"

namespace tutti::tool::trace {
namespace {

constexpr const char* kMergeCommand = "trace merge";

struct MergeOptions {
  std::string folder;
  std::string output;
  std::string job;
  bool json = false;
};

int merge(const MergeOptions& options) {
  if (Status status = check_output("-o", options.output); !status.ok())
    return complain(kMergeCommand, status);
  tutti::Result<tutti::trace::TracedRun> run = Status(Code::internal, "not run");
  {
    Progress reading("reading trace");
    run = tutti::trace::load_run(options.folder, options.job,
                                 [&](std::size_t done, std::size_t all) { reading.at(done, all); });
  }
  if (!run.ok()) return complain(kMergeCommand, run.status());
  auto output = Output::open(options.output);
  if (!output.ok()) return complain(kMergeCommand, output.status());
  ChromeCounts counts;
  {
    Progress writing("writing rank");
    counts = write_chrome(
        *run, [&](std::string_view text) { (*output)->write(text); },
        [&](std::size_t done, std::size_t all) { writing.at(done, all); });
  }
  if (Status status = (*output)->finish(); !status.ok()) return complain(kMergeCommand, status);
  for (const std::string& remark : remarks_on(*run))
    fmt::print(stderr, "tutti {}: {}\n", kMergeCommand, remark);
  if (options.json) {
    fmt::print("{}\n", Json{{"output", options.output},
                            {"job", run->job},
                            {"ranks", run->ranks.size()},
                            {"missing_ranks", run->missing},
                            {"lanes", counts.lanes},
                            {"slices", counts.slices},
                            {"flows", counts.flows},
                            {"seconds", seconds_of(*run)}}
                           .dump());
  } else {
    fmt::print(
        "{}: {} ranks, {:.3f} s, {} slices in {} lanes, {} collectives joined; open it at "
        "ui.perfetto.dev\n",
        options.output, run->ranks.size(), seconds_of(*run), counts.slices, counts.lanes,
        counts.flows);
  }
  return kDone;
}

}  // namespace

Command make_merge(CLI::App& trace) {
  CLI::App* parser = trace.add_subcommand("merge", "all ranks in one file for Perfetto");
  auto options = std::make_shared<MergeOptions>();
  parser->add_option("folder", options->folder, "what TUTTI_TRACE_DIR was")->required();
  parser->add_option("-o,--output", options->output, "file to write; gzipped if it ends in .gz")
      ->required();
  parser->add_option("--job", options->job, "which job, if the folder holds several");
  parser->add_flag("--json", options->json, "print what was written as JSON");
  parser->footer(
      "Example:\n  TUTTI_TRACE_DIR=d tutti run -n 4 ./my_program\n"
      "  tutti trace merge d -o run.json.gz\n");
  return {parser, [options] { return merge(*options); }};
}

}  // namespace tutti::tool::trace
