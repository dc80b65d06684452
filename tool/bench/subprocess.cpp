#include "tool/bench/subprocess.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/clock.hpp"
#include "core/sockets.hpp"
#include "tool/interruption.hpp"

namespace tutti::tool {
namespace {

constexpr std::chrono::seconds kGrace{2};
constexpr std::chrono::seconds kGraceInterrupted{1};  // somebody waits for the end

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> merged_environment(const std::vector<std::string>& more) {
  std::vector<std::string> all = more;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const bool replaced = std::any_of(
        more.begin(), more.end(), [&](const std::string& own) { return own.starts_with(name); });
    if (!replaced) all.emplace_back(text);
  }
  return all;
}

// Children that lost their parent come to this process; it ends them.
void end_strays() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (int round = 0; round < 50; ++round) {
    std::ifstream file(fmt::format("/proc/self/task/{}/children", ::getpid()));
    bool any = false;
    for (pid_t pid = 0; file >> pid; any = true) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (!any) return;
    ::usleep(10000);
  }
}

class Programs {
 public:
  explicit Programs(const std::vector<CommandLine>& commands) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    errors_.reset(::memfd_create("bench_stderr", MFD_CLOEXEC));
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    output_.reset(ends[0]);
    Descriptor write(ends[1]);
    for (const CommandLine& command : commands) start(command, write.get());
  }

  SubprocessResult finish(std::chrono::seconds limit) {
    const Nanoseconds deadline = deadline_after(steady_clock().now(), limit);
    Nanoseconds killing = deadline_after(deadline, kGrace);
    bool asked = false;
    bool killed = false;
    while (!children_.empty() && !killed) {
      drain(50);
      reap();
      const Nanoseconds now = steady_clock().now();
      if (!children_.empty() && !asked && (now > deadline || interruption() != 0)) {
        asked = true;
        outcome_.timed_out = interruption() == 0;
        if (interruption() != 0) killing = deadline_after(now, kGraceInterrupted);
        send(SIGTERM);
      }
      if (!children_.empty() && now > killing) {
        send(SIGKILL);
        killed = true;
      }
    }
    end_strays();
    drain(0);
    outcome_.complaint = last_line();
    return outcome_;
  }

 private:
  void start(const CommandLine& command, int output) {
    std::vector<std::string> words = command.words;
    std::vector<std::string> environment = merged_environment(command.environment);
    const std::vector<char*> arguments = pointers(words);
    const std::vector<char*> variables = pointers(environment);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) outcome_.exit_code = 1;
    if (pid > 0) children_.push_back(pid);
    if (pid != 0) return;
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, 0);
    ::dup2(output, 1);
    ::dup2(errors_.get(), 2);
    ::execvpe(arguments[0], arguments.data(), variables.data());
    ::dprintf(2, "cannot run %s: %s\n", arguments[0], std::strerror(errno));
    ::_exit(127);
  }
  void send(int signal) const {
    for (const pid_t child : children_) ::kill(-child, signal);
  }
  void drain(int wait_ms) {
    pollfd event{output_.get(), POLLIN, 0};
    char block[65536];
    while (output_ && ::poll(&event, 1, wait_ms) > 0) {
      const ssize_t got = ::read(output_.get(), block, sizeof block);
      if (got <= 0) {
        ::usleep(static_cast<useconds_t>(wait_ms) * 1000);  // closed; the end is near
        return;
      }
      outcome_.output.append(block, static_cast<std::size_t>(got));
      wait_ms = 0;
    }
  }
  void reap() {
    for (auto child = children_.begin(); child != children_.end();) {
      int status = 0;
      if (::waitpid(*child, &status, WNOHANG) != *child) {
        ++child;
        continue;
      }
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (outcome_.exit_code == 0) outcome_.exit_code = code;
      child = children_.erase(child);
    }
  }
  std::string last_line() const {
    char text[2048];
    const off_t size = ::lseek(errors_.get(), 0, SEEK_END);
    const ssize_t got = ::pread(errors_.get(), text, sizeof text,
                                std::max<off_t>(0, size - static_cast<off_t>(sizeof text)));
    std::string tail(text, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    // Rulers and blank lines say nothing.
    const auto says = [](std::string_view line) {
      return line.find_first_not_of("-=* \t\r") != std::string_view::npos;
    };
    while (!tail.empty()) {
      const std::size_t end = tail.rfind('\n');
      std::string line = tail.substr(end == std::string::npos ? 0 : end + 1);
      tail.resize(end == std::string::npos ? 0 : end);
      if (says(line)) return line;
    }
    return "";
  }

  std::vector<pid_t> children_;
  Descriptor output_;
  Descriptor errors_;
  SubprocessResult outcome_;
};

}  // namespace

SubprocessResult run_together(const std::vector<CommandLine>& commands,
                              std::chrono::seconds limit) {
  Programs programs(commands);
  return programs.finish(limit);
}

}  // namespace tutti::tool
