// tutti show - a schedule as text, as a page or as a drawing, after it was proved right.
#include "tool/command.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "core/output_file.hpp"
#include "tool/numbers.hpp"
#include "tool/show/job_view.hpp"
#include "tool/show/pipeline_view.hpp"
#include "tool/show/redistribution.hpp"
#include "tool/show/show.hpp"

namespace tutti::tool {
namespace {

constexpr const char* kShowFooter = R"(Examples:
  tutti show all_reduce                       # which algorithms there are, and what they cost
  tutti show all_reduce -n 4                  # what 4 ranks of one host run for 1 MiB
  tutti show all_reduce -n 4 --bytes 64       # ... and for 64 bytes
  tutti show all_reduce --hosts 2x2           # what runs on two hosts of two ranks each
  tutti show all_reduce -n 4 --form message   # what ranks on different hosts run, pass by pass
  tutti show all_reduce -n 4 --form host --memory symmetric --svg host.svg
  tutti show broadcast --algorithm binomial_tree -n 6 --root 2 --json
  tutti show all_reduce --algorithm double_binary_tree -n 8 --html trees.html   # animated
  tutti show pipeline --schedule 1f1b --stages 4 --micro-batches 8              # who computes what when
)";

constexpr const char* kJobFooter = R"(Examples:
  tutti show job                  # the running job, every second; Ctrl-C leaves, the job goes on
  tutti show job --once --json

Ranks of this host's launcher only; on several hosts, look on each.
)";

constexpr const char* kRedistributeFooter = R"(Examples:
  tutti show redistribute --mesh dp=2,tp=4 --shape 1024x4096 --dtype bf16 \
      --from 'shard(0),replicate' --to 'replicate,shard(1)'
  tutti show redistribute --mesh dp=2,tp=4 --shape 1024x4096 --from 'partial,shard(0)' \
      --to 'shard(0),shard(0)' --hosts 2 --html page.html

A placement for each axis: shard(DIMENSION), replicate or partial(OP).
Who stands where: the chattiest axis inside of a host, tp > cp > ep > dp > pp.
)";

Status check_outputs(const ShowOptions& options, int ranks) {
  const int outputs = (options.html.empty() ? 0 : 1) + (options.svg.empty() ? 0 : 1) +
                      (options.json ? 1 : 0) + (options.text ? 1 : 0);
  if (outputs > 1)
    return {Code::invalid_argument, "--html, --svg, --text and --json exclude each other"};
  const bool drawn = !options.html.empty() || !options.svg.empty();
  if (drawn && ranks > kMostRanksDrawn)
    return {Code::invalid_argument,
            fmt::format("-n {} is more than can be drawn ({} ranks); --text and --json go up to {}",
                        ranks, kMostRanksDrawn, kMostRanksShown)};
  if (Status status = check_output("--html", options.html); !status.ok()) return status;
  return check_output("--svg", options.svg);
}

int write(const std::string& path, const std::string& text) {
  if (Status status = write_file(path, text); !status.ok()) return complain("show", status);
  if (path != "/dev/stdout") fmt::print("wrote {} ({} KiB)\n", path, (text.size() + 1023) / 1024);
  return kDone;
}

// What there is to say about the call, and in which way.
Result<std::string> answer(const ShowOptions& options, const ShownCall& call) {
  if (options.list || options.is_bare()) return print_list(call, options.json);
  if (!options.html.empty()) return make_page(call);
  if (!options.svg.empty()) return make_svg(call);
  if (call.host) return print_host_form(call, options.json, options.all);
  return print_message_form(call, options.json);
}

// A list is about all algorithms in all forms.
Status check_list(const ShowOptions& options) {
  const std::pair<const char*, bool> others[] = {
      {"--algorithm", !options.algorithm.empty()}, {"--form", !options.form.empty()},
      {"--memory", !options.memory.empty()},       {"--all", options.all},
      {"--html", !options.html.empty()},           {"--svg", !options.svg.empty()}};
  for (const auto& [name, is_there] : others)
    if (options.list && is_there)
      return {Code::invalid_argument, fmt::format("--list and {} exclude each other", name)};
  return {};
}

// What older versions had.
Status check_gone(const ShowOptions& options) {
  if (options.fused)
    return {Code::invalid_argument,
            "--fused is gone: --form message shows a schedule before and after fuse_folds"};
  if (!options.shots.empty())
    return {Code::invalid_argument,
            "--shots is gone: what runs follows from the size of the call, so say --bytes SIZE"};
  return {};
}

int show(const ShowOptions& options) {
  for (auto check : {check_gone, check_list})
    if (Status status = check(options); !status.ok()) return complain("show", status);
  if (options.collective.empty())
    return complain(
        "show", "say what to show: a collective, such as all_reduce, pipeline, redistribute or job",
        kBadInput);
  const auto call = read_call(options);
  if (!call.ok()) return complain("show", call.status());
  if (Status status = check_outputs(options, call->request.size); !status.ok())
    return complain("show", status);
  const auto text = answer(options, *call);
  if (!text.ok()) return complain("show", text.status());
  const std::string& path = options.html.empty() ? options.svg : options.html;
  if (!path.empty()) return write(path, *text);
  fmt::print("{}", *text);
  return kDone;
}

