// engine/meetings.hpp - what members of a group have said about groups that are to be made of them.
//
// A rank that calls for a group from a list says so to everybody on it: a report. When it has heard
// the same from all of them it consents; when its call fails it refuses. So what a peer says is a row
// of reports, each followed by one of the two. Calls are told apart by their tags, because threads
// may make several at once.
//
// Thread-safety  any thread, any method.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::engine {

enum class MeetingWord : std::uint8_t { report, consent, refusal };

struct MeetingNote {
  MeetingWord word = MeetingWord::report;
  std::string words;
};

class Meetings {
 public:
  void put(int peer, std::uint32_t tag, MeetingNote note);

  // A call begins that needs `peers`: calls of theirs that are over by now are none of its business.
  void begin(std::span<const int> peers, std::uint32_t tag);
  void end(std::span<const int> peers, std::uint32_t tag);
  bool waits_for(int peer) const;

  // The next thing that the peer said, if it is that. What stands before a report is left from an
  // earlier call, and dropped.
  std::optional<std::string> take(int peer, std::uint32_t tag, MeetingWord word);
  // The peer's calls that this rank has not come to, by whatever tag; also those that failed since
  // the last call here began.
  std::vector<std::string> other_reports(int peer) const;

 private:
  using Notes = std::deque<MeetingNote>;
  mutable std::mutex mutex_;
  std::map<std::pair<int, std::uint32_t>, Notes> notes_;
  std::map<int, int> awaited_;         // by how many calls
  std::set<std::uint32_t> under_way_;  // tags of calls
};

}  // namespace tutti::engine
