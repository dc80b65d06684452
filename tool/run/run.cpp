// tutti run - starts the ranks, names the one that failed, leaves nothing behind.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "core/auth.hpp"
#include "core/secret.hpp"
#include "core/words.hpp"
#include "tool/command.hpp"
#include "tool/run/job.hpp"
#include "tool/run/job_folder.hpp"
#include "tool/run/launch.hpp"
#include "tutti/config.hpp"

namespace tutti::tool {
namespace {

constexpr int kMostRanks = 4096;
constexpr int kCannotRun = 127;  // as shells say it

constexpr const char* kRunFooter = R"(Examples:
  tutti run -n 4 ./my_program --its-own-flag
  tutti run -n 4 --log-dir logs -- python3 train.py
  tutti run -n 2 --nnodes 2 --node-rank 0 --rendezvous a:29400 --secret-file job.key ./prog

Ends with the code of the first rank that failed (128 + signal), 2 for a wrong command line, 127
when the program cannot be run. Ctrl-C is passed on to the ranks; the second time they are killed
after --grace seconds, the third time at once.
)";

// Plain text as CLI11 reads it, before it is understood.
struct Words {
  std::string grace = "5";
  std::string join_timeout = "60";
};

Result<std::chrono::milliseconds> read_time(const char* flag, const std::string& text, bool zero) {
  auto time = parse_duration(text);
  if (!time.ok()) return time.status().annotate(flag);
  if (*time < Nanoseconds(0) || (!zero && *time == Nanoseconds(0)))
    return Status(Code::invalid_argument, fmt::format("{} {} must be more than zero", flag, text));
  return std::chrono::ceil<std::chrono::milliseconds>(*time);
}

Status check_nodes(const RunOptions& options) {
  if (options.nodes == 1 && options.rendezvous.empty()) {
    if (options.node_rank != 0)
      return {Code::invalid_argument,
              fmt::format("--node-rank {} is not below --nnodes 1", options.node_rank)};
    return {};
  }
  if (options.node_rank >= options.nodes)
    return {Code::invalid_argument, fmt::format("--node-rank {} is not below --nnodes {}",
                                                options.node_rank, options.nodes)};
  if (options.rendezvous.empty())
    return {
        Code::invalid_argument,
        "--nnodes needs --rendezvous HOST:PORT, an address of node 0 that every host can reach"};
  if (options.secret_file.empty())
    return {Code::invalid_argument,
            "--rendezvous needs --secret-file FILE, with the same 32 random bytes on every host "
            "(head -c 32 /dev/urandom > FILE; chmod 600 FILE)"};
  const std::size_t colon = options.rendezvous.rfind(':');
  const auto port = parse_integer(
      colon == std::string::npos ? "" : std::string_view(options.rendezvous).substr(colon + 1));
  if (colon == 0 || !port.ok() || *port < 1 || *port > 65535)
    return {Code::invalid_argument,
            fmt::format("--rendezvous '{}' is not HOST:PORT with a port of 1 to 65535",
                        options.rendezvous)};
  return {};
}

Status check(RunOptions& options, const Words& words) {
  if (options.program.empty())
    return {Code::invalid_argument, "say which program to run: tutti run -n 4 ./my_program"};
  if (options.ranks < 1 || options.ranks > kMostRanks)
    return {Code::invalid_argument,
            fmt::format("-n {} lies outside 1 … {}", options.ranks, kMostRanks)};
  const auto grace = read_time("--grace", words.grace, true);
  if (!grace.ok()) return grace.status();
  options.grace = *grace;
  const auto join = read_time("--join-timeout", words.join_timeout, false);
  if (!join.ok()) return join.status();
  options.join_timeout = *join;
  if (options.log_dir.empty()) return check_nodes(options);
  std::error_code error;
  std::filesystem::create_directories(options.log_dir, error);
  if (error || ::access(options.log_dir.c_str(), W_OK) != 0)
    return {Code::invalid_argument,
            fmt::format("--log-dir {} cannot be written to", options.log_dir)};
  return check_nodes(options);
}

// Descriptors 0 to 2 must exist, or the pipes would get their numbers.
void fill_standard_descriptors() {
  int descriptor = 0;
  do descriptor = ::open("/dev/null", O_RDWR);
  while (descriptor >= 0 && descriptor <= 2);
  if (descriptor > 2) ::close(descriptor);
}

// Each rank takes three of the launcher's descriptors; returns the limit that the ranks get back.
rlimit raise_descriptor_limit() {
  rlimit former{};
  ::getrlimit(RLIMIT_NOFILE, &former);
  rlimit raised = former;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return former;
}

Result<std::string> find_secret(const RunOptions& options) {
  if (options.secret_file.empty()) return random_bytes(kSecretBytes);
  return read_secret_file(options.secret_file);
}

}  // namespace

