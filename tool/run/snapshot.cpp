#include "tool/run/snapshot.hpp"

#include <algorithm>
#include <cstring>

#include "core/json.hpp"

namespace tutti::tool {
namespace {

// Calls that are over sooner are noted only now and then, so a shorter wait says nothing.
constexpr std::int64_t kShortestWait = 2'000'000;  // ns

// Every job's first group.
constexpr const char* kWorld = "world";

bool same_group(const BoardNote& a, const BoardNote& b) {
  return std::strncmp(a.group, b.group, sizeof a.group) == 0;
}

// Whether `other` has yet to come to the call that `self` is in.
bool is_awaited(const BoardNote& self, const RankView& other) {
  if (!other.note) return true;
  const bool is_there = other.note->state != BoardState::waiting;
  if (same_group(self, *other.note))
    return other.note->sequence < self.sequence + (is_there ? 0 : 1);
  return std::strncmp(self.group, kWorld, sizeof self.group) == 0;
}

// JSON must be UTF-8.
std::string clean(const char* text, std::size_t room) {
  return printable(std::string(text, ::strnlen(text, room)));
}

Json describe(const RankView& rank, const std::vector<int>& awaited, Nanoseconds now) {
  Json row = {{"rank", rank.rank}, {"pid", rank.pid}, {"alive", rank.alive}};
  if (!rank.label.empty()) row["label"] = printable(rank.label);
  if (!rank.alive) row["exit_code"] = rank.exit_code;
  if (!rank.note) {
    row["state"] = rank.alive ? "starting" : "ended";
    row["waits_for"] = Json::array();
    return row;
  }
  const BoardNote& note = *rank.note;
  row["state"] = rank.alive ? to_string(note.state) : "ended";
  row.update(note_fields(note));
  row["for_s"] = std::max(0.0, static_cast<double>(now.count() - note.time_ns) * 1e-9);
  row["calls"] = note.calls;
  row["bytes"] = note.bytes;
  row["waits_for"] = awaited;
  return row;
}

}  // namespace

std::string printable(std::string text) {
  for (char& letter : text)
    if (static_cast<unsigned char>(letter) < 0x20 || static_cast<unsigned char>(letter) > 0x7e)
      letter = '?';
  return text;
}

Json note_fields(const BoardNote& note) {
  return {{"operation", clean(note.operation, sizeof note.operation)},
          {"group", clean(note.group, sizeof note.group)},
          {"sequence", note.sequence},
          {"operation_bytes", note.size},
          {"dtype", to_string(note.dtype)}};
}

std::vector<std::vector<int>> waits_for(const JobView& view) {
  std::vector<std::vector<int>> awaited(view.ranks.size());
  for (std::size_t i = 0; i < view.ranks.size(); ++i) {
    const RankView& self = view.ranks[i];
    if (!self.alive || !self.note || self.note->state != BoardState::running) continue;
    if (view.now.count() - self.note->time_ns < kShortestWait) continue;
    for (const RankView& other : view.ranks)
      if (other.rank != self.rank && is_awaited(*self.note, other))
        awaited[i].push_back(other.rank);
  }
  return awaited;
}

std::string to_json(const JobView& view) {
  const auto awaited = waits_for(view);
  Json ranks = Json::array();
  for (std::size_t i = 0; i < view.ranks.size(); ++i)
    ranks.push_back(describe(view.ranks[i], awaited[i], view.now));
  const Json document = {{"format", "tutti job 1"},
                         {"job", view.job},
                         {"launcher_pid", view.launcher},
                         {"host", view.host},
                         {"program", view.program},
                         {"node", view.node},
                         {"nodes", view.nodes},
                         {"ranks_in_job", view.ranks_in_job},
                         {"up_s", static_cast<double>(view.up.count()) * 1e-9},
                         {"time_s", static_cast<double>(view.now.count()) * 1e-9},
                         {"ranks", ranks}};
  // A program's name may be any bytes.
  return document.dump_ascii();
}

}  // namespace tutti::tool
