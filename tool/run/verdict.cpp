#include "tool/run/verdict.hpp"

#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "core/clock.hpp"

namespace tutti::tool {
namespace {

std::string_view text_of(const char* field, std::size_t size) {
  return {field, ::strnlen(field, size)};
}

}  // namespace

int Ending::exit_code() const {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "?";
  return name.data();
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

std::string describe(const Ending& ending) {
  const std::string who =
      fmt::format("rank {} (host {}, pid {})", ending.rank, ending.host, ending.pid);
  const double after = in_seconds(ending.after);
  if (!WIFSIGNALED(ending.wait_status))
    return fmt::format("{} exited with code {} after {:.1f} s", who, ending.exit_code(), after);
  const int signal = WTERMSIG(ending.wait_status);
  return fmt::format("{} was killed by signal {} ({}){} after {:.1f} s", who, signal,
                     signal_name(signal), WCOREDUMP(ending.wait_status) ? ", core dumped," : "",
                     after);
}

std::string describe_operation(const std::optional<BoardNote>& note, Nanoseconds ended_at) {
  if (!note || note->state == BoardState::nothing) return "none that tutti knows of";
  const double ago = std::max(0.0, in_seconds(ended_at - Nanoseconds(note->time_ns)));
  std::string text = fmt::format("{} #{} on '{}'", text_of(note->operation, sizeof note->operation),
                                 note->sequence, text_of(note->group, sizeof note->group));
  switch (note->state) {
    case BoardState::running:
      return text + fmt::format(", running for {:.1f} s when it ended", ago);
    case BoardState::done: return text + fmt::format(", done {:.1f} s before it ended", ago);
    case BoardState::failed: return text + fmt::format(", failed {:.1f} s before it ended", ago);
    case BoardState::nothing: break;
  }
  return text;
}

std::string verdict(const Ending& ending, const std::optional<BoardNote>& note,
                    const std::deque<std::string>& last_lines) {
  std::string text = fmt::format("tutti run: {}\n  last operation: {}\n", describe(ending),
                                 describe_operation(note, ending.at));
  if (last_lines.empty()) return text + "  it wrote nothing to stderr\n";
  text += "  last lines of its stderr:\n";
  for (const std::string& line : last_lines) text += fmt::format("    {}\n", line);
  return text;
}

}  // namespace tutti::tool
