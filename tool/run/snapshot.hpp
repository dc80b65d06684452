// tool/run/snapshot.hpp - what a launcher knows of its ranks at one moment, for `tutti show job`.
//
// docs/formats/job_socket.md has its JSON. Pure: who waits for whom is read off the ranks' notes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/board.hpp"
#include "core/clock.hpp"
#include "core/json.hpp"

namespace tutti::tool {

struct RankView {
  int rank = 0;
  int pid = 0;
  bool alive = true;
  int exit_code = 0;  // when not alive; 128 + signal
  std::optional<BoardNote> note;
  std::string label{};  // what the program calls it
};

struct JobView {
  std::string job;
  int launcher = 0;  // pid
  std::string host;
  std::string program;  // its name only: arguments may be nobody's business
  int node = 0;
  int nodes = 1;
  int ranks_in_job = 1;
  Nanoseconds up{0};
  Nanoseconds now{0};           // of steady_clock(), as the notes are
  std::vector<RankView> ranks;  // of this launcher
};

// For each rank of the view the ranks of the view that it waits for: it is in the middle of a call
// of a group, and they have not come to that call yet. A rank that is in another group may or may
// not be a member; it counts only where the group is the world.
std::vector<std::vector<int>> waits_for(const JobView& view);

// A rank may write into its line what it likes: what is not printable ASCII becomes '?'.
std::string printable(std::string text);
// The operation that a note tells of: its name, group, number, elements.
Json note_fields(const BoardNote& note);

// One line, without its end.
std::string to_json(const JobView& view);

}  // namespace tutti::tool
