#include "tool/show/job_view.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <thread>

#include "core/json.hpp"
#include "tool/command.hpp"
#include "tool/fitted_table.hpp"
#include "tool/numbers.hpp"
#include "tool/run/job_folder.hpp"
#include "tool/show/show.hpp"

namespace tutti::tool {
namespace {

constexpr std::chrono::seconds kPatience{5};       // with a launcher that does not answer
constexpr std::chrono::milliseconds kGlance{200};  // between the two looks of --once
constexpr std::size_t kLongestAnswer = 16 << 20;

struct Found {
  JobLine line;
  Json job;
};

// Launchers that answer. Others are gone, or just going.
Result<std::vector<Found>> find_jobs() {
  const auto paths = list_job_sockets();
  if (!paths.ok()) return paths.status();
  std::vector<Found> found;
  for (const std::string& path : *paths) {
    auto line = JobLine::connect(path);
    if (!line.ok()) continue;
    auto job = line->ask();
    if (job.ok()) found.push_back({*std::move(line), *std::move(job)});
  }
  return found;
}

bool is_meant(const Json& job, const std::string& word) {
  return word.empty() || job["job"].string().starts_with(word) ||
         std::to_string(job["launcher_pid"].integer()) == word;
}

int list_jobs(const std::vector<Found>& found, bool as_json) {
  if (as_json) {
    Json list = Json::array();
    for (const Found& each : found) list.push_back(each.job);
    fmt::print("{}\n", Json{{"format", "tutti jobs 1"}, {"jobs", list}}.dump());
    return kDone;
  }
  fmt::print("{:18} {:>9} {:>6} {:>9}  {}\n", "job", "launcher", "ranks", "up", "program");
  for (const auto& [line, job] : found)
    fmt::print("{:18} {:>9} {:>6} {:>7.0f} s  {}\n", job["job"].string(),
               job["launcher_pid"].integer(), job["ranks"].size(), job["up_s"].number(),
               job["program"].string());
  fmt::print("say which one: tutti show job {}\n",
             std::as_const(found.front().job)["job"].string());
  return kDone;
}

// Lines of the terminal, less what is not a rank's.
std::size_t room_for_ranks() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 4096;
  return std::max<std::size_t>(4, size.ws_row > 8 ? size.ws_row - 8u : 4);
}

void print(const Json& job, const JobViewOptions& options, bool over_the_last) {
  if (options.json)
    fmt::print("{}\n", job.dump());
  else
    fmt::print("{}{}", over_the_last ? "\x1b[H\x1b[J" : "",
               job_table(job, room_for_ranks(), options.wide ? kAnyWidth : window_width()));
  std::fflush(stdout);
}

int watch(Found found, const JobViewOptions& options, Nanoseconds interval) {
  const bool screen = !options.json && !options.once && ::isatty(STDOUT_FILENO) != 0;
  Json before = std::move(found.job);
  for (bool first = true;; first = false) {
    std::this_thread::sleep_for(first ? std::min<Nanoseconds>(kGlance, interval) : interval);
    auto job = found.line.ask();
    if (!job.ok()) {
      // Between the two looks it came to its end; the first one is still worth something.
      if (options.once) print(before, options, false);
      if (!options.json) fmt::print("the job has ended\n");
      return kDone;
    }
    add_rates(before, *job);
    if (screen && first) fmt::print("\x1b[2J");
    if (!first && !screen && !options.json) fmt::print("\n");
    print(*job, options, screen);
    if (options.once) return kDone;
    before = *std::move(job);
  }
}

}  // namespace

Result<JobLine> JobLine::connect(const std::string& path) {
  auto end = make_job_end(path);
  if (!end.ok()) return end.status();
  Descriptor& socket = end->socket;
  const Nanoseconds deadline = deadline_after(steady_clock().now(), kPatience);
  while (::connect(socket.get(), end->where(), sizeof end->address) != 0) {
    // Others stand at the launcher's door: a Unix socket says so instead of letting us wait.
    if (errno != EAGAIN || steady_clock().now() >= deadline)
      return errno_status(fmt::format("cannot connect to {}", path));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto peer = peer_credentials(socket.get());
  if (!peer.ok()) return peer.status();
  if (peer->uid != ::geteuid() && peer->uid != 0)
    return Status(Code::io, fmt::format("{} belongs to user {}", path, peer->uid));
  return JobLine(std::move(socket));
}

Result<Json> JobLine::ask() {
  const Nanoseconds deadline = deadline_after(steady_clock().now(), kPatience);
  constexpr std::string_view kRequest = "snapshot\n";
  if (::send(socket_.get(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(kRequest.size()))
    return errno_status("the launcher does not listen");
  while (in_.find('\n') == std::string::npos) {
    const auto ready = wait_ready(socket_.get(), POLLIN, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return Status(Code::io, "the launcher does not answer");
    char bytes[65536];
    const ssize_t got = ::recv(socket_.get(), bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return Status(Code::io, "the launcher is gone");
    in_.append(bytes, static_cast<std::size_t>(got));
    if (in_.size() > kLongestAnswer) return Status(Code::corrupt, "the launcher talks too much");
  }
  const std::size_t end = in_.find('\n');
  auto job = Json::parse(std::string_view(in_).substr(0, end));
  in_.erase(0, end + 1);
  if (!job.ok() || (*job)["format"] != "tutti job 1")
    return Status(Code::mismatch, "the launcher is of another version of tutti");
  return job;
}

int show_job(const JobViewOptions& options) {
  const auto interval = read_duration("--interval", options.interval, std::chrono::milliseconds(50),
                                      std::chrono::hours(24));
  if (!interval.ok()) return complain("show job", interval.status());
  auto found = find_jobs();
  if (!found.ok()) return complain("show job", found.status());
  const bool any = !found->empty();
  std::erase_if(*found, [&](const Found& each) { return !is_meant(each.job, options.job); });
  if (found->empty())
    return complain(
        "show job",
        any ? fmt::format("no running job is called '{}'; tutti show job lists them", options.job)
            : fmt::format("no job of this user runs on this host (none in {})", job_folder()),
        kFailed);
  if (found->size() > 1) return list_jobs(*found, options.json);
  return watch(std::move(found->front()), options, *interval);
}

}  // namespace tutti::tool
