// operations.hpp - one or several of tutti's operations that torch sees as one.
//
// Thread-safety  that of tutti::Work, once all are added.
#pragma once

#include <c10/util/SmallVector.h>

#include <chrono>
#include <functional>
#include <utility>

#include "tutti/work.hpp"

namespace tutti_torch {

class Operations {
 public:
  // None: done, and ok.
  Operations() = default;
  Operations(tutti::Work one) { add(std::move(one)); }

  void add(tutti::Work operation) { each_.push_back(std::move(operation)); }
  void add(const Operations& more) { each_.append(more.each_.begin(), more.each_.end()); }

  // Never blocks.
  bool done() const;
  // The first failure of those that are done.
  tutti::Status status() const;
  // Blocks until all are done; where `timeout` is positive, at most so long.
  tutti::Status wait(std::chrono::milliseconds timeout);
  // What is put into `stream` from here on waits for all of them (tutti::Work::wait_on).
  tutti::Status wait_on(void* stream);
  // Calls `then` when the last is done, in the thread that completed it; at once when that has been.
  void when_done(std::function<void()> then) const;
  tutti::Received received() const;

 private:
  c10::SmallVector<tutti::Work, 1> each_;
};

}  // namespace tutti_torch
