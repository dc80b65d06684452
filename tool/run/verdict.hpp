// tool/run/verdict.hpp - who failed first, and what is known about it, in a few lines.
#pragma once

#include <sys/types.h>

#include <deque>
#include <optional>
#include <string>

#include "core/board.hpp"
#include "core/clock.hpp"

namespace tutti::tool {

// 128 + signal for a process that was killed.
int exit_code_of(int wait_status);

// How one rank ended.
struct Ending {
  int rank = 0;
  std::string host;
  pid_t pid = 0;
  int wait_status = 0;
  Nanoseconds at{0};     // of steady_clock()
  Nanoseconds after{0};  // since the job began
  std::string why{};     // what more is known, for the end of the sentence
  std::string label{};   // what the program calls it

  bool failed() const { return wait_status != 0; }
  int exit_code() const { return exit_code_of(wait_status); }
};

std::string host_name();
// "SIGKILL".
std::string signal_name(int signal);

// "rank 2 (host a, pid 4182) was killed by signal 9 (SIGKILL) after 3.2 s"; with a label
// "rank 2 (dp 1, tp 0; host a, pid 4182) …".
std::string describe(const Ending& ending);
// "it was in all_reduce (4 MiB, f32), the 17th operation of group 'world', for 1.3 s"; says so when
// nothing was noted.
std::string describe_operation(const std::optional<BoardNote>& note, Nanoseconds ended_at);
// Whether another attempt would end like this one: exit codes that shells and command line parsers
// use for "I cannot even begin".
bool is_hopeless(int exit_code);
// "rank 1 … was killed by signal 9 (SIGKILL) after 3.2 s; restart 1 of 3".
std::string restart_words(const std::string& sentence, int restart, int max_restarts);
// All of it, each line with a newline.
std::string verdict(const Ending& ending, const std::optional<BoardNote>& note,
                    const std::deque<std::string>& last_lines);

}  // namespace tutti::tool
