// The launcher's role.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "bench/protocol.hpp"
#include "core/files.hpp"
#include "core/sockets.hpp"
#include "tool/bench/contestants.hpp"
#include "tool/command.hpp"
#include "tool/doctor/doctor.hpp"
#include "tool/run/launch.hpp"

namespace tutti::tool::doctor {
namespace {

constexpr int kMostOwnRanks = 64;

// What is written to standard output meanwhile comes here: the ranks' report, by way of their launcher.
class CaughtOutput {
 public:
  CaughtOutput()
      : former_(::dup(STDOUT_FILENO)), memory_(::memfd_create("tutti-doctor", MFD_CLOEXEC)) {
    std::fflush(stdout);
    ::dup2(memory_.get(), STDOUT_FILENO);
  }
  ~CaughtOutput() { put_back(); }
  CaughtOutput(const CaughtOutput&) = delete;

  std::string take() {
    put_back();
    return read_text(fmt::format("/proc/self/fd/{}", memory_.get()));
  }

 private:
  void put_back() {
    if (!former_) return;
    ::dup2(former_.get(), STDOUT_FILENO);
    former_.reset();
  }

  Descriptor former_;
  Descriptor memory_;
};

Result<std::vector<Host>> read_hosts(const DoctorOptions& options) {
  std::vector<Host> none;
  Result<std::vector<Host>> hosts = none;
  if (!options.hosts.empty()) {
    hosts = parse_hosts(options.hosts);
    if (!hosts.ok()) return hosts.status().annotate("--hosts");
  } else if (!options.hostfile.empty()) {
    const auto text = read_file(options.hostfile);
    if (!text.ok()) return Status(Code::invalid_argument, text.status().message());
    hosts = parse_hostfile(*text);
    if (!hosts.ok()) return hosts.status().annotate(options.hostfile);
  }
  return hosts->empty() || options.ranks == 0 ? std::move(hosts)
                                              : take_places(*std::move(hosts), options.ranks);
}

RunOptions launch_options(const DoctorOptions& options, std::vector<Host> hosts) {
  RunOptions run;
  run.prefixes = false;
  run.grace = std::chrono::seconds(1);
  run.hosts = std::move(hosts);
  run.remote_shell = options.remote_shell;
  run.rendezvous = options.rendezvous;
  run.ranks = options.ranks;
  if (run.ranks == 0)
    run.ranks = std::clamp(static_cast<int>(bench::own_cpus().size()), 2, kMostOwnRanks);
  run.program = {own_folder() + "/tutti", "doctor", "--as-rank", "--time", options.time};
  return run;
}

Examination failed(const Status& status, int& code) {
  code = complain("doctor", status);
  return {};
}

}  // namespace

Examination examine_with_own_ranks(const DoctorOptions& options, int& code) {
  auto hosts = read_hosts(options);
  if (!hosts.ok()) return failed(hosts.status(), code);
  const RunOptions run = launch_options(options, *std::move(hosts));
  CaughtOutput output;
  code = run.hosts.empty() ? launch_job(run) : launch_fleet(run);
  const std::string text = output.take();
  if (code != kDone) {
    // What it was has been said; only a wrong command line is the caller's fault.
    if (code != kBadInput && code < 128) code = kFailed;
    return {};
  }
  const auto json = Json::parse(text);
  if (!json.ok()) return failed(json.status().annotate("the ranks' report"), code);
  auto examination = read_examination(*json);
  if (!examination.ok()) return failed(examination.status(), code);
  return *std::move(examination);
}

}  // namespace tutti::tool::doctor
