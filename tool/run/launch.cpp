#include "tool/run/launch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "core/auth.hpp"
#include "core/secret.hpp"
#include "tool/command.hpp"
#include "tool/run/fleet.hpp"
#include "tool/run/job.hpp"
#include "tool/run/job_folder.hpp"
#include "tool/run/report.hpp"
#include "tool/run/room.hpp"
#include "tutti/config.hpp"

namespace tutti::tool {
namespace {

constexpr int kCannotRun = 127;  // as shells say it

// Descriptors 0 to 2 must exist, or the pipes would get their numbers.
void fill_standard_descriptors() {
  int descriptor = 0;
  do descriptor = ::open("/dev/null", O_RDWR);
  while (descriptor >= 0 && descriptor <= 2);
  if (descriptor > 2) ::close(descriptor);
}

// Of open files, as the user set it: the launcher raises its own, the ranks get it back.
rlimit own_descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

rlimit at_least(rlimit limit, std::uint64_t needed) {
  limit.rlim_cur = std::min<rlim_t>(std::max<rlim_t>(limit.rlim_cur, needed), limit.rlim_max);
  return limit;
}

RoomNeeds needs_of(int local, int size, const RunOptions& options, const Config& config) {
  return RoomNeeds::of(local, size, config, !options.log_dir.empty());
}

// Before the hosts meet, so that nobody waits for this one; how many ranks the others have is a guess.
Status look_for_room(const RunOptions& options, const Config& config) {
  const RoomNeeds needs = needs_of(options.ranks, options.ranks * options.nodes, options, config);
  return check_room(options.ranks, needs, HostRoom::of_this_host(), options.makes_groups);
}

Result<Secret> find_secret(const RunOptions& options) {
  if (!options.secret_file.empty()) return read_secret_file(options.secret_file);
  return Secret(random_bytes(kSecretBytes));
}

void add_to_environment(const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    const std::size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
}

// `report` is filled in where there was a job.
int launch_here(const RunOptions& options, const Secret& secret, Leash* leash, Json& report) {
  add_to_environment(options.environment);
  const auto path = find_program(options.program.front());
  if (!path.ok()) {
    const std::string where = leash != nullptr ? fmt::format("host {}: ", host_name()) : "";
    return complain("run", where + path.status().message(), kCannotRun);
  }
  const auto config = Config::from_environment();
  if (!config.ok()) return complain("run", config.status());
  const rlimit descriptors = own_descriptor_limit();
  if (Status status = look_for_room(options, *config); !status.ok()) return complain("run", status);
  const std::string socket = new_job_socket_path();
  auto keeper = Keeper::start({socket, options.leave_daemons});
  if (!keeper.ok()) return complain("run", keeper.status());
  auto signals = Signals::capture();
  if (!signals.ok()) return complain("run", signals.status());
  int interruption = 0;
  const auto interrupted = [&] {
    if (interruption == 0) interruption = signals->take();
    if (interruption == 0 && leash != nullptr) interruption = leash->glance();
    return interruption != 0;
  };
  SpawnOptions launch;
  launch.path = *path;
  launch.arguments = options.program;
  launch.signal_mask = signals->former_mask();
  std::unique_ptr<Rendezvous> former;
  Json attempts = Json::array();
  for (;;) {
    auto rendezvous = Rendezvous::meet(options, secret.text(), interrupted, std::move(former));
    if (!rendezvous.ok()) {
      if (leash != nullptr && leash->gone()) return 128 + interruption;  // the one at home says why
      const int code = complain("run", rendezvous.status());
      return interruption != 0 ? 128 + interruption : code;
    }
    const JobWorld& world = (*rendezvous)->world();
    const RoomNeeds needs = needs_of(world.local_size, world.size, options, *config);
    launch.open_files = at_least(descriptors, needs.rank_descriptors);
    Job job(options, **rendezvous, *keeper, *signals, leash);
    job.let_look(socket);
    job.start(launch, secret.text());
    const int code = job.run();
    report = job.report();
    report["restarts"] = attempts;
    // A leashed one is restarted by the launcher at home.
    if (!job.to_restart() || leash != nullptr) return code;
    attempts.push_back(attempt_report(report));
    former = *std::move(rendezvous);
  }
}

void say(const std::string& line) {
  // Where that fails, the leash is cut too.
  const Nanoseconds deadline = deadline_after(steady_clock().now(), std::chrono::seconds(10));
  (void)write_fully(STDOUT_FILENO, line.data(), line.size(), deadline).ok();
}

// What a node finds out before its ranks are started, and the launcher at home could not know.
Status take_over(const NodeOrder& order) {
  const char* folders = std::getenv("PATH");
  const std::string own = folders != nullptr ? folders : "/usr/bin:/bin";
  ::setenv("PATH", own.c_str(), 1);
  add_to_environment(order.environment);
  // A name means what it means at home, where that is here, too: a remote shell's own PATH is short.
  if (const std::string home = std::getenv("PATH"); home != own)
    ::setenv("PATH", (home + ":" + own).c_str(), 1);
  if (::chdir(order.folder.c_str()) != 0)
    return errno_status(fmt::format("cannot work in {}", order.folder));
  std::error_code error;
  if (!order.options.log_dir.empty())
    std::filesystem::create_directories(order.options.log_dir, error);
  return {};
}

}  // namespace

int launch_job(const RunOptions& options) {
  const auto secret = find_secret(options);
  if (!secret.ok()) return complain("run", secret.status());
  fill_standard_descriptors();
  Json report;
  const int code = launch_here(options, *secret, nullptr, report);
  return write_report(options, std::move(report), code);
}

int launch_fleet(const RunOptions& options) {
  const auto secret = find_secret(options);
  if (!secret.ok()) return complain("run", secret.status());
  fill_standard_descriptors();
  // A remote shell may keep its connection open for the next one (ControlPersist).
  auto keeper = Keeper::start({.leave_daemons = true});
  if (!keeper.ok()) return complain("run", keeper.status());
  auto signals = Signals::capture();
  if (!signals.ok()) return complain("run", signals.status());
  SpawnOptions launch;
  launch.signal_mask = signals->former_mask();
  launch.open_files = own_descriptor_limit();
  RunOptions attempt = options;
  Json attempts = Json::array();
  for (;; ++attempt.restart) {
    Fleet fleet(attempt, *secret, *keeper, *signals, launch);
    const int code = fleet.run();
    Json report = fleet.report();
    report["restarts"] = attempts;
    if (!fleet.to_restart()) return write_report(options, std::move(report), code);
    attempts.push_back(attempt_report(report));
  }
}

int launch_node() {
  NodeOrder order;
  auto leash = Leash::take(order);
  if (!leash.ok())
    return complain("run", leash.status().annotate(fmt::format("host {}", host_name())));
  Json report;
  int code = kFailed;
  if (Status status = take_over(order); !status.ok()) {
    code = complain("run", status.annotate(fmt::format("host {}", host_name())));
  } else {
    const auto ready = [&](int port) { say(ready_line(order.mark, port)); };
    if (order.options.node_rank == 0)
      order.options.on_serving = ready;
    else
      ready(0);
    code = launch_here(order.options, order.secret, &*leash, report);
  }
  if (report.is_null()) report = Json{{"exit_code", code}};
  if (!leash->gone()) say(ended_line(order.mark, report.dump_ascii()));
  return code;
}

}  // namespace tutti::tool
