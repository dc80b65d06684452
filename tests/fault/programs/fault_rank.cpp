// A rank to which something happens. It runs collectives with exact checks and prints one line of JSON: how it ended,
// whom the status blames, in which operation, and when.
//
//   fault_rank --list                      the pairs collective:algorithm that 4 ranks have
//   fault_rank NAME=VALUE...
//     op=all_reduce:ring        this call again and again; absent: all pairs in turn
//     count=16384               elements of a block
//     victim=1 how=kill         who is struck (-1: nobody) and how (strike.hpp); comma list: several
//     at=middle                 when: before, joining, first, middle, last (page of a call), between, destroy,
//                               finalize
//     after=2                   calls before that
//     seconds=1                 how long to go on, if nothing happens
//     pause=0.3                 how long to wait when it has said that every call went well once
//     compute=5                 how long `how=compute` computes
//     timeout=2                 of each call
//     descriptors=20            the most of those who are struck
//     recover=shrink then=2     survivors go on with a smaller group; rank 2 is struck while it is made
//     fork=1                    every rank has a child that sleeps, as a user's program may
#include <dirent.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "exact_call.hpp"
#include "rank_words.hpp"
#include "schedule/catalog.hpp"
#include "strike.hpp"
#include "tutti/tutti.hpp"

namespace tutti::test {
namespace {

using Pair = std::pair<Collective, Algorithm>;

std::vector<Pair> all_pairs(int size) {
  std::vector<Pair> pairs;
  for (const schedule::Entry& entry : schedule::catalog())
    if (!entry.by_switch &&
        schedule::build(entry.algorithm, {.collective = entry.collective, .size = size, .rank = 0})
            .ok())
      pairs.emplace_back(entry.collective, entry.algorithm);
  return pairs;
}

int sockets_open() {
  int sockets = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    struct stat status {};
    if (fstatat(dirfd(folder), entry->d_name, &status, 0) == 0 && S_ISSOCK(status.st_mode))
      ++sockets;
  }
  closedir(folder);
  return sockets;
}

class Rank {
 public:
  explicit Rank(Flags flags) : flags_(std::move(flags)) {
    rank_ = std::atoi(std::getenv("TUTTI_RANK"));
    doomed_ = flags_.names("victim", rank_);
    at_ = flags_.text("at", "between");
  }

  int live() {
    if (doomed_ && flags_.number("descriptors", 0) > 0) limit_descriptors();
    if (flags_.number("fork", 0) > 0) sleeping_child();
    if (at_ == "before") struck("before rendezvous");
    if (at_ == "joining") watch_joining();
    GroupOptions options;
    options.survives_losses = flags_.text("recover") == "shrink";
    auto made = Group::from_environment(options);
    joined_ = true;
    if (watcher_.joinable()) watcher_.join();
    if (!made.ok()) return tell("init", made.status());
    group_ = *std::move(made);
    Status status = work();
    if (status.code() == Code::peer_lost && flags_.text("recover") == "shrink") status = go_on();
    if (!status.ok()) return tell("run", status);
    return leave();
  }

 private:
  void struck(const std::string& where) {
    if (doomed_) strike(flags_.text("how", "kill"), rank_, where, flags_.number("compute", 5));
  }

  void limit_descriptors() const {
    const auto most = static_cast<rlim_t>(flags_.number("descriptors", 0));
    const rlimit limit{most, most};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) std::abort();
  }

  void sleeping_child() {
    if (fork() == 0)
      for (;;) pause();
  }

  // The store's connection, the listening socket, then links that are being made.
  void watch_joining() {
    if (!doomed_) return;
    const int enough = sockets_open() + static_cast<int>(flags_.number("sockets", 3));
    watcher_ = std::thread([this, enough] {
      while (!joined_ && sockets_open() < enough) {
      }
      struck(joined_ ? "missed: it had joined" : "in the handshake");
    });
  }

  ExactCall::Moment moment() {
    const bool wanted = at_ == "first" || at_ == "middle" || at_ == "last";
    if (!doomed_ || !wanted || done_ < static_cast<long>(flags_.number("after", 2))) return {};
    watching_ = true;
    return {at_ == "first"    ? 0.0
            : at_ == "middle" ? 0.5
                              : 1.0,
            [this](std::size_t page, std::size_t pages) {
              struck(fmt::format("page {} of {}", page, pages));
            }};
  }

