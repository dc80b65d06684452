#include "engine/agreement.hpp"

#include <algorithm>

#include "core/bytes.hpp"

namespace tutti::engine {
namespace {

constexpr std::size_t bytes_for(std::size_t ranks) { return (ranks + 7) / 8; }

void put_set(ByteWriter& writer, const std::vector<bool>& set) {
  std::vector<std::uint8_t> bytes(bytes_for(set.size()));
  for (std::size_t i = 0; i < set.size(); ++i)
    if (set[i]) bytes[i / 8] |= static_cast<std::uint8_t>(1U << i % 8);
  for (const std::uint8_t byte : bytes) writer.put(byte);
}

bool get_set(ByteReader& reader, std::vector<bool>& set) {
  for (std::size_t first = 0; first < set.size(); first += 8) {
    std::uint8_t byte = 0;
    if (!reader.get(byte)) return false;
    for (std::size_t i = first; i < std::min(first + 8, set.size()); ++i)
      set[i] = (byte >> (i - first) & 1U) != 0;
  }
  return true;
}

}  // namespace

bool Opinion::misses_the_same(const Opinion& other) const {
  for (std::size_t rank = 0; rank < lost.size(); ++rank)
    if (misses(rank) != other.misses(rank)) return false;
  return true;
}

std::string Opinion::encode() const {
  ByteWriter writer;
  writer.put(channel);
  writer.put(static_cast<std::uint8_t>(is_decision));
  put_set(writer, lost);
  put_set(writer, left);
  return writer.take();
}

std::optional<Opinion> Opinion::decode(std::string_view bytes, int ranks) {
  ByteReader reader(bytes);
  Opinion opinion;
  opinion.lost.resize(static_cast<std::size_t>(ranks));
  opinion.left.resize(static_cast<std::size_t>(ranks));
  std::uint8_t decided = 0;
  if (!reader.get(opinion.channel) || !reader.get(decided) || !get_set(reader, opinion.lost) ||
      !get_set(reader, opinion.left) || !reader.empty())
    return std::nullopt;
  opinion.is_decision = decided != 0;
  return opinion;
}

Agreement::Agreement(int rank, int ranks) : rank_(rank), ranks_(ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  mine_.lost.resize(size);
  mine_.left.resize(size);
  heard_.resize(size);
  owed_.resize(size);
}

void Agreement::join(std::uint32_t channel) {
  if (joined_) return;
  joined_ = true;
  mine_.channel = channel;
  owe_all();
  settle(false);
}

void Agreement::lose(int peer) { miss(mine_.lost, peer); }

void Agreement::leave(int peer) { miss(mine_.left, peer); }

void Agreement::miss(std::vector<bool>& whom, int peer) {
  const auto index = static_cast<std::size_t>(peer);
  if (is_decided() || whom[index]) return;
  const bool is_news = !mine_.misses(index);
  whom[index] = true;
  settle(is_news);
}

void Agreement::hear(int peer, const Opinion& theirs) {
  const auto index = static_cast<std::size_t>(peer);
  const bool is_missed = theirs.lost[static_cast<std::size_t>(rank_)];
  if (is_missed && !mine_.misses(index)) excluded_ = true;
  if (excluded_) return;
  // Who is missed has no say; it is told so, if it is there after all.
  if (is_decided() || mine_.lost[index]) {
    if (!theirs.is_decision) owed_[index] = true;
    return;
  }
  if (theirs.is_decision) {
    if (!joined_) return;  // it cannot count on a rank that never said anything
    mine_ = theirs;
    ++changes_;
    owe_all();
    return;
  }
  heard_[index] = theirs;
  settle(merge(theirs));
}

bool Agreement::merge(const Opinion& theirs) {
  bool changed = false;
  for (std::size_t rank = 0; rank < mine_.lost.size(); ++rank) {
    changed |= theirs.misses(rank) && !mine_.misses(rank);
    mine_.lost[rank] = mine_.lost[rank] || theirs.lost[rank];
    mine_.left[rank] = mine_.left[rank] || theirs.left[rank];
  }
  return changed;
}

// To everybody who is needed; in a decision, to the missing too: one of them may be alive, and must
// not believe that it is the only one.
void Agreement::owe_all() {
  for (int peer = 0; peer < ranks_; ++peer)
    if (peer != rank_ && (needs(peer) || is_decided()))
      owed_[static_cast<std::size_t>(peer)] = true;
}

void Agreement::settle(bool changed) {
  if (changed) ++changes_;
  if (!joined_ || is_decided() || excluded_) return;
  if (changed) owe_all();
  if (!awaited().empty()) return;
  for (int peer = 0; peer < ranks_; ++peer)
    if (needs(peer))
      mine_.channel = std::max(mine_.channel, heard_[static_cast<std::size_t>(peer)]->channel);
  mine_.is_decision = true;
  ++changes_;
  owe_all();
}

std::vector<int> Agreement::take_owed() {
  std::vector<int> ranks;
  for (int peer = 0; peer < ranks_; ++peer)
    if (owed_[static_cast<std::size_t>(peer)]) ranks.push_back(peer);
  owed_.assign(owed_.size(), false);
  return ranks;
}

std::vector<int> Agreement::awaited() const {
  std::vector<int> ranks;
  for (int peer = 0; peer < ranks_; ++peer) {
    const auto& heard = heard_[static_cast<std::size_t>(peer)];
    if (needs(peer) && (!heard || !heard->misses_the_same(mine_))) ranks.push_back(peer);
  }
  return ranks;
}

std::vector<int> Agreement::survivors() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < ranks_; ++rank)
    if (!mine_.misses(static_cast<std::size_t>(rank))) ranks.push_back(rank);
  return ranks;
}

}  // namespace tutti::engine