int launch_job(const RunOptions& options) {
  const auto path = find_program(options.program.front());
  if (!path.ok()) return complain("run", path.status().message(), kCannotRun);
  const auto secret = find_secret(options);
  if (!secret.ok()) return complain("run", secret.status());

  fill_standard_descriptors();
  const std::string socket = new_job_socket_path();
  auto keeper = Keeper::start(socket);
  if (!keeper.ok()) return complain("run", keeper.status());
  auto signals = Signals::capture();
  if (!signals.ok()) return complain("run", signals.status());
  int interruption = 0;
  auto rendezvous = Rendezvous::meet(options, *secret, [&] {
    return (interruption = interruption != 0 ? interruption : signals->take()) != 0;
  });
  if (!rendezvous.ok()) {
    const int code = complain("run", rendezvous.status());
    return interruption != 0 ? 128 + interruption : code;
  }

  SpawnOptions launch;
  launch.path = *path;
  launch.arguments = options.program;
  launch.signal_mask = signals->former_mask();
  launch.open_files = raise_descriptor_limit();
  Job job(options, **rendezvous, *keeper, *signals);
  job.let_look(socket);
  job.start(std::move(launch), *secret);
  return job.run();
}

Command make_run(CLI::App& app, std::vector<std::string> words_after_mark) {
  struct State {
    RunOptions options;
    Words words;
  };
  auto state = std::make_shared<State>();
  RunOptions& options = state->options;
  CLI::App* run = app.add_subcommand(
      "run", "start a program as several ranks: run [flags] [--] PROGRAM [arguments]");
  run->add_option("-n,--ranks", options.ranks, "ranks on this host (default 1)");
  run->add_flag("--tee", options.tee, "put [rankN] before each line also when not on a terminal");
  run->add_option("--log-dir", options.log_dir,
                  "also write rankN.out and rankN.err into this folder");
  run->add_option("--grace", state->words.grace,
                  "seconds between a rank's failure and SIGTERM for the others, and again before "
                  "SIGKILL (default 5)");
  run->add_option("--nnodes", options.nodes,
                  "hosts of the job; start one launcher on each (default 1)")
      ->check(CLI::Range(1, kMostRanks));
  run->add_option("--node-rank", options.node_rank, "number of this host, from 0")
      ->check(CLI::Range(0, kMostRanks));
  run->add_option("--rendezvous", options.rendezvous,
                  "HOST:PORT on node 0 where the launchers meet");
  run->add_option("--secret-file", options.secret_file,
                  "file of mode 0600 with the job's secret, the same on every host");
  run->add_option("--join-timeout", state->words.join_timeout,
                  "seconds to wait for the other hosts (default 60)");
  run->prefix_command();
  run->footer(kRunFooter);

  return {
      run, [run, state, after = std::move(words_after_mark)] {
        std::vector<std::string> program = run->remaining();
        if (!program.empty() && program.front().front() == '-')
          return complain("run",
                          fmt::format("there is no flag '{}' (see tutti run --help); put -- before "
                                      "a program whose name begins with -",
                                      program.front()),
                          kBadInput);
        // A mark before the program ends the flags; a later one is the program's own.
        program.insert(program.end(), after.begin() + (program.empty() && !after.empty() ? 1 : 0),
                       after.end());
        state->options.program = std::move(program);
        if (Status status = check(state->options, state->words); !status.ok())
          return complain("run", status);
        // A misspelt TUTTI_ variable is told once, here, and not by every rank.
        if (auto config = Config::from_environment(); !config.ok())
          return complain("run", config.status());
        return launch_job(state->options);
      }};
}

}  // namespace tutti::tool