  // A barrier has no memory to watch: some microseconds after it began must do.
  void strike_soon() {
    const useconds_t after = at_ == "first" ? 0 : at_ == "middle" ? 20 : 100;
    std::thread([this, after] {
      usleep(after);
      strike(flags_.text("how", "kill"), rank_, fmt::format("{} us into it", after), 0);
    }).detach();
  }

  Status one_call(Pair pair) {
    ExactCall call(*group_, {.collective = pair.first,
                             .algorithm = pair.second,
                             .count = static_cast<std::size_t>(flags_.number("count", 16384))});
    call.prepare(moment());
    if (watching_ && !shape_of(pair.first).has_data()) strike_soon();
    operation_ = fmt::format("{}:{}", to_string(pair.first), to_string(pair.second));
    const std::chrono::duration<double> timeout(flags_.number("timeout", 60));
    const Status status =
        call.run(*group_, std::chrono::duration_cast<std::chrono::nanoseconds>(timeout));
    if (!status.ok()) return status;
    if (const std::string wrong = call.difference(); !wrong.empty()) {
      std::printf("%s\n", Json{{"rank", rank_}, {"wrong", wrong}}.dump().c_str());
      std::fflush(stdout);
    }
    ++done_;
    if (at_ == "between" && done_ == static_cast<long>(flags_.number("after", 2)))
      struck("between operations");
    return {};
  }

  std::vector<Pair> pairs() const {
    const std::string op = flags_.text("op");
    if (op.empty()) return all_pairs(group_->size());
    const std::size_t colon = op.find(':');
    return {{*parse_collective(op.substr(0, colon)), *parse_algorithm(op.substr(colon + 1))}};
  }

  // Rank 0 says in each round whether there is another.
  Status work() {
    const std::vector<Pair> turns = pairs();
    const double end = now_s() + flags_.number("seconds", 1);
    for (std::uint8_t more = 1; more == 1;) {
      for (const Pair& pair : turns)
        if (Status status = one_call(pair); !status.ok()) return status;
      if (!said_ready_) say_ready();
      more = now_s() < end ? 1 : 0;
      operation_ = "broadcast:automatic";
      if (Status status = group_->broadcast(Buffer::of(&more, 1), 0); !status.ok()) return status;
    }
    return {};
  }

  // With fewer ranks, as often as one more is lost meanwhile.
  Status go_on() {
    Status status = group_->health();
    for (int losses = 0; status.code() == Code::peer_lost && losses < 3; ++losses) {
      at_ = "last";
      if (losses == 0 && flags_.names("then", rank_)) strike_soon();
      auto smaller = group_->shrink();
      if (!smaller.ok()) return smaller.status();
      group_ = *std::move(smaller);
      status = work();
    }
    return status;
  }

  void say_ready() {
    said_ready_ = true;
    std::printf("{\"rank\": %d, \"ready\": true, \"pid\": %d}\n", rank_, getpid());
    std::fflush(stdout);
    usleep(static_cast<useconds_t>(flags_.number("pause", 0) * 1e6));
  }

  int leave() {
    if (at_ == "destroy" && doomed_) {
      std::thread([this] {
        usleep(static_cast<useconds_t>(now_s() * 1e6) % 300);
        struck("in destroy");
      }).detach();
      group_.reset();
      pause();
    }
    if (at_ == "finalize" && doomed_) {
      static Rank* self = this;
      std::atexit([] { self->struck("in finalize"); });
      return tell("end", {});
    }
    group_.reset();
    return tell("end", {});
  }

  int tell(const char* stage, const Status& status) const {
    return LastWords{.rank = rank_, .stage = stage, .operation = operation_, .done = done_}.say(
        status);
  }

  Flags flags_;
  int rank_ = 0;
  bool doomed_ = false, said_ready_ = false, watching_ = false;
  std::string at_, operation_ = "init";
  long done_ = 0;
  std::atomic<bool> joined_{false};
  std::thread watcher_;
  std::shared_ptr<Group> group_;
};

int list_pairs() {
  for (const auto& [collective, algorithm] : all_pairs(4))
    std::printf("%s:%s\n", to_string(collective).data(), to_string(algorithm).data());
  return 0;
}

int main_of_rank(int count, char** arguments) {
  if (count == 2 && std::string(arguments[1]) == "--list") return list_pairs();
  auto flags = Flags::read(count, arguments);
  // In no stack frame: `finalize` looks at it from an exit handler.
  return flags ? (new Rank(*std::move(flags)))->live() : 2;
}

}  // namespace
}  // namespace tutti::test

int main(int count, char** arguments) { return tutti::test::main_of_rank(count, arguments); }
