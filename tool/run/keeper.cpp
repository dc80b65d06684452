#include "tool/run/keeper.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "core/clock.hpp"
#include "tool/run/descendants.hpp"
#include "tool/run/job_folder.hpp"
#include "tool/run/keeper_words.hpp"

namespace tutti::tool {
namespace {

constexpr int kSocket = 0;   // of the keeper
constexpr int kIdle = 1000;  // ms
constexpr Nanoseconds kLongestWait = std::chrono::seconds(3);
// With a keeper that is stopped; the longest task, a sweep, takes a few seconds.
constexpr timeval kPatience{30, 0};
// Of a process that is nobody's child any more.
constexpr int kUnknownEnd = SIGKILL;

int wait_for(pid_t process) {
  int status = 0;
  pid_t got = 0;
  // bounded: it has ended, or SIGKILL is on its way.
  while ((got = ::waitpid(process, &status, 0)) < 0 && errno == EINTR) {
  }
  return got == process ? status : kUnknownEnd;
}

// The keeper's own life: one thread, no descriptors but its socket and one for deaths.
class Keeping {
 public:
  explicit Keeping(Keeper::Duties duties) : duties_(std::move(duties)) {}

  [[noreturn]] void run() {
    while (serve_one()) {
    }
    // First: a keeper above this one may be ending it, too.
    remove_job_socket(duties_.socket);
    for (const pid_t process : processes_) ::kill(-process, SIGKILL);
    if (!duties_.leave_daemons) kill_descendants({});
    ::_exit(0);
  }

 private:
  // Waits for a request and does it. What was left behind and has ended meanwhile is looked for when
  // nothing else is to be done: that walks through all processes of the host.
  bool serve_one() {
    pollfd events[] = {{kSocket, POLLIN, 0}, {deaths_.get(), POLLIN, 0}};
    // bounded: by the launcher's life: its end closes the socket.
    const int ready = ::poll(events, 2, somebody_ended_ ? kIdle : -1);
    if (ready < 0) return errno == EINTR;
    // Also where deaths follow one another without a pause.
    if (ready == 0 || (somebody_ended_ && steady_clock().now() - ended_since_ > kLongestWait)) {
      somebody_ended_ = false;
      reap_ended_children(processes_);
    }
    signalfd_siginfo info;
    // bounded: a signalfd that does not block.
    while (::read(deaths_.get(), &info, sizeof info) > 0)
      if (!std::exchange(somebody_ended_, true)) ended_since_ = steady_clock().now();
    if (events[0].revents == 0) return true;
    KeeperRequest request;
    std::string text;
    std::vector<Descriptor> descriptors;
    if (!take_request(kSocket, request, text, descriptors)) return false;
    KeeperAnswer answer;
    switch (request.task) {
      case KeeperTask::spawn: answer.started = spawn(text, std::move(descriptors)); break;
      case KeeperTask::reap: answer.wait_status = reap(request.process); break;
      case KeeperTask::sweep: kill_descendants(processes_); break;
    }
    return send_answer(kSocket, answer);
  }

  Started spawn(const std::string& text, std::vector<Descriptor> descriptors) {
    SpawnOptions launch;
    std::vector<std::string> environment;
    read_text_of(text, launch, environment);
    // Out of the way of the numbers that some of them are to have.
    int above = 3;
    for (const int number : launch.inherited) above = std::max(above, number + 1);
    GivenDescriptors given;
    for (Descriptor& descriptor : descriptors) {
      descriptor.reset(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, above));
      if (!descriptor) return {-1, errno, 0};
      given.push_back(descriptor.get());
    }
    const Started started = start_program(launch, environment, given);
    if (started.pid > 0) processes_.insert(started.pid);
    return started;
  }

  // The group's number cannot be anybody else's before its leader is reaped.
  int reap(pid_t process) {
    ::kill(-process, SIGKILL);
    processes_.erase(process);
    return wait_for(process);
  }

  static Descriptor notice_deaths() {
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    return Descriptor(::signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  Keeper::Duties duties_;
  Descriptor deaths_ = notice_deaths();
  std::set<pid_t> processes_;  // started and not reaped
  bool somebody_ended_ = false;
  Nanoseconds ended_since_{0};
};

[[noreturn]] void keep(int socket, Keeper::Duties duties) {
  ::setpgid(0, 0);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  if (!duties.leave_daemons) ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::dup2(socket, kSocket);
  ::close_range(1, ~0U, 0);
  // Numbers that programs expect to be their standard streams.
  ::dup2(kSocket, 1);
  ::dup2(kSocket, 2);
  ::fcntl(kSocket, F_SETFD, FD_CLOEXEC);
  ::fcntl(1, F_SETFD, FD_CLOEXEC);
  ::fcntl(2, F_SETFD, FD_CLOEXEC);
  Keeping(std::move(duties)).run();
}

}  // namespace

Result<Keeper> Keeper::start(Duties duties) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return errno_status("cannot make a socket");
  Descriptor theirs(ends[0]);
  Descriptor ours(ends[1]);
  for (const int wait : {SO_RCVTIMEO, SO_SNDTIMEO})
    ::setsockopt(ours.get(), SOL_SOCKET, wait, &kPatience, sizeof kPatience);
  const bool leave_daemons = duties.leave_daemons;
  const pid_t pid = ::fork();
  if (pid < 0) return errno_status("cannot fork");
  if (pid == 0) {
    ours.reset();
    keep(theirs.get(), std::move(duties));
  }
  // For what would be left if the keeper is killed.
  if (!leave_daemons) ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  return Keeper(std::move(ours), pid, leave_daemons);
}

Result<Child> Keeper::spawn(const SpawnOptions& launch, const std::vector<std::string>& environment,
                            int standard_input) {
  auto out = make_pipe();
  if (!out.ok()) return out.status();
  auto err = make_pipe();
  if (!err.ok()) return err.status();
  std::vector<int> given = {standard_input, out->write.get(), err->write.get()};
  given.insert(given.end(), launch.inherited.begin(), launch.inherited.end());
  KeeperAnswer answer;
  if (!send_request(socket_.get(), {KeeperTask::spawn}, to_text(launch, environment), given) ||
      !take_answer(socket_.get(), answer))
    return Status(Code::io, "the launcher's keeper is gone");
  if (answer.started.pid < 0) return failure_of(answer.started, launch.path);

  Child child;
  child.pid = answer.started.pid;
  child.death.reset(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  if (!child.death) {
    const Status status = errno_status("pidfd_open failed (Linux 5.3 or newer is needed)");
    ::kill(-child.pid, SIGKILL);
    reap(child.pid);
    return status;
  }
  child.out = std::move(out->read);
  child.err = std::move(err->read);
  if (Status status = set_nonblocking(child.out.get()); !status.ok()) return status;
  if (Status status = set_nonblocking(child.err.get()); !status.ok()) return status;
  return child;
}

int Keeper::reap(pid_t process) {
  KeeperAnswer answer;
  if (send_request(socket_.get(), {KeeperTask::reap, process}, {}, {}) &&
      take_answer(socket_.get(), answer))
    return answer.wait_status;
  return wait_for(process);  // the keeper is gone, and its children are ours
}

void Keeper::sweep() {
  if (leave_daemons_) return;
  KeeperAnswer answer;
  if (!send_request(socket_.get(), {KeeperTask::sweep}, {}, {}) ||
      !take_answer(socket_.get(), answer))
    kill_descendants({});
}

Keeper::~Keeper() {
  if (!socket_) return;
  socket_.reset();
  wait_for(pid_);
}

}  // namespace tutti::tool
