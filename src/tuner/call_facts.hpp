// tuner/call_facts.hpp - what all ranks know alike about a call, and what follows from it.
#pragma once

#include <cstddef>
#include <span>

#include "cost/curve.hpp"
#include "schedule/catalog.hpp"
#include "tutti/types.hpp"

namespace tutti::tuner {

struct CallFacts {
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;  // the whole array, as nccl-tests count it; 0 where ranks differ
  int ranks = 1;
  std::span<const int> host_of;  // host of each rank
  ReductionOrder order = ReductionOrder::any;
  bool uneven = false;     // a v-variant or one buffer per rank
  bool symmetric = false;  // all buffers are memory that every rank of the host has mapped
  // Machine of each rank, where several hosts are one machine and share its cores (ranks that are
  // linked by tcp though they need not be); empty: every host is one.
  std::span<const int> machine_of = {};
  // schedule::Request::walk.
  std::span<const int> walk = {};
  // Every result must be one fold of raw inputs: the call folds in a wider type than its elements', and a
  // partial fold would be rounded on its way.
  bool whole_folds = false;
  // Whether all ranks reach a switch that folds, and what an all_reduce by it was measured to take, by
  // bytes; null: it was not measured, and is not chosen unasked.
  bool has_switch = false;
  const cost::Curve* switch_cost = nullptr;
  // What there is to choose from.
  const schedule::Catalog* catalog = &schedule::Catalog::built_in();
};

// What a builder is asked for; root 0.
schedule::Request request_of(const CallFacts& facts, int rank, int shots);

// Bytes of the whole call.
double total_bytes(const CallFacts& facts);

// How many ranks share the cores of this rank's machine, itself included.
int company_of(const CallFacts& facts, int rank);

// Whether the call's ranks meet in the memory of a host: they share one, are few enough, and all know
// how long each part is.
bool can_meet(const CallFacts& facts);

}  // namespace tutti::tuner
