#include "engine/survivors.hpp"

namespace tutti::engine {

Survivors::Survivors(const Members& members)
    : members_(members), agreement_(members.rank(), members.size()) {}

bool Survivors::join(std::uint32_t channel) {
  std::scoped_lock lock(mutex_);
  if (agreement_.has_joined()) return false;
  agreement_.join(channel);
  tell();
  return true;
}

void Survivors::lose(int peer) {
  std::scoped_lock lock(mutex_);
  agreement_.lose(peer);
  tell();
}

void Survivors::leave(int peer) {
  std::scoped_lock lock(mutex_);
  agreement_.leave(peer);
  tell();
}

bool Survivors::hear(int peer, std::string_view bytes) {
  const auto opinion = Opinion::decode(bytes, members_.size());
  if (!opinion) return true;
  std::scoped_lock lock(mutex_);
  agreement_.hear(peer, *opinion);
  tell();
  return !(agreement_.is_excluded() && opinion->lost[static_cast<std::size_t>(members_.rank())]);
}

std::vector<int> Survivors::give_up_waiting() {
  std::scoped_lock lock(mutex_);
  const std::vector<int> silent = agreement_.awaited();
  for (const int peer : silent) agreement_.lose(peer);
  tell();
  return silent;
}

void Survivors::tell() {
  const std::vector<int> owed = agreement_.take_owed();
  if (owed.empty()) return;
  const std::string told = agreement_.opinion().encode();
  for (const int peer : owed)
    members_.send(peer, transport::MessageKind::view, told.data(), told.size());
}

bool Survivors::is_decided() const {
  std::scoped_lock lock(mutex_);
  return agreement_.is_decided();
}

bool Survivors::is_excluded() const {
  std::scoped_lock lock(mutex_);
  return agreement_.is_excluded();
}

std::uint64_t Survivors::changes() const {
  std::scoped_lock lock(mutex_);
  return agreement_.changes();
}

std::vector<int> Survivors::ranks() const {
  std::scoped_lock lock(mutex_);
  return agreement_.survivors();
}

Opinion Survivors::opinion() const {
  std::scoped_lock lock(mutex_);
  return agreement_.opinion();
}

}  // namespace tutti::engine
