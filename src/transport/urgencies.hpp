// transport/urgencies.hpp - how urgent the channels of a link are; those that were not named are normal.
//
// Thread-safety  none of its own; the link's send lock covers it.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "tutti/types.hpp"

namespace tutti::transport {

class Urgencies {
 public:
  void set(std::uint32_t channel, Urgency urgency) {
    if (urgency == Urgency::normal)
      named_.erase(channel);
    else
      named_[channel] = urgency;
  }
  Urgency of(std::uint32_t channel) const {
    if (named_.empty()) return Urgency::normal;
    const auto found = named_.find(channel);
    return found == named_.end() ? Urgency::normal : found->second;
  }
  template <class Body>
  void each(const Body& body) const {
    for (const auto& [channel, urgency] : named_) body(channel, urgency);
  }
  // Whether some channels give way to others.
  bool differ() const { return !named_.empty(); }
  bool any(Urgency urgency) const {
    for (const auto& [channel, each] : named_)
      if (each == urgency) return true;
    return false;
  }

 private:
  std::unordered_map<std::uint32_t, Urgency> named_;
};

}  // namespace tutti::transport
