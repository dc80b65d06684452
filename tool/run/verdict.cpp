#include "tool/run/verdict.hpp"

#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "core/clock.hpp"
#include "tool/bench/arithmetic.hpp"

namespace tutti::tool {
namespace {

std::string_view text_of(const char* field, std::size_t size) {
  return {field, ::strnlen(field, size)};
}

// "17th".
std::string ordinal(std::uint64_t number) {
  const std::uint64_t last = number % 10;
  const bool teen = number / 10 % 10 == 1;
  const char* ending = teen ? "th" : last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th";
  return fmt::format("{}{}", number, ending);
}

// "in all_reduce (4 MiB, f32), the 17th operation of group 'world'", "creating group 'world'".
std::string name_doing(const BoardNote& note) {
  const std::string_view operation = text_of(note.operation, sizeof note.operation);
  const std::string_view group = text_of(note.group, sizeof note.group);
  if (operation.empty()) return fmt::format("in group '{}'", group);
  if (note.sequence == 0) return fmt::format("{} '{}'", operation, group);
  const std::string size =
      note.size > 0 ? fmt::format(" ({}, {})", size_words(note.size), to_string(note.dtype)) : "";
  return fmt::format("in {}{}, the {} operation of group '{}'", operation, size,
                     ordinal(note.sequence), group);
}

}  // namespace

int exit_code_of(int wait_status) {
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
  const std::string who = fmt::format("rank {} ({}{}host {}, pid {})", ending.rank, ending.label,
                                      ending.label.empty() ? "" : "; ", ending.host, ending.pid);
  return fmt::format("{} {}{} after {:.1f} s{}", who, describe_ending(ending.wait_status),
                     WCOREDUMP(ending.wait_status) ? ", core dumped," : "",
                     in_seconds(ending.after), ending.why);
}

std::string describe_operation(const std::optional<BoardNote>& note, Nanoseconds ended_at) {
  if (!note || note->state == BoardState::nothing) return "it had not called tutti";
  const double ago = std::max(0.0, in_seconds(ended_at - Nanoseconds(note->time_ns)));
  const std::string doing = name_doing(*note);
  switch (note->state) {
    case BoardState::running: return fmt::format("it was {}, for {:.1f} s", doing, ago);
    case BoardState::waiting:
      return fmt::format("it was {}, which waited for another operation to end, for {:.1f} s",
                         doing, ago);
    case BoardState::done:
      return fmt::format("it was last {}, which was done {:.1f} s earlier", doing, ago);
    case BoardState::failed:
      return fmt::format("it was last {}, which failed {:.1f} s earlier", doing, ago);
    case BoardState::nothing: break;
  }
  return doing;
}

bool is_hopeless(int exit_code) { return exit_code == 2 || exit_code == 126 || exit_code == 127; }

std::string restart_words(const std::string& sentence, int restart, int max_restarts) {
  return fmt::format("{}; restart {} of {}", sentence, restart, max_restarts);
}

std::string verdict(const Ending& ending, const std::optional<BoardNote>& note,
                    const std::deque<std::string>& last_lines) {
  std::string text =
      fmt::format("tutti run: {}\n  {}\n", describe(ending), describe_operation(note, ending.at));
  if (last_lines.empty()) return text + "  it wrote nothing to stderr\n";
  text += "  last lines of its stderr:\n";
  for (const std::string& line : last_lines) text += fmt::format("    {}\n", line);
  return text;
}

}  // namespace tutti::tool
