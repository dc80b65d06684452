// tutti/exchange/times.hpp - where the time of an exchange went, as one rank saw it.
#pragma once

#include <algorithm>

#include "tutti/cpp20.hpp"

namespace tutti::exchange {
inline namespace [[gnu::visibility("default")]] v1 {

// On a GPU these are the host's times: what a stream waits for is not in them.
struct ExchangeTimes {
  double total_s = 0;  // from the call to its return
  double wait_s = 0;   // of it, the caller was blocked: what compute did not hide
  double wire_s = 0;   // at least one of its operations was on its way; what overlaps counts once

  // The share of the wire's time that compute has hidden; 1 when nothing was on its way.
  double hidden() const { return wire_s > 0 ? std::clamp(1 - wait_s / wire_s, 0.0, 1.0) : 1; }

  ExchangeTimes& operator+=(const ExchangeTimes& other) {
    total_s += other.total_s;
    wait_s += other.wait_s;
    wire_s += other.wire_s;
    return *this;
  }
};

}  // namespace v1
}  // namespace tutti::exchange
