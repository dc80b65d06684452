// engine/plan.hpp - one collective under way: a state machine that is stepped.
//
// A step does a bounded piece of work and never blocks. Ops run in program order, each as far as
// the ops before it that share memory with it have come: that is all the pipelining there is, and
// it needs no further rules. A message larger than a link keeps unasked waits until its receiver
// has arrived.
//
// Buffers        the launch's memory is used from begin() until done(), or until abandon()
// returned. Thread-safety  none: whoever holds the group's baton steps it. on_sent may be called
// meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/compile.hpp"
#include "engine/launch.hpp"
#include "engine/layout.hpp"
#include "engine/segments.hpp"
#include "trace/tracer.hpp"
#include "transport/link.hpp"
#include "tutti/status.hpp"

namespace tutti::engine {

// What a plan needs of its group.
class PlanHost {
 public:
  virtual ~PlanHost() = default;
  virtual transport::Link& link_to(int peer) = 0;  // by group rank
  virtual bool has_arrived(int peer) const = 0;    // at the plan's collective, with the same call
  virtual std::uint32_t channel() const = 0;
  virtual trace::Tracer* tracer() { return nullptr; }
};

class Plan {
 public:
  Plan(Compiled compiled, std::size_t segment_bytes);

  const Compiled& compiled() const { return compiled_; }

  void begin(const Launch& launch, std::uint64_t sequence);
  // A segment of this collective has come. corrupt when it does not fit.
  Status deliver(int peer, const transport::Header& header, Segment segment, PlanHost& host);
  // Where the payload of such a segment can be written at once; null: it has to wait for its turn.
  std::byte* place(int peer, const transport::Header& header) const;
  // True if anything moved.
  bool step(PlanHost& host);
  // All ops are done; the group adds that all peers have arrived.
  bool done() const { return open_ == compiled_.program.ops.size(); }
  // Drops what was received and not used. The links have forgotten the channel before.
  void abandon(PlanHost& host);
  // Peers from which messages are still missing.
  std::vector<int> waiting_for() const;
  // A view turned out to have been taken back by its owner, whose abort is on its way.
  bool tainted() const { return tainted_; }

 private:
  struct Running {
    Strand dst;
    Strand src;
    std::vector<Strand> sources;
    std::vector<std::size_t> starts;  // of each chunk, and the end
    std::size_t issued = 0;           // sends: handed to the link
    std::size_t done = 0;
    bool opened = false;  // sends: something (if only zero bytes) went out
    bool finished = false;
    std::atomic<std::uint32_t> in_flight{0};
  };
  static constexpr std::size_t kBlocked = ~std::size_t{0};
  static constexpr std::size_t kNoOp = ~std::size_t{0};

  void prepare(std::size_t index, Running& running);
  void add_region(const schedule::Region& region, Strand& strand) const;
  std::size_t limit_of(std::size_t index) const;
  bool advance(std::size_t index, PlanHost& host);
  std::size_t most_at_once(const transport::Link& link, std::size_t total) const;
  bool advance_send(std::size_t index, PlanHost& host);
  bool advance_recv(std::size_t index, PlanHost& host);
  bool advance_copy(std::size_t index);
  bool advance_reduce(std::size_t index, PlanHost& host);
  std::size_t fold_piece(std::size_t index, std::size_t limit);
  void consume(SegmentQueue& queue, std::size_t bytes, int peer, PlanHost& host);

  Compiled compiled_;
  std::size_t segment_bytes_;
  Layout layout_;
  const Launch* launch_ = nullptr;
  std::uint64_t sequence_ = 0;
  std::size_t open_ = 0;  // all ops before this one are finished
  bool tainted_ = false;
  std::unique_ptr<Running[]> running_;
  std::vector<SegmentQueue> streams_;
  std::vector<std::size_t> receiver_;  // per stream: the recv that takes it, or kNoOp (a fold does)
};

}  // namespace tutti::engine
