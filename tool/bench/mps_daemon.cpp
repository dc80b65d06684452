#include "tool/bench/mps_daemon.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "core/clock.hpp"
#include "core/files.hpp"
#include "core/sockets.hpp"

namespace tutti::tool {
namespace {

constexpr const char* kControl = "nvidia-cuda-mps-control";
constexpr const char* kPipeDirectory = "CUDA_MPS_PIPE_DIRECTORY";
constexpr const char* kLogDirectory = "CUDA_MPS_LOG_DIRECTORY";
constexpr std::chrono::seconds kPatience{20};

// Runs it with its input and output in files of the folder; its exit code, -1 where it does not end in time. The
// daemon keeps what it was started with: never a pipe that somebody reads to its end.
int run_control(const std::string& folder, bool as_daemon) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  const std::string input = as_daemon ? "/dev/null" : folder + "/orders";
  const std::string output = folder + "/said";
  ::posix_spawn_file_actions_addopen(&actions, 0, input.c_str(), O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
  ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
  std::string name = kControl;
  std::string flag = "-d";
  char* const arguments[] = {name.data(), as_daemon ? flag.data() : nullptr, nullptr};
  pid_t pid = 0;
  const int failure = ::posix_spawnp(&pid, kControl, &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return 127;
  const Nanoseconds last = deadline_after(steady_clock().now(), kPatience);
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (steady_clock().now() > last) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);  // bounded: it was killed
      return -1;
    }
    ::usleep(2000);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// By the number that it leaves in its pipe directory; 0: it is not there.
pid_t daemon_process(const std::string& folder) {
  const std::string number = read_text(fmt::format("{}/pipe/{}.pid", folder, kControl));
  const pid_t pid = std::atoi(number.c_str());
  if (pid <= 1) return 0;
  const std::string command = read_text(fmt::format("/proc/{}/cmdline", pid));
  return command.find("mps-control") != std::string::npos ? pid : 0;
}

}  // namespace

Result<std::unique_ptr<MpsDaemon>> MpsDaemon::start() {
  // Its sockets lie there, and their names may have no more than 107 bytes.
  std::string folder = "/tmp/tutti_mps_XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr)
    return errno_status("no folder for an MPS daemon in /tmp");
  std::unique_ptr<MpsDaemon> daemon(new MpsDaemon(folder));
  for (const auto& [variable, name] :
       {std::pair(kPipeDirectory, "/pipe"), {kLogDirectory, "/log"}}) {
    ::mkdir((folder + name).c_str(), 0700);
    ::setenv(variable, (folder + name).c_str(), 1);
  }
  const int code = run_control(folder, true);
  if (code == 0) return daemon;
  return Status(Code::unsupported,
                code == 127
                    ? fmt::format("--mps: {} is not on the PATH", kControl)
                    : fmt::format("--mps: {} -d {}: {}", kControl,
                                  code < 0 ? "does not end" : fmt::format("ended with {}", code),
                                  read_text(folder + "/said")));
}

MpsDaemon::~MpsDaemon() {
  const pid_t pid = daemon_process(folder_);
  if (const Descriptor orders(
          ::open((folder_ + "/orders").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
      orders && ::write(orders.get(), "quit\n", 5) == 5)
    run_control(folder_, false);
  const Nanoseconds last = deadline_after(steady_clock().now(), std::chrono::seconds(5));
  while (pid != 0 && daemon_process(folder_) == pid) {
    if (steady_clock().now() > last) ::kill(pid, SIGKILL);
    ::usleep(10000);
    if (steady_clock().now() > deadline_after(last, std::chrono::seconds(1))) break;
  }
  for (const char* variable : {kPipeDirectory, kLogDirectory}) ::unsetenv(variable);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace tutti::tool
