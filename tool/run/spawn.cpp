#include "tool/run/spawn.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/words.hpp"

namespace tutti::tool {
namespace {

struct Pipe {
  Descriptor read;
  Descriptor write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_status("cannot make a pipe");
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

// Pointers for exec, made before the fork: the child must not allocate.
std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

struct Streams {
  int in;
  int out;
  int err;
  int failure;  // where the errno of a failed exec goes
};

// Runs in the child of a process with threads: nothing but async-signal-safe calls.
[[noreturn]] void become(const SpawnOptions& launch, char* const* arguments,
                         char* const* environment, const Streams& streams, pid_t launcher) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(127);  // it died before the line above
  ::dup2(streams.in, 0);
  ::dup2(streams.out, 1);
  ::dup2(streams.err, 2);
  for (const int descriptor : launch.inherited) ::fcntl(descriptor, F_SETFD, 0);
  ::setrlimit(RLIMIT_NOFILE, &launch.open_files);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGTTIN, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &launch.signal_mask, nullptr);
  ::execve(launch.path.c_str(), arguments, environment);
  const int error = errno;
  if (::write(streams.failure, &error, sizeof error) < 0) ::_exit(126);
  ::_exit(127);
}

// Waits until the child runs its program: exec closes the pipe.
Status await_exec(int pipe, pid_t pid, const std::string& path) {
  int error = 0;
  ssize_t got = 0;
  while ((got = ::read(pipe, &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got != sizeof error) return {};
  ::waitpid(pid, nullptr, 0);
  const char* hint = error == ENOEXEC  ? "; a script begins with a line such as #!/bin/sh"
                     : error == ENOENT ? "; is the interpreter in its first line there?"
                                       : "";
  return {Code::invalid_argument,
          fmt::format("cannot run {}: {}{}", path, std::strerror(error), hint)};
}

bool is_runnable(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

Result<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (is_runnable(name)) return name;
    const char* why = ::access(name.c_str(), F_OK) == 0 ? "it is not an executable file"
                                                        : "there is no such file";
    return Status(Code::invalid_argument, fmt::format("cannot run '{}': {}", name, why));
  }
  const char* path = std::getenv("PATH");
  for (std::string_view folder : split_words(path ? path : "/usr/bin:/bin", ':')) {
    std::string candidate = fmt::format("{}/{}", folder, name);
    if (is_runnable(candidate)) return candidate;
  }
  const bool here = is_runnable(fmt::format("./{}", name));
  return Status(Code::invalid_argument,
                fmt::format("cannot find program '{}' in PATH{}", name,
                            here ? fmt::format("; do you mean ./{}?", name) : ""));
}

Result<Child> spawn(const SpawnOptions& launch, const std::vector<std::string>& environment,
                    int standard_input) {
  auto out = make_pipe();
  if (!out.ok()) return out.status();
  auto err = make_pipe();
  if (!err.ok()) return err.status();
  auto failure = make_pipe();
  if (!failure.ok()) return failure.status();

  const std::vector<char*> argument_pointers = pointers(launch.arguments);
  const std::vector<char*> environment_pointers = pointers(environment);
  const Streams streams{standard_input, out->write.get(), err->write.get(), failure->write.get()};
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return errno_status("cannot fork");
  if (pid == 0)
    become(launch, argument_pointers.data(), environment_pointers.data(), streams, launcher);

  failure->write.reset();
  if (Status status = await_exec(failure->read.get(), pid, launch.path); !status.ok())
    return status;
  Child child;
  child.pid = pid;
  child.death.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!child.death) {
    const Status status = errno_status("pidfd_open failed (Linux 5.3 or newer is needed)");
    ::kill(-pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return status;
  }
  child.out = std::move(out->read);
  child.err = std::move(err->read);
  if (Status status = set_nonblocking(child.out.get()); !status.ok()) return status;
  if (Status status = set_nonblocking(child.err.get()); !status.ok()) return status;
  return child;
}

}  // namespace tutti::tool
