// tutti doctor - is this cluster well, and if not, what is to be done?
#include "tool/command.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tool/doctor/doctor.hpp"
#include "tool/doctor/report.hpp"
#include "tool/fitted_table.hpp"
#include "tool/numbers.hpp"

namespace tutti::tool {
namespace {

using doctor::DoctorOptions;
using doctor::Examination;

constexpr int kMostRanks = 4096;
constexpr const char* kDoctorFooter = R"(Examples:
  tutti doctor                                  # this host
  tutti doctor --hosts a:2,b:2                  # over ssh, as tutti run starts ranks
  tutti run --hosts a:2,b:2 tutti doctor        # the same in a job; srun, mpirun and torchrun will do, too
  tutti doctor --hosts a,b,c --json | jq .findings

Every pair of ranks plays ping-pong; pairs within hosts, then the first ranks of all hosts, move bytes, many
pairs at the same time. A row tells what a host reaches at its best. Then: which host is odd, which limits are
too tight, which settings cost time, and what to do ("mend": has to be done, "note": worth knowing).

Exit code: 0 nothing has to be mended, 1 something has to, or the ranks failed, 2 wrong command line.
)";

int report(const Examination& examination, bool as_json) {
  if (as_json)
    fmt::print("{}\n", doctor::to_report(examination).dump(1));
  else
    fmt::print("{}", doctor::to_text(examination, window_width()));
  return doctor::is_ill(examination) ? kFailed : kDone;
}

Status check(DoctorOptions& options, bool in_job) {
  if (!options.hosts.empty() && !options.hostfile.empty())
    return {Code::invalid_argument, "--hosts and --hostfile cannot both be given"};
  for (const auto& [flag, said] : {std::pair("-n", options.ranks != 0),
                                   {"--hosts", !options.hosts.empty()},
                                   {"--hostfile", !options.hostfile.empty()}})
    if (said && in_job)
      return {Code::invalid_argument,
              fmt::format("{}: this is a rank of a job, which has its hosts already", flag)};
  return {};
}

int run_as_rank(Group& group, const DoctorOptions& options) {
  const auto examination = examine(group, options.probes);
  if (!examination.ok()) return complain("doctor", examination.status());
  if (group.rank() != 0) return kDone;
  if (!options.is_rank) return report(*examination, options.json);
  fmt::print("{}\n", to_json(*examination).dump());
  return kDone;
}

int answer(DoctorOptions& options) {
  const auto time =
      read_duration("--time", options.time, std::chrono::milliseconds(1), std::chrono::minutes(1));
  if (!time.ok()) return complain("doctor", time.status());
  options.probes.transfer = *time;
  auto config = Config::from_environment();
  if (!config.ok()) return complain("doctor", config.status());
  config->tuning = "fixed";  // nobody needs costs here
  {
    auto group = Group::from_environment({.config = *config});
    if (!group.ok()) return complain("doctor", group.status());
    const bool in_job = options.is_rank || (*group)->size() > 1;
    if (Status status = check(options, in_job); !status.ok()) return complain("doctor", status);
    if (in_job) return run_as_rank(**group, options);
  }
  int code = kDone;
  const Examination examination = doctor::examine_with_own_ranks(options, code);
  return code == kDone ? report(examination, options.json) : code;
}

}  // namespace

Command make_doctor(CLI::App& app) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* parser = app.add_subcommand(
      "doctor", "what this host or cluster reaches, who is odd, what is too tight, what to do");
  parser
      ->add_option("-n,--ranks", options->ranks,
                   "ranks on this host (default: one a core); with --hosts: on all of them")
      ->check(between(1, kMostRanks));
  parser
      ->add_option("--hosts", options->hosts,
                   "hosts and the ranks of each, a:2,b:2; started over ssh")
      ->check(filled())
      ->type_name("LIST");
  parser->add_option("--hostfile", options->hostfile, "the same from a file with a host a line")
      ->check(filled())
      ->type_name("FILE");
  parser->add_option("--ssh", options->remote_shell, "remote shell for --hosts (default ssh)")
      ->type_name("CMD");
  parser->add_option("--rendezvous", options->rendezvous,
                     "HOST:PORT on the first host where the ranks meet (default: its name)");
  parser->add_option("--time", options->time, "about how long each transfer takes")
      ->capture_default_str();
  parser->add_flag("--json", options->json, "as JSON (docs/formats/doctor.md)");
  parser->add_flag("--as-rank", options->is_rank)->group("");
  parser->footer(kDoctorFooter);
  return {parser, [options] { return answer(*options); }};
}

}  // namespace tutti::tool
