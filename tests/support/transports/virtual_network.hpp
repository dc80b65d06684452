// support/transports/virtual_network.hpp - message links of many ranks in one thread, in virtual time.
//
// The caller moves the clock. The same seed gives the same run, to the byte.
#pragma once

#include <cmath>
#include <memory>
#include <random>

#include "core/clock.hpp"
#include "transport/endpoint.hpp"

namespace tutti::transport {

class VirtualNetwork {
 public:
  virtual ~VirtualNetwork() = default;

  // Rank r's endpoint; to be taken once. The network must outlive it.
  virtual std::unique_ptr<Endpoint> endpoint(int rank) = 0;
  // Moves what is on its way and due. True if anything moved.
  virtual bool move() { return false; }
  // When something after now is due anywhere; max() when nothing is.
  virtual Nanoseconds next_event() const = 0;

  // From now on nothing leaves this rank. What it had sent may still arrive, or not.
  virtual void kill(int rank) = 0;
  // From now on what `from` sends to `to` does not get through.
  virtual void cut(int from, int to) = 0;
  // The run is over: whoever says goodbye finds nobody who listens, and does not wait.
  virtual void end() {}
};

// From a microsecond to 30 ms, each power of ten as likely as the others.
inline Nanoseconds latency_from_a_wide_range(std::mt19937_64& random) {
  const double exponent = 3 + 4.5 * static_cast<double>(random() % 1000) / 1000;
  return Nanoseconds(static_cast<std::int64_t>(std::pow(10, exponent)));
}

}  // namespace tutti::transport
