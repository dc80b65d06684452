// tutti run - starts the ranks, names the one that failed, leaves nothing behind.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "core/files.hpp"
#include "core/sockets.hpp"
#include "core/words.hpp"
#include "tool/command.hpp"
#include "tool/numbers.hpp"
#include "tool/run/launch.hpp"
#include "tutti/config.hpp"

namespace tutti::tool {
namespace {

constexpr int kMostRanks = 4096;

constexpr const char* kRunFooter = R"(Examples:
  tutti run -n 4 ./my_program --its-own-flag
  tutti run -n 4 --log-dir logs -- python3 train.py
  tutti run --hosts a:4,b:4 ./my_program            # over ssh; --hostfile FILE: "a slots=4" a line
  tutti run -n 4 --max-restarts 3 ./train --load latest
  tutti run -n 2 --nnodes 2 --node-rank 0 --rendezvous a:29400 --secret-file job.key ./prog

Ends with the code of the first rank that failed (128 + signal), 2 for a wrong command line, 127
when the program cannot be run. Ctrl-C is passed on to the ranks; the second time they are killed
after --grace seconds, the third time at once. With --max-restarts a failed job begins anew, on all
hosts, with TUTTI_RESTART=1, 2, … in its ranks' environment; after Ctrl-C, or a rank's code 2, 126 or
127 (wrong command line, cannot be run), it does not. Where the ranks can do without a lost one and take
it back, it alone is started again, with TUTTI_RETURNED in its environment.
)";

// Plain text as CLI11 reads it, before it is understood.
struct Words {
  std::string grace = "5";
  std::string join_timeout = "60";
  std::string hosts;
  std::string hostfile;
  std::vector<std::string> variables;
  bool counted = false;  // -n was given
  bool leashed = false;
  bool no_group = false;
};

Result<std::chrono::milliseconds> read_time(const char* flag, const std::string& text, bool zero) {
  auto time = parse_duration(text);
  if (!time.ok()) return time.status().annotate(flag);
  if (*time < Nanoseconds(0) || (!zero && *time == Nanoseconds(0)))
    return Status(Code::invalid_argument, fmt::format("{} {} must be more than zero", flag, text));
  return std::chrono::ceil<std::chrono::milliseconds>(*time);
}

// `least`: 0 where any port will do.
Status check_port(const RunOptions& options, int least) {
  const std::size_t colon = options.rendezvous.rfind(':');
  const auto port = parse_integer(
      colon == std::string::npos ? "" : std::string_view(options.rendezvous).substr(colon + 1));
  if (colon == 0 || !port.ok() || *port < least || *port > 65535)
    return {Code::invalid_argument,
            fmt::format("--rendezvous '{}' is not HOST:PORT with a port of {} to 65535",
                        options.rendezvous, least)};
  return {};
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
  return check_port(options, 1);
}

Status find_hosts(RunOptions& options, const Words& words) {
  if (words.hosts.empty() && words.hostfile.empty()) return {};
  if (!words.hosts.empty() && !words.hostfile.empty())
    return {Code::invalid_argument, "--hosts and --hostfile cannot both be given"};
  if (options.nodes != 1 || options.node_rank != 0)
    return {Code::invalid_argument,
            "--hosts starts every host's launcher itself: leave --nnodes and --node-rank out"};
  Result<std::vector<Host>> hosts = std::vector<Host>();
  if (words.hostfile.empty()) {
    hosts = parse_hosts(words.hosts);
    if (!hosts.ok()) return hosts.status().annotate("--hosts");
  } else {
    const auto text = read_file(words.hostfile);
    if (!text.ok()) return {Code::invalid_argument, text.status().message()};
    hosts = parse_hostfile(*text);
    if (!hosts.ok()) return hosts.status().annotate(words.hostfile);
  }
  if (words.counted) hosts = take_places(*std::move(hosts), options.ranks);
  if (!hosts.ok()) return hosts.status();
  options.hosts = *std::move(hosts);
  return options.rendezvous.empty() ? Status() : check_port(options, 0);
}

// "NAME=value", or "NAME" with the value that it has here.
Status find_variables(RunOptions& options, const Words& words) {
  for (const std::string& word : words.variables) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const char* value = equals == std::string::npos ? std::getenv(name.c_str()) : "";
    if (name.empty() || value == nullptr)
      return {Code::invalid_argument,
              fmt::format("-x {}: {}", word, name.empty() ? "it has no name" : "it is not set")};
    options.environment.push_back(equals == std::string::npos ? name + "=" + value : word);
  }
  return {};
}

