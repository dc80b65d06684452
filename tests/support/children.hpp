// support/children.hpp - forked processes whose failed assertions reach the parent, and which never
// outlive it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "support/worlds.hpp"

namespace tutti::test {

class Children {
 public:
  // `doomed` ranks have to die by SIGKILL or to stop.
  Children(std::chrono::seconds limit, std::vector<int> doomed);
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  // Runs `life` in a new process that stands for `ranks`. The caller must have no other threads.
  void fork(const std::vector<int>& ranks, const std::function<void()>& life);
  // Until all have ended, or the limit has passed and those that remain were killed.
  std::vector<Failure> wait();

 private:
  struct Child {
    pid_t pid;
    int pidfd;
    std::vector<int> ranks;
    bool doomed;
    bool running = true;
    bool stopped = false;
  };
  using Time = std::chrono::steady_clock::time_point;

  [[noreturn]] void live(const std::function<void()>& life);
  bool any_running(bool doomed_too) const;
  void sleep_until(Time deadline);
  void read_reports();
  void reap();
  void await_the_doomed();
  void end(bool overdue);

  Time deadline_;
  std::vector<int> doomed_;
  std::vector<Child> children_;
  std::vector<Failure> failures_;
  std::string unread_;
  int pipe_[2];
};

// `body(rank)` for each, in a thread of its own when there are several.
void on_threads(const std::vector<int>& ranks, const std::function<void(int)>& body);

// A socket that listens at a free port of `host`; `address` becomes "host:port".
int listen_on(const std::string& host, std::string& address);
void close_descriptor(int descriptor);

}  // namespace tutti::test
