#include "support/children.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>

namespace tutti::test {
namespace {

thread_local int this_rank = -1;

// What travels through the pipe. At most PIPE_BUF bytes, so that one write is one report and the
// reports of several ranks do not mix.
struct ReportHead {
  int rank;
  int line;
  std::uint32_t file_bytes;
  std::uint32_t text_bytes;
};
constexpr std::size_t kMaxText = 3000;

void write_report(int descriptor, int rank, const char* file, int line, std::string text) {
  const std::string name = file ? file : "";
  text.resize(std::min(text.size(), kMaxText));
  const ReportHead head{rank, line, static_cast<std::uint32_t>(name.size()),
                        static_cast<std::uint32_t>(text.size())};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += name + text;
  if (write(descriptor, bytes.data(), bytes.size()) < 0) _exit(3);
}

// A skip here would be seen by nobody: whether a test can run is asked before its world is made.
class ReportFailures final : public testing::EmptyTestEventListener {
 public:
  explicit ReportFailures(int descriptor) : descriptor_(descriptor) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.passed()) return;
    const std::string text = result.message();
    write_report(descriptor_, this_rank, result.file_name(), result.line_number(),
                 result.skipped() ? "a rank skipped its test: " + text : text);
  }

 private:
  int descriptor_;
};

std::string words(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (int rank : ranks) text.append(" ").append(std::to_string(rank));
  return text;
}

// What is wrong with such an end; absent when it is as it should be. The doomed have to die, and by
// the one signal that a test sends: a sanitizer's report must not pass for their death.
std::optional<std::string> wrong_end(int status, bool doomed) {
  if (WIFSIGNALED(status)) {
    if (doomed && WTERMSIG(status) == SIGKILL) return std::nullopt;
    return std::string(" was killed by signal ") + strsignal(WTERMSIG(status));
  }
  if (WEXITSTATUS(status) != 0)
    return " exited with status " + std::to_string(WEXITSTATUS(status)) +
           " (its assertions would leave 0: look for a sanitizer's report)";
  if (doomed) return std::string(" was to die, and lived to its end");
  return std::nullopt;
}

}  // namespace

Children::Children(std::chrono::seconds limit, std::vector<int> doomed)
    : deadline_(std::chrono::steady_clock::now() + limit), doomed_(std::move(doomed)) {
  if (pipe2(pipe_, O_CLOEXEC) != 0) std::abort();
}

Children::~Children() {
  end(false);
  close(pipe_[0]);
  if (pipe_[1] >= 0) close(pipe_[1]);
}

void Children::fork(const std::vector<int>& ranks, const std::function<void()>& life) {
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = ::fork();
  if (pid < 0) std::abort();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(3);
    setpgid(0, 0);  // with all that it forks
    this_rank = ranks.front();
    live(life);
  }
  setpgid(pid, pid);  // whoever of the two comes first
  const bool doomed = std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
    return std::find(doomed_.begin(), doomed_.end(), rank) != doomed_.end();
  });
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  children_.push_back({pid, pidfd, ranks, doomed});
}

void Children::live(const std::function<void()>& life) {
  close(pipe_[0]);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new ReportFailures(pipe_[1]));  // the listeners own it
  life();
  // exit, not _exit: sanitizers look for leaks there. Zero also after failed assertions, which are
  // in the pipe: every other status is then somebody else's, a sanitizer's above all.
  std::exit(0);
}

std::vector<Failure> Children::wait() {
  close(pipe_[1]);
  pipe_[1] = -1;
  while (any_running(false) && std::chrono::steady_clock::now() < deadline_) {
    sleep_until(deadline_);
    read_reports();
    reap();
  }
  await_the_doomed();
  end(any_running(false));
  read_reports();
  return std::move(failures_);
}

