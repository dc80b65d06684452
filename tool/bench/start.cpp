#include "tool/bench/start.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "tool/bench/mps_daemon.hpp"
#include "tool/bench/report.hpp"
#include "tool/bench/session.hpp"
#include "tool/command.hpp"
#include "tool/fitted_table.hpp"
#include "tool/interruption.hpp"
#include "tool/run/launch.hpp"
#include "tool/run/signals.hpp"
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

// What a benchmark that did not come to its end has left in its file. Returns the exit code.
int tell_kept(const BenchOptions& options, const std::string& began, int code) {
  note_interruption(code);
  const char* why = interruption() != 0 ? "interrupted" : "failed";
  if (interruption() == 0) code = kFailed;
  if (!ResultFile(options.json).keeps()) return code;
  const std::size_t count = results_since(options.json, began);
  if (count == 0)
    return complain(
        "bench", fmt::format("{} before the first result; {} was not written", why, options.json),
        code);
  return complain(
      "bench",
      fmt::format("{}; the {} results measured so far are in {}", why, count, options.json), code);
}

int run_threads(const BenchOptions& options, const Config& config) {
  const std::string began = date_word();
  auto signals = Signals::capture();
  if (!signals.ok()) return complain("bench", signals.status());
  ::signal(SIGPIPE, SIG_DFL);  // a reader that goes away ends all of it
  const Descriptor over(::eventfd(0, EFD_CLOEXEC));
  auto store = make_memory_store();
  std::atomic<int> code = kDone;
  std::atomic<int> at_work = options.ranks;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank)
    threads.emplace_back([&, rank] {
      GroupOptions group_options;
      group_options.rank = rank;
      group_options.size = options.ranks;
      group_options.config = config;
      group_options.reduction_order = options.order;
      auto group = Group::create(store, group_options);
      const int own = group.ok() ? run_as_rank(**group, options, config, true)
                                 : complain("bench", group.status());
      if (own != kDone) code = own;
      if (--at_work == 0) ::eventfd_write(over.get(), 1);
    });
  pollfd events[] = {{over.get(), POLLIN, 0}, {signals->descriptor(), POLLIN, 0}};
  while (::poll(events, 2, -1) < 0 && errno == EINTR) {
  }
  // Threads cannot be stopped one by one.
  if (const int signal = signals->take()) ::_exit(tell_kept(options, began, 128 + signal));
  for (std::thread& thread : threads) thread.join();
  return code == kDone ? kDone : tell_kept(options, began, code);
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
  run.program.insert(run.program.end(), {"-n", std::to_string(options.ranks), "--as-rank",
                                         "--columns", std::to_string(options.columns)});
  if (options.transport.empty()) run.program.insert(run.program.end(), {"--transport", "shm"});
  // Ranks write into pipes of the launcher; the terminal itself is found through it.
  if (::isatty(STDERR_FILENO) != 0) {
    run.program.insert(run.program.end(), {"--terminal", fmt::format("/proc/{}/fd/2", ::getpid())});
    if (::isatty(STDOUT_FILENO) != 0) run.program.emplace_back("--rows-to-terminal");
  }
  std::unique_ptr<MpsDaemon> daemon;
  if (options.mps) {
    auto started = MpsDaemon::start();
    if (!started.ok()) return complain("bench", started.status());
    daemon = *std::move(started);
  }
  const std::string began = date_word();
  const int code = launch_job(run);
  daemon.reset();
  pollfd reader{STDOUT_FILENO, 0, 0};
  if (::poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR) != 0) return kReaderGone;
  return code == 0 ? kDone : tell_kept(options, began, code);
}

int start_own_ranks(BenchOptions options, const Config& config,
                    const std::vector<std::string>& words) {
  if (options.ranks == 0) options.ranks = std::max(2, static_cast<int>(bench::own_cpus().size()));
  options.columns = window_width();
  const bool threads = options.transport == "inproc";
  if (threads && options.ranks > kMostThreads)
    return complain("bench",
                    fmt::format("-n {} lies outside 1 … {} with --transport inproc", options.ranks,
                                kMostThreads),
                    kBadInput);
  if (Status status = check_ranks(options, options.ranks); !status.ok())
    return complain("bench", status);
  if (Status status = check_memory(options, options.ranks); !status.ok())
    return complain("bench", status);
  if (Status status = check_output("--json", options.json == "-" ? "" : options.json); !status.ok())
    return complain("bench", status);
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
    group_options.reduction_order = options.order;
    if (options.transport == "inproc") group_options.config->transport = "auto";
    auto group = Group::from_environment(group_options);
    if (!group.ok()) return complain("bench", group.status());
    if (options.is_rank || (*group)->size() > 1) {
      if (options.transport == "inproc")
        return complain("bench", "--transport inproc starts its own ranks: not inside a job",
                        kBadInput);
      if (options.mps && !options.is_rank)
        return complain("bench", "--mps is for ranks that it starts itself: not inside a job",
                        kBadInput);
      return run_as_rank(**group, options, *config, false);
    }
  }
  return start_own_ranks(std::move(options), *config, words);
}

}  // namespace tutti::tool
