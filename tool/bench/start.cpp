#include "tool/bench/start.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "tool/bench/session.hpp"
#include "tool/command.hpp"
#include "tool/run/launch.hpp"
#include "tutti/group.hpp"

namespace tutti::tool {
namespace {

constexpr int kMostThreads = 256;

Result<Config> configuration(const BenchOptions& options) {
  auto config = Config::from_environment();
  if (!config.ok()) return config;
  if (!options.transport.empty()) config->transport = options.transport;
  if (options.algorithm != Algorithm::automatic)
    for (const Collective collective : options.collectives)
      config->algorithm[static_cast<std::size_t>(collective)] = options.algorithm;
  return config;
}

// The word for the report: what was asked for, else what one host gets.
std::string transport_word(const BenchOptions& options, const Config& config) {
  if (!options.transport.empty()) return options.transport;
  return config.transport;
}

int run_as_rank(Group& group, const BenchOptions& options, const Config& config, bool threads) {
  if (options.ranks != 0 && options.ranks != group.size())
    return complain("bench",
                    fmt::format("-n {} inside a job of {} ranks", options.ranks, group.size()),
                    kBadInput);
  if (Status status = check_ranks(options, group.size()); !status.ok())
    return complain("bench", status);
  Session session(group, options, transport_word(options, config), threads);
  return session.run();
}

int run_threads(const BenchOptions& options, const Config& config) {
  auto store = make_memory_store();
  std::atomic<int> code = kDone;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank)
    threads.emplace_back([&, rank] {
      GroupOptions group_options;
      group_options.rank = rank;
      group_options.size = options.ranks;
      group_options.config = config;
      auto group = Group::create(store, group_options);
      const int own = group.ok() ? run_as_rank(**group, options, config, true)
                                 : complain("bench", group.status());
      if (own != kDone) code = own;
    });
  for (std::thread& thread : threads) thread.join();
  return code;
}

std::string own_path() {
  std::string path(4096, '\0');
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  path.resize(static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  return path;
}

int run_processes(const BenchOptions& options, const std::vector<std::string>& words) {
  RunOptions run;
  run.ranks = options.ranks;
  run.prefixes = false;
  run.grace = std::chrono::seconds(1);  // a rank that waits for a dead one has nothing to save
  run.program = {own_path()};
  run.program.insert(run.program.end(), words.begin(), words.end());
  run.program.insert(run.program.end(), {"-n", std::to_string(options.ranks), "--as-rank"});
  if (options.transport.empty()) run.program.insert(run.program.end(), {"--transport", "shm"});
  // Ranks write into pipes of the launcher; the terminal itself is found through it.
  if (::isatty(STDERR_FILENO) != 0) {
    run.program.insert(run.program.end(), {"--terminal", fmt::format("/proc/{}/fd/2", ::getpid())});
    if (::isatty(STDOUT_FILENO) != 0) run.program.emplace_back("--rows-to-terminal");
  }
  return launch_job(run) == 0 ? kDone : kFailed;
}

Status check_json(const std::string& path) {
  if (path.empty() || path == "-") return {};
  if (std::ofstream(path, std::ios::app)) return {};
  return {Code::invalid_argument, fmt::format("--json {} cannot be written", path)};
}

int start_own_ranks(BenchOptions options, const Config& config,
                    const std::vector<std::string>& words) {
  if (options.ranks == 0) options.ranks = std::max(2, static_cast<int>(bench::own_cpus().size()));
  const bool threads = options.transport == "inproc";
  const int most = threads ? kMostThreads : 4096;
  if (options.ranks < 1 || options.ranks > most)
    return complain("bench", fmt::format("-n {} lies outside 1 … {}", options.ranks, most),
                    kBadInput);
  if (Status status = check_ranks(options, options.ranks); !status.ok())
    return complain("bench", status);
  if (Status status = check_json(options.json); !status.ok()) return complain("bench", status);
  if (threads) {
    if (::isatty(STDERR_FILENO) != 0) options.terminal = "/proc/self/fd/2";
    return run_threads(options, config);
  }
  return run_processes(options, words);
}

}  // namespace

int start_bench(BenchOptions options, const std::vector<std::string>& words) {
  const auto config = configuration(options);
  if (!config.ok()) return complain("bench", config.status());
  {
    GroupOptions group_options;
    // A lone process only asks whether it is one of several; any transport will do for that.
    group_options.config = *config;
    if (options.transport == "inproc") group_options.config->transport = "auto";
    auto group = Group::from_environment(group_options);
    if (!group.ok()) return complain("bench", group.status());
    if (options.is_rank || (*group)->size() > 1) {
      if (options.transport == "inproc")
        return complain("bench", "--transport inproc starts its own ranks: not inside a job",
                        kBadInput);
      return run_as_rank(**group, options, *config, false);
    }
  }
  return start_own_ranks(std::move(options), *config, words);
}

}  // namespace tutti::tool
