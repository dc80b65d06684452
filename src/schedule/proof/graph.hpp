// schedule/proof/graph.hpp - all ranks' ops as one graph: who waits for whom, who sends to whom.
//
// Ops are numbered through all ranks. A send ends together with the op that takes it (rendezvous),
// so both run as one *event*, which bears the taker's number; every other op is an event of its
// own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti::schedule::proof {

using OpId = std::uint32_t;
inline constexpr OpId kNoOp = ~0u;

class Graph {
 public:
  // The programs must outlive the graph. `ok` when every region exists, operands are equally large,
  // and each message has one sender, one taker and one size.
  static Result<Graph> of(std::span<const Program> programs);

  OpId ops() const { return first_.back(); }
  int rank(OpId id) const { return rank_of_[id]; }
  const Program& program(OpId id) const { return programs_[rank(id)]; }
  const Op& op(OpId id) const { return program(id).ops[id - first_[rank(id)]]; }
  OpId first(int rank) const { return first_[rank]; }
  // "rank 2, op 5 '@3 recv scratch[0] <- 1'"
  std::string name(OpId id) const;

  OpId event(OpId id) const { return taker_[id] == kNoOp ? id : taker_[id]; }
  // The sends that an op takes: one for a recv, one per message operand of a reduce, in order.
  std::span<const OpId> senders(OpId id) const {
    return {senders_.data() + first_receipt_[id], first_receipt_[id + 1] - first_receipt_[id]};
  }
  std::span<const OpId> before(OpId id) const { return slice(before_, first_before_, id); }
  std::span<const OpId> after(OpId id) const { return slice(after_, first_after_, id); }
  std::uint64_t messages() const { return senders_.size(); }

 private:
  struct Message {
    std::uint64_t pair;  // sender and taker
    std::uint32_t step;
    OpId op;
    std::uint32_t receipt;
    const Region* region;
    auto operator<=>(const Message& other) const {
      return pair != other.pair ? pair <=> other.pair : step <=> other.step;
    }
  };

  explicit Graph(std::span<const Program> programs);
  Status check_regions() const;
  Status match();
  Status meet(const Message& sent, const Message& taken);
  void order();

  static std::span<const OpId> slice(const std::vector<OpId>& all,
                                     const std::vector<std::uint32_t>& first, OpId id) {
    return {all.data() + first[id], first[id + 1] - first[id]};
  }

  std::span<const Program> programs_;
  std::vector<OpId> first_;  // of each rank, and one past the last
  std::vector<int> rank_of_;
  std::vector<OpId> taker_;  // of each send
  std::vector<std::uint32_t> first_receipt_;
  std::vector<OpId> senders_;
  std::vector<std::uint32_t> first_before_, first_after_;
  std::vector<OpId> before_, after_;
};

}  // namespace tutti::schedule::proof
