// tuner/links.hpp - what a message between two ranks of a group costs on a machine.
#pragma once

#include <algorithm>

#include "tuner/choose.hpp"
#include "tuner/machine.hpp"
#include "tuner/walk.hpp"

namespace tutti::tuner {

enum LinkKind { kMemory, kTcp, kKinds };

class Links {
 public:
  Links(const Situation& situation, const Machine& machine)
      : situation_(situation), machine_(machine), total_(total_bytes(situation)) {}

  LinkKind kind(int a, int b) const {
    const auto& host_of = situation_.host_of;
    const bool together = host_of.empty() || host_of[static_cast<std::size_t>(a)] ==
                                                 host_of[static_cast<std::size_t>(b)];
    return together ? kMemory : kTcp;
  }
  // Memory slows down with the whole call, which passes through the caches; a network does not.
  double bytes_s(LinkKind kind, double bytes) const {
    return kind == kMemory ? machine_.memory.bytes.share(bytes, total_)
                           : machine_.tcp.bytes.seconds(bytes);
  }
  double message_s(LinkKind kind) const {
    return kind == kMemory ? machine_.memory.message_s : machine_.tcp.message_s;
  }
  // What the bytes of a message take from a core beside the time that they are on their way.
  double core_s(LinkKind kind, double bytes) const {
    return bytes * (kind == kMemory ? machine_.memory.byte_s : machine_.tcp.byte_s);
  }
  // With more ranks than cores a message also waits until its receiver has its turn.
  double latency_s(LinkKind kind, int company) const {
    const double turn =
        machine_.crowding(company) > 1
            ? std::max(0.0, machine_.meet_seconds(company) - machine_.meet_seconds(2))
            : 0;
    return turn + (kind == kMemory ? machine_.memory.latency_s : machine_.tcp.latency_s);
  }
  double copy_s(double bytes) const { return machine_.copy.share(bytes, total_); }
  double fold_s(double bytes) const { return machine_.fold.share(bytes, total_); }

 private:
  const Situation& situation_;
  const Machine& machine_;
  double total_;
};

}  // namespace tutti::tuner