// Before anything is started: a long job's last minute is too late.
Status check_files(const RunOptions& options) {
  if (Status status = check_output("--json", options.json); !status.ok()) return status;
  if (options.log_dir.empty() || !options.hosts.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(options.log_dir, error);
  if (error || ::access(options.log_dir.c_str(), W_OK) != 0)
    return {Code::invalid_argument,
            fmt::format("--log-dir {} cannot be written to", options.log_dir)};
  return {};
}

Status check(RunOptions& options, const Words& words) {
  if (options.program.empty())
    return {Code::invalid_argument, "say which program to run: tutti run -n 4 ./my_program"};
  const auto grace = read_time("--grace", words.grace, true);
  if (!grace.ok()) return grace.status();
  options.grace = *grace;
  const auto join = read_time("--join-timeout", words.join_timeout, false);
  if (!join.ok()) return join.status();
  options.join_timeout = *join;
  options.makes_groups = !words.no_group;
  if (Status status = find_variables(options, words); !status.ok()) return status;
  if (Status status = find_hosts(options, words); !status.ok()) return status;
  if (Status status = check_files(options); !status.ok()) return status;
  if (options.with_switch) options.environment.push_back("TUTTI_SWITCH=1");
  return options.hosts.empty() ? check_nodes(options) : Status();
}

}  // namespace

Command make_run(CLI::App& app, std::vector<std::string> words_after_mark) {
  struct State {
    RunOptions options;
    Words words;
  };
  auto state = std::make_shared<State>();
  RunOptions& options = state->options;
  CLI::App* run = app.add_subcommand(
      "run", "start a program as several ranks: run [flags] [--] PROGRAM [arguments]");
  CLI::Option* ranks = run->add_option(
      "-n,--ranks", options.ranks,
      "ranks on this host (default 1); with --hosts: on all of them (default: one a "
      "place)");
  ranks->check(between(1, kMostRanks));
  run->add_option("--hosts", state->words.hosts,
                  "hosts to run on and the ranks of each, a:4,b:4; started over ssh")
      ->check(filled())
      ->type_name("LIST");
  run->add_option("--hostfile", state->words.hostfile,
                  "the same from a file with a host a line: a slots=4, or a:4")
      ->check(filled())
      ->type_name("FILE");
  run->add_option("--ssh", options.remote_shell,
                  "remote shell for --hosts (default ssh, and none for localhost)")
      ->type_name("CMD");
  run->add_option(
         "-x,--env", state->words.variables,
         "variable for the ranks, NAME=value or NAME as it is here; PATH and TUTTI_* reach "
         "other hosts by themselves")
      ->allow_extra_args(false)
      ->type_name("NAME[=VALUE]");
  run->add_option("--json", options.json, "write how the job ended, as JSON, into this file")
      ->type_name("FILE");
  run->add_flag(
      "--no-group", state->words.no_group,
      "the ranks make no group of all of them: do not look whether there is room for one");
  run->add_flag("--switch", options.with_switch,
                "also start a switch that folds, on the first host (tutti switch --help)");
  run->add_flag("--leave-daemons", options.leave_daemons,
                "do not kill what ranks started in a session of its own when the job ends");
  run->add_flag("--leashed", state->words.leashed)->group("");
  run->add_flag("--tee", options.tee, "put [rankN] before each line also when not on a terminal");
  run->add_option("--log-dir", options.log_dir,
                  "also write rankN.out and rankN.err into this folder");
  run->add_option("--grace", state->words.grace,
                  "seconds between a rank's failure and SIGTERM for the others, and again before "
                  "SIGKILL (default 5)");
  run->add_option(
         "--max-restarts", options.max_restarts,
         "how often a job that fails, or a lost rank that the others take back, is started "
         "anew, the job on all hosts (default 0); with "
         "--nnodes node 0's counts")
      ->check(between(0, 1000000));
  run->add_option("--nnodes", options.nodes,
                  "hosts of the job; start one launcher on each (default 1)")
      ->check(between(1, kMostRanks));
  run->add_option("--node-rank", options.node_rank, "number of this host, from 0")
      ->check(between(0, kMostRanks));
  run->add_option("--rendezvous", options.rendezvous,
                  "HOST:PORT on node 0 where the launchers meet");
  run->add_option("--secret-file", options.secret_file,
                  "file of mode 0600 with the job's secret, the same on every host");
  run->add_option("--join-timeout", state->words.join_timeout,
                  "seconds to wait for the other hosts (default 60)");
  run->prefix_command();
  run->footer(kRunFooter);

  return {
      run, [run, ranks, state, after = std::move(words_after_mark)] {
        if (state->words.leashed) return launch_node();
        state->words.counted = ranks->count() > 0;
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
          return complain("run", status.message() + " (see tutti run --help)", kBadInput);
        // A misspelt TUTTI_ variable is told once, here, and not by every rank.
        if (auto config = Config::from_environment(); !config.ok())
          return complain("run", config.status());
        return state->options.hosts.empty() ? launch_job(state->options)
                                            : launch_fleet(state->options);
      }};
}

}  // namespace tutti::tool
