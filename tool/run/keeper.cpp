#include "tool/run/keeper.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "tool/run/job_folder.hpp"

namespace tutti::tool {
namespace {

[[noreturn]] void keep(int pipe, const std::string& socket) {
  // A session of its own: whatever ends the launcher's process group must not end the keeper.
  ::setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  ::dup2(pipe, 0);
  ::close_range(1, ~0U, 0);

  std::vector<pid_t> groups;
  pid_t word = 0;
  for (;;) {
    const ssize_t got = ::read(0, &word, sizeof word);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof word) break;
    if (word > 0)
      groups.push_back(word);
    else
      groups.erase(std::remove(groups.begin(), groups.end(), -word), groups.end());
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  remove_job_socket(socket);
  ::_exit(0);
}

}  // namespace

Result<Keeper> Keeper::start(const std::string& socket) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_status("cannot make a pipe");
  Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return errno_status("cannot fork");
  if (pid == 0) {
    write_end.reset();
    keep(read_end.get(), socket);
  }
  return Keeper(std::move(write_end), pid);
}

void Keeper::tell(pid_t word) {
  // A pipe takes such a small write whole. If the keeper is gone, that is no reason to end the job.
  if (::write(pipe_.get(), &word, sizeof word) < 0) return;
}

Keeper::~Keeper() {
  if (!pipe_) return;
  pipe_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace tutti::tool
