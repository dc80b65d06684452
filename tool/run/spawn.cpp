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

// Pointers for exec, made before the fork: the child must not allocate.
std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

// Runs in the child: nothing but async-signal-safe calls.
[[noreturn]] void become(const SpawnOptions& launch, char* const* arguments,
                         char* const* environment, const GivenDescriptors& given, int failure,
                         pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
  for (int stream = 0; stream < 3; ++stream)
    ::dup2(given[static_cast<std::size_t>(stream)], stream);
  for (std::size_t i = 0; i < launch.inherited.size(); ++i)
    ::dup2(given[3 + i], launch.inherited[i]);
  ::setrlimit(RLIMIT_NOFILE, &launch.open_files);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGTTIN, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &launch.signal_mask, nullptr);
  ::execve(launch.path.c_str(), arguments, environment);
  const int error = errno;
  // bounded: a pipe takes so little at once.
  if (::write(failure, &error, sizeof error) < 0) ::_exit(126);
  ::_exit(127);
}

// Waits until the child runs its program: exec closes the pipe. 0, or the errno of an exec that failed.
int await_exec(int pipe) {
  int error = 0;
  ssize_t got = 0;
  // bounded: exec, or the child's end, closes the pipe.
  while ((got = ::read(pipe, &error, sizeof error)) < 0 && errno == EINTR) {
  }
  return got == sizeof error ? error : 0;
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

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_status("cannot make a pipe");
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

Started start_program(const SpawnOptions& launch, const std::vector<std::string>& environment,
                      const GivenDescriptors& given) {
  auto failure = make_pipe();
  if (!failure.ok()) return {-1, errno, 0};
  const std::vector<char*> argument_pointers = pointers(launch.arguments);
  const std::vector<char*> environment_pointers = pointers(environment);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return {-1, errno, 0};
  if (pid == 0)
    become(launch, argument_pointers.data(), environment_pointers.data(), given,
           failure->write.get(), parent);
  failure->write.reset();
  const int error = await_exec(failure->read.get());
  // bounded: it exits right after it has said why.
  if (error != 0) ::waitpid(pid, nullptr, 0);
  return {error == 0 ? pid : -1, 0, error};
}

Status failure_of(const Started& started, const std::string& path) {
  if (started.exec_error == 0)
    return {Code::io, fmt::format("cannot fork: {}", std::strerror(started.fork_error))};
  const char* hint =
      started.exec_error == ENOEXEC  ? "; a script begins with a line such as #!/bin/sh"
      : started.exec_error == ENOENT ? "; is the interpreter in its first line there?"
                                     : "";
  return {Code::invalid_argument,
          fmt::format("cannot run {}: {}{}", path, std::strerror(started.exec_error), hint)};
}

}  // namespace tutti::tool
