#include "core/strangers.hpp"

#include <algorithm>

namespace tutti {

std::optional<Strangers::Id> Strangers::admit(Id id, const std::string& address) {
  std::optional<Id> out;
  if (here_.size() >= places_) out = least_claim();
  if (out) leave(*out);
  const std::uint64_t number = ++arrivals_;
  here_[id] = {number, {address, false}};
  crowds_[address].silent[number] = id;
  return out;
}

void Strangers::spoke(Id id) {
  const auto at = here_.find(id);
  if (at == here_.end() || at->second.second.spoke) return;
  auto& [number, stranger] = at->second;
  stranger.spoke = true;
  Crowd& crowd = crowds_[stranger.address];
  crowd.silent.erase(number);
  crowd.speaking[number] = id;
}

void Strangers::leave(Id id) {
  const auto at = here_.find(id);
  if (at == here_.end()) return;
  const auto& [number, stranger] = at->second;
  const auto crowd = crowds_.find(stranger.address);
  crowd->second.silent.erase(number);
  crowd->second.speaking.erase(number);
  if (crowd->second.size() == 0) crowds_.erase(crowd);
  here_.erase(at);
}

std::optional<Strangers::Id> Strangers::least_claim() const {
  const auto largest = std::max_element(
      crowds_.begin(), crowds_.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (largest == crowds_.end()) return std::nullopt;
  const Crowd& crowd = largest->second;
  return crowd.silent.empty() ? crowd.speaking.begin()->second : crowd.silent.begin()->second;
}

std::string Strangers::address_of(Id id) const {
  const auto at = here_.find(id);
  return at == here_.end() ? std::string() : at->second.second.address;
}

void RefusalLog::note(const std::string& address, const std::string& why, Nanoseconds now) {
  ++count_;
  if (count_ > kLinesAtOnce && now < next_line_) {
    ++untold_;
    last_address_ = address;
    last_why_ = why;
    return;
  }
  next_line_ = now + kLineEvery;
  if (untold_ == 0)
    log_.warn(subsystem_, "turned away a connection from {}: {}", address, why);
  else
    log_.warn(subsystem_, "turned away a connection from {}: {}; and {} more before it", address,
              why, untold_);
  untold_ = 0;
}

RefusalLog::~RefusalLog() {
  if (untold_ > 0)
    log_.warn(subsystem_, "turned away {} more connections, the last from {}: {}", untold_,
              last_address_, last_why_);
}

}  // namespace tutti