CLI::App* add_job_parser(CLI::App& show_parser, JobViewOptions& options) {
  CLI::App* parser = show_parser.add_subcommand(
      "job", "live view of a job started by tutti run: who does what, who waits for whom");
  parser->add_option("job", options.job,
                     "its name, the beginning of it, or the launcher's pid; none: the only one");
  parser->add_option("--interval", options.interval, "seconds between two looks (default 1)");
  parser->add_flag("--once", options.once, "look once and end");
  parser->add_flag("--wide", options.wide, "all columns, however narrow the window");
  parser->add_flag("--json", options.json, "one JSON object a line for every look");
  parser->footer(kJobFooter);
  return parser;
}

CLI::App* add_redistribute_parser(CLI::App& show_parser, RedistributionOptions& options) {
  CLI::App* parser = show_parser.add_subcommand(
      "redistribute", "the cheapest way of a tensor from one layout on a mesh to another");
  parser->add_option("--mesh", options.mesh, "its axes: dp=2,tp=4")->required();
  parser->add_option("--shape", options.shape, "of the whole tensor: 1024x4096")->required();
  parser->add_option("--dtype", options.dtype, "of its elements")->capture_default_str();
  parser->add_option("--from", options.from, "placements: 'shard(0),replicate'")->required();
  parser->add_option("--to", options.to, "placements: 'replicate,shard(1)'")->required();
  parser
      ->add_option("--cluster", options.cluster,
                   "whose prices: a preset's name, or a file (docs/formats/cluster.md)")
      ->capture_default_str();
  parser->add_option("--hosts", options.hosts, "on how many hosts (default: as the cluster's are)")
      ->check(between(1, kMostRanksShown));
  parser->add_option("--html", options.html, "write a page that draws every step into this file");
  parser->add_flag("--json", options.json, "as JSON (docs/formats/redistribution.md)");
  parser->footer(kRedistributeFooter);
  return parser;
}

}  // namespace

Command make_show(CLI::App& app) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* show_parser = app.add_subcommand(
      "show",
      "a schedule, verified: as text, page or drawing; a pipeline; a redistribution; a running job");
  show_parser->add_option("collective", options->collective, "all_reduce, broadcast, …");
  show_parser->add_option("-a,--algorithm", options->algorithm,
                          "ring, direct, … (default: what the tuner takes)");
  show_parser->add_option("-n,--ranks", options->ranks, "number of ranks (default 4)")
      ->check(between(1, kMostRanksShown));
  show_parser->add_option("--root", options->root, "rank of the root (default 0)")
      ->check(between(0, kMostRanksShown - 1));
  show_parser->add_option("--hosts", options->hosts,
                          "where the ranks sit: HOSTSxRANKS (default: all on one host)");
  show_parser->add_option("--order", options->order,
                          "in which contributions are folded: any, rank or tree (default any)");
  show_parser->add_flag("--in-place", options->in_place, "the program for input == output");
  show_parser->add_option(
      "--form", options->form,
      "message: what runs between hosts (without --hosts: a host for each rank); host: what ranks "
      "of one host run (default: what runs on --hosts)");
  show_parser->add_option("--bytes", options->bytes,
                          "size of the call, which decides what runs (default 1M)");
  show_parser->add_flag("--all", options->all,
                        "of a host form also variants that do not run at this size");
  show_parser->add_option("--memory", options->memory,
                          "that ranks of one host pass: ordinary or symmetric (default: text and "
                          "JSON tell of both, drawings begin with ordinary)");
  show_parser->add_flag("--list", options->list,
                        "which algorithms there are, and what they cost (the default where only "
                        "the collective is named)");
  show_parser->add_option("--html", options->html, "write an animated page into this file");
  show_parser->add_option("--svg", options->svg, "write a still drawing into this file");
  show_parser->add_flag("--text", options->text, "as text (the default)");
  show_parser->add_flag("--json", options->json, "as JSON");
  show_parser->add_option(
      "--tuning", options->tuning,
      "costs to choose by, and the page's: a tuning table (default: the built-in one)");
  show_parser->add_flag("--fused", options->fused)->group("");  // not in the help
  show_parser->add_option("--shots", options->shots)->group("");
  show_parser->footer(kShowFooter);
  auto job_options = std::make_shared<JobViewOptions>();
  auto pipeline_options = std::make_shared<PipelineViewOptions>();
  CLI::App* job_parser = add_job_parser(*show_parser, *job_options);
  CLI::App* pipeline_parser = add_pipeline_parser(*show_parser, *pipeline_options);
  auto redistribution = std::make_shared<RedistributionOptions>();
  CLI::App* redistribute_parser = add_redistribute_parser(*show_parser, *redistribution);
  return {show_parser, [=] {
            if (pipeline_parser->parsed()) return show_pipeline(*pipeline_options);
            if (redistribute_parser->parsed()) return show_redistribution(*redistribution);
            return job_parser->parsed() ? show_job(*job_options) : show(*options);
          }};
}

}  // namespace tutti::tool
