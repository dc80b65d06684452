// tutti/trace.hpp - what a program adds to the trace of its job: compute, steps, numbers.
//
// With TUTTI_TRACE_DIR every rank writes a file of what it did, which `tutti trace` reads. The library
// notes collectives, waits and reductions by itself, and the training layer its phases. A program
// that computes something else says so:
//
//   tutti::trace::Span span(group->trace(), "forward");   // until it goes out of scope
//   if (auto* trace = group->trace()) trace->counter("loss", step, loss);
//
// Cost           without TUTTI_TRACE_DIR trace() is null and a Span does nothing; with it, an event is
//                two looks at the clock and 64 bytes of memory that the kernel writes out.
// Thread-safety  any thread. Spans of one thread must lie within each other or beside each other.
// Failure        a trace that can no longer be written (a full disk) ends; the job goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "tutti/cpp20.hpp"

namespace tutti::trace {
inline namespace [[gnu::visibility("default")]] v1 {

// Nanoseconds of the clock by which traces go.
inline std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// One rank's trace. It lives as long as the group that gave it.
class Sink {
 public:
  virtual ~Sink() = default;
  // This thread has computed something, from `begin` to `end`.
  virtual void compute(std::string_view name, std::int64_t begin, std::int64_t end) noexcept = 0;
  // This thread had nothing to do, because what `missing` names had not been computed elsewhere yet: the
  // bubble of a pipeline.
  virtual void bubble(std::string_view missing, std::int64_t begin, std::int64_t end) noexcept = 0;
  // A training step of this rank.
  virtual void step(std::int64_t number, std::int64_t begin, std::int64_t end) noexcept = 0;
  // A number that belongs to a step, such as its loss.
  virtual void counter(std::string_view name, std::int64_t step, double value) noexcept = 0;
  // What to add to this rank's clock to get rank 0's, for whoever has measured it.
  virtual void clock_offset(std::int64_t ns) noexcept = 0;
};

// A stretch of compute. The name is lent until it ends.
class Span {
 public:
  Span(Sink* sink, std::string_view name) noexcept
      : sink_(sink), name_(name), begin_(sink != nullptr ? now_ns() : 0) {}
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    if (sink_ != nullptr) sink_->compute(name_, begin_, now_ns());
  }

 private:
  Sink* sink_;
  std::string_view name_;
  std::int64_t begin_;
};

}  // namespace v1
}  // namespace tutti::trace
