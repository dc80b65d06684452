// engine/run.hpp - a collective under way, whatever carries its data: a state machine that is stepped.
//
// Implemented by MessageRun (links) and HostRun (memory that ranks of one host share). One run serves
// every call of its kind, one after the other.
//
// Buffers        the launch's memory is used from begin() until done(), or until abandon() returned; by
//                this rank, that is: peers that have it mapped learn of a failure a little later.
// Thread-safety  none: whoever holds the group's baton steps it.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/launch.hpp"
#include "tutti/status.hpp"

namespace tutti::engine {

class Run {
 public:
  virtual ~Run() = default;

  // The launch must live until the run is done or abandoned.
  virtual void begin(const Launch& launch, std::uint64_t sequence) = 0;
  // Does a bounded piece of work and never blocks. True if anything moved.
  virtual bool step() = 0;
  // The result is there, and every rank has arrived with the same call.
  virtual bool done() const = 0;
  // The group ranks that it cannot go on without; empty when that is nobody in particular.
  virtual std::vector<int> waiting_for() const = 0;
  // Lets go of everything that it holds of others. The links have forgotten the group before.
  virtual void abandon() = 0;
  // Why it cannot go on. Code::mismatch names a peer that came with another call, and nothing else:
  // the group knows both calls.
  virtual Status failure() const = 0;
};

}  // namespace tutti::engine
