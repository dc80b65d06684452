// engine/message_run.hpp - runs a collective by the messages of its program, over the links.
//
// Ops run in program order, each as far as the ops before it that share memory with it have come:
// that is all the pipelining there is, and it needs no further rules. A message larger than a link
// keeps unasked waits until its receiver has arrived.
//
// Where the call widens, an op counts in bytes of what it writes, or sends: a fold's operands are behind
// by the same number of elements.
//
// Thread-safety  none: whoever holds the group's baton steps it. Links may count sends down meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/by_message.hpp"
#include "engine/compile.hpp"
#include "engine/group_view.hpp"
#include "engine/launch.hpp"
#include "engine/layout.hpp"
#include "engine/segments.hpp"
#include "engine/staging.hpp"
#include "transport/link.hpp"
#include "tutti/status.hpp"

namespace tutti::engine {

class MessageRun final : public ByMessage {
 public:
  // `side`: the program was rewritten for memory of that device (schedule::stage); null: it was not.
  MessageRun(GroupView& group, Compiled compiled, std::size_t segment_bytes,
             DeviceSide* side = nullptr);

  const Company& company() const override { return company_; }
  // The steps of what it sends and takes are numbered from there on, from the next begin on.
  void shift_steps(std::uint32_t first) { first_step_ = first; }

  void begin(const Launch& launch, std::uint64_t sequence) override;
  bool step() override;
  bool done() const override;
  std::vector<int> waiting_for() const override;
  void abandon() override;
  Status failure() const override { return failure_; }

  void deliver(int peer, const transport::Header& header, Segment segment) override;
  std::byte* place(int peer, const transport::Header& header) const override;

 private:
  struct StagedCopy {
    std::uint64_t name = 0;
    std::size_t end = 0;  // of the op, when it is over
  };
  struct Running {
    Scattered dst;
    Scattered src;
    std::vector<Scattered> sources;
    std::vector<std::size_t> starts;  // of each chunk, and the end
    std::size_t element = 1;          // bytes of one, of those that are counted
    std::size_t issued = 0;           // sends: handed to the link; staging: to the device
    std::size_t done = 0;
    bool opened = false;  // sends: something (if only zero bytes) went out
    bool finished = false;
    std::atomic<std::uint32_t> in_flight{0};
    std::deque<StagedCopy> copies;  // staging: under way
  };
  static constexpr std::size_t kBlocked = ~std::size_t{0};
  static constexpr std::size_t kNoOp = ~std::size_t{0};

  void prepare(std::size_t index, Running& running);
  void add_region(const schedule::Region& region, Scattered& pieces) const;
  std::size_t limit_of(std::size_t index) const;
  std::size_t turn_of(std::size_t index, const transport::Link& link) const;
  std::size_t bytes_of(std::size_t stream) const;
  bool advance(std::size_t index);
  std::size_t most_at_once(const transport::Link& link, std::size_t total) const;
  bool advance_send(std::size_t index);
  bool advance_recv(std::size_t index);
  bool advance_copy(std::size_t index);
  bool advance_staged(std::size_t index);
  bool issue_staged(std::size_t index, Staging::Direction direction);
  bool is_staged(const schedule::Op& op) const {
    return staging_ &&
           (op.src.space == schedule::Space::scratch) != (op.dst.space == schedule::Space::scratch);
  }
  bool advance_reduce(std::size_t index);
  std::size_t fold_piece(std::size_t index, std::size_t limit);
  std::size_t operand_bytes(const Running& running, std::size_t position) const;
  void consume(SegmentQueue& queue, std::size_t bytes, int peer);
  const char* misfit(std::size_t stream, const transport::Header& header) const;

  GroupView& group_;
  Compiled compiled_;
  Company company_;
  std::size_t segment_bytes_;
  bool has_slow_steps_ = false;  // exchanges that take long enough to keep step for
  std::unique_ptr<Staging> staging_;
  ChunkLayout layout_;
  const Launch* launch_ = nullptr;
  std::uint64_t sequence_ = 0;
  std::uint32_t first_step_ = 0;
  std::size_t open_ = 0;  // all ops before this one are finished
  // A view turned out to have been taken back by its owner, whose abort is on its way.
  bool tainted_ = false;
  Status failure_;
  std::unique_ptr<Running[]> running_;
  std::vector<SegmentQueue> streams_;
  std::vector<std::size_t> receiver_;  // per stream: the recv that takes it, or kNoOp (a fold does)
  std::vector<std::size_t> user_;      // per stream: the recv or fold that takes it
};

}  // namespace tutti::engine
