#include "core/strangers.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <string_view>
#include <tuple>

namespace tutti {
namespace {

// What counts as one address. `address` is IPv4, IPv6 with or without brackets, or no address at all.
std::string crowd_of(std::string_view address) {
  if (address.starts_with('[') && address.ends_with(']'))
    address = address.substr(1, address.size() - 2);
  constexpr std::string_view kMapped = "::ffff:";  // IPv4 at a socket for both
  if (address.starts_with(kMapped) && address.find('.') != std::string_view::npos)
    address.remove_prefix(kMapped.size());
  const std::string text(address);
  in_addr v4{};
  if (::inet_pton(AF_INET, text.c_str(), &v4) == 1)
    return text.starts_with("127.") ? "127.0.0.0/8" : text;
  in6_addr v6{};
  if (::inet_pton(AF_INET6, text.c_str(), &v6) != 1) return text;
  return std::string(reinterpret_cast<const char*>(v6.s6_addr), 8);
}

}  // namespace

std::optional<Strangers::Id> Strangers::admit(Id id, const std::string& address) {
  std::optional<Id> out;
  if (here_.size() >= places_) out = least_claim();
  if (out) leave(*out);
  const std::uint64_t number = ++arrivals_;
  const std::string crowd = crowd_of(address);
  here_[id] = {number, {address, crowd, false}};
  crowds_[crowd].silent[number] = id;
  return out;
}

void Strangers::spoke(Id id) {
  const auto at = here_.find(id);
  if (at == here_.end() || at->second.second.spoke) return;
  auto& [number, stranger] = at->second;
  Crowd& crowd = crowds_[stranger.crowd];
  crowd.speaking[number] = id;
  crowd.silent.erase(number);
  stranger.spoke = true;
}

void Strangers::leave(Id id) {
  const auto at = here_.find(id);
  if (at == here_.end()) return;
  const auto& [number, stranger] = at->second;
  const auto crowd = crowds_.find(stranger.crowd);
  if (crowd != crowds_.end()) {  // there was memory for all of admit
    crowd->second.silent.erase(number);
    crowd->second.speaking.erase(number);
    if (crowd->second.size() == 0) crowds_.erase(crowd);
  }
  here_.erase(at);
}

std::optional<Strangers::Id> Strangers::least_claim() const {
  const auto stays_rather = [this](const auto& a, const auto& b) {
    const auto weight = [this](const Crowd& crowd) {
      return std::tuple(2 * crowd.size() > places_, !crowd.silent.empty(), crowd.size());
    };
    if (weight(a.second) != weight(b.second)) return weight(a.second) < weight(b.second);
    return a.second.first().first > b.second.first().first;  // the younger stays
  };
  const auto out = std::max_element(crowds_.begin(), crowds_.end(), stays_rather);
  if (out == crowds_.end()) return std::nullopt;
  return out->second.first().second;
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
