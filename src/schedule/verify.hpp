// schedule/verify.hpp - proves a schedule before it runs.
//
// Takes the programs of all ranks and executes them on expressions instead of numbers, with sends
// as rendezvous. It proves that every result chunk is the right expression, that each send meets
// its receive and both are equally large, that nobody waits for ever, and that no chunk is read
// before it was written.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "schedule/host/form.hpp"
#include "schedule/schedule.hpp"

namespace tutti::schedule {

struct VerifyReport {
  // Every reduced result is
  bool whole_folds = true;     // one fold of raw inputs in rank order
  bool rank_ordered = true;    // x0 ∘ x1 ∘ … from the left, in one fold or from partial ones
  bool tree_ordered = true;    // balanced by rank number (tutti::ReductionOrder::tree), likewise
  std::uint32_t steps = 0;     // longest chain of messages; of a host form: meetings
  std::uint64_t messages = 0;  // over all ranks; of a host form: touches of a peer's memory
  std::string expression;      // of rank 0's first result chunk (root's, if it has one)
};

// Code::internal with a sentence that names rank, op and chunk when the schedule is wrong.
Result<VerifyReport> verify(std::span<const Program> programs);
// The same of host forms, one per rank: each result is the right expression, and between two meetings
// nobody touches what another rank writes.
Result<VerifyReport> verify(std::span<const HostForm> forms);

}  // namespace tutti::schedule
