#include "engine/meetings.hpp"

#include <iterator>

namespace tutti::engine {
namespace {

// Of one peer and tag. A rank has one call of a tag at a time; a peer that says more is out of order.
constexpr std::size_t kMostNotes = 64;

}  // namespace

void Meetings::put(int peer, std::uint32_t tag, MeetingNote note) {
  std::scoped_lock lock(mutex_);
  Notes& notes = notes_[{peer, tag}];
  if (notes.size() == kMostNotes) notes.pop_front();
  notes.push_back(std::move(note));
}

void Meetings::begin(std::span<const int> peers, std::uint32_t tag) {
  std::scoped_lock lock(mutex_);
  for (const int peer : peers) ++awaited_[peer];
  const auto is_over = [](const Notes& notes) {
    return !notes.empty() && (notes.front().word != MeetingWord::report ||
                              (notes.size() > 1 && notes[1].word != MeetingWord::report));
  };
  for (auto at = notes_.begin(); at != notes_.end();) {
    Notes& notes = at->second;
    // Another thread may be in a call of its tag, with notes that it has not read yet.
    const bool is_under_way = under_way_.contains(at->first.second);
    while (!is_under_way && is_over(notes)) notes.pop_front();
    at = notes.empty() ? notes_.erase(at) : std::next(at);
  }
  under_way_.insert(tag);
}

void Meetings::end(std::span<const int> peers, std::uint32_t tag) {
  std::scoped_lock lock(mutex_);
  for (const int peer : peers)
    if (const auto at = awaited_.find(peer); at != awaited_.end() && --at->second == 0)
      awaited_.erase(at);
  under_way_.erase(tag);
}

bool Meetings::waits_for(int peer) const {
  std::scoped_lock lock(mutex_);
  return awaited_.contains(peer);
}

std::optional<std::string> Meetings::take(int peer, std::uint32_t tag, MeetingWord word) {
  std::scoped_lock lock(mutex_);
  const auto at = notes_.find({peer, tag});
  if (at == notes_.end()) return std::nullopt;
  Notes& notes = at->second;
  const auto is_left_over = [&] {
    return word == MeetingWord::report && !notes.empty() && notes.front().word != word;
  };
  while (is_left_over()) notes.pop_front();
  std::optional<std::string> words;
  if (!notes.empty() && notes.front().word == word) {
    words = std::move(notes.front().words);
    notes.pop_front();
  }
  if (notes.empty()) notes_.erase(at);
  return words;
}

std::vector<std::string> Meetings::other_reports(int peer) const {
  std::vector<std::string> reports;
  std::scoped_lock lock(mutex_);
  for (const auto& [key, notes] : notes_)
    if (key.first == peer && notes.front().word == MeetingWord::report)
      reports.push_back(notes.front().words);
  return reports;
}

}  // namespace tutti::engine