// To their death, or until they have stopped: one that is killed while it writes a sanitizer's report
// would seem to have died as it should.
void Children::await_the_doomed() {
  const auto alive = [](const Child& child) {
    return child.running && child.doomed && !child.stopped;
  };
  while (std::any_of(children_.begin(), children_.end(), alive) &&
         std::chrono::steady_clock::now() < deadline_) {
    sleep_until(std::chrono::steady_clock::now() + std::chrono::milliseconds(5));
    read_reports();
    reap();
  }
  for (const Child& child : children_)
    if (alive(child))
      failures_.push_back({child.ranks.front(), __FILE__, __LINE__,
                           words(child.ranks) + " was to die or to stop, and did neither"});
}

bool Children::any_running(bool doomed_too) const {
  return std::any_of(children_.begin(), children_.end(), [&](const Child& child) {
    return child.running && (doomed_too || !child.doomed);
  });
}

void Children::sleep_until(Time deadline) {
  using std::chrono::milliseconds;
  std::vector<pollfd> watched{{pipe_[0], POLLIN, 0}};
  for (const Child& child : children_)
    if (child.running) watched.push_back({child.pidfd, POLLIN, 0});
  const auto left = deadline - std::chrono::steady_clock::now();
  const auto wait = std::chrono::duration_cast<milliseconds>(left) + milliseconds(1);
  poll(watched.data(), watched.size(), static_cast<int>(std::max<long>(wait.count(), 0)));
}

void Children::read_reports() {
  char bytes[1 << 16];
  pollfd ready{pipe_[0], POLLIN, 0};
  while (poll(&ready, 1, 0) > 0) {
    const ssize_t got = read(pipe_[0], bytes, sizeof bytes);
    if (got <= 0) break;
    unread_.append(bytes, static_cast<std::size_t>(got));
  }
  ReportHead head;
  while (unread_.size() >= sizeof head) {
    std::memcpy(&head, unread_.data(), sizeof head);
    const std::size_t whole = sizeof head + head.file_bytes + head.text_bytes;
    if (unread_.size() < whole) break;
    failures_.push_back({head.rank, unread_.substr(sizeof head, head.file_bytes), head.line,
                         unread_.substr(sizeof head + head.file_bytes, head.text_bytes)});
    unread_.erase(0, whole);
  }
}

void Children::reap() {
  for (Child& child : children_) {
    int status = 0;
    if (!child.running || waitpid(child.pid, &status, WNOHANG | WUNTRACED) != child.pid) continue;
    child.stopped = WIFSTOPPED(status);
    if (child.stopped) continue;
    child.running = false;
    close(child.pidfd);
    if (const auto wrong = wrong_end(status, child.doomed))
      failures_.push_back({child.ranks.front(), __FILE__, __LINE__, words(child.ranks) + *wrong});
  }
}

// Kills those that are left, and what they have forked: it would keep the test's output open, and ctest waiting for its
// end. When they are overdue it asks for their flight recorders first, which go to stderr, and gives them a moment to write.
void Children::end(bool overdue) {
  if (overdue) {
    for (const Child& child : children_) {
      if (!child.running || child.doomed) continue;
      failures_.push_back({child.ranks.front(), __FILE__, __LINE__,
                           words(child.ranks) + " did not end in time and was killed"});
      kill(child.pid, SIGUSR1);
    }
    sleep_until(std::chrono::steady_clock::now() + std::chrono::milliseconds(500));
  }
  for (Child& child : children_) {
    if (!child.running) continue;
    kill(-child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
    child.running = false;
    close(child.pidfd);
  }
}

void on_threads(const std::vector<int>& ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < ranks.size(); ++i)
    threads.emplace_back([&, rank = ranks[i]] {
      this_rank = rank;
      body(rank);
    });
  body(ranks.front());
  for (std::thread& thread : threads) thread.join();
}

int listen_on(const std::string& host, std::string& address) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  inet_pton(AF_INET, host.c_str(), &where.sin_addr);
  socklen_t length = sizeof where;
  if (bind(descriptor, reinterpret_cast<sockaddr*>(&where), length) != 0 ||
      listen(descriptor, 64) != 0 ||
      getsockname(descriptor, reinterpret_cast<sockaddr*>(&where), &length) != 0)
    std::abort();
  address = host + ":" + std::to_string(ntohs(where.sin_port));
  return descriptor;
}

void close_descriptor(int descriptor) { close(descriptor); }

}  // namespace tutti::test
