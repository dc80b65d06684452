// engine/launch.hpp - one call of a collective, resolved: which program on which memory.
//
// Made by the group room from a tutti::Call after it has checked it; consumed by a Run.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "engine/fingerprint.hpp"
#include "engine/scattered.hpp"
#include "schedule/schedule.hpp"
#include "tutti/dtypes.hpp"
#include "tutti/types.hpp"

namespace tutti::cuda {
class Event;
}

namespace tutti::engine {

class Dependencies;

struct Launch {
  // Which program. Together they are the key under which compiled programs are kept.
  Collective collective = Collective::barrier;
  Algorithm algorithm = Algorithm::automatic;
  int shots = 2;
  // What is done where a switch was to fold and is lost.
  Algorithm second_choice = Algorithm::automatic;
  int second_shots = 2;
  int root = 0;
  bool in_place = false;
  ReductionOrder order = ReductionOrder::any;

  Dtype dtype = Dtype::u8;  // of the input, and of what is sent of it
  bool widens = false;      // the output is of the accumulation type: folds are not rounded
  Reduction reduction;

  // Bytes of a result for each byte of what is folded.
  std::size_t growth() const {
    return widens ? size_of(accumulation_of(dtype)) / size_of(dtype) : 1;
  }

  // Memory of each side. Sides that are one message (broadcast, reduce, all_reduce, scans, the own
  // part of gather …): the pieces it consists of. Sides with one block per rank: exactly n pieces.
  std::vector<Piece> input;
  std::vector<Piece> output;
  // Bytes of block b, where there are blocks and all ranks know them (empty: all like the own one).
  std::vector<std::size_t> block_bytes;

  Fingerprint fingerprint;
  std::uint32_t call_hash = 0;  // call_hash_of(fingerprint)
  // Bytes to and from each rank, where only pairs know; empty otherwise.
  std::vector<std::size_t> to_peer;
  std::vector<std::size_t> from_peer;

  // What it was chosen for: about so long it takes; 0: nobody knows.
  Nanoseconds expected{0};
  // What it should take, on any memory and on memory that all ranks have mapped; filled in for traces.
  Nanoseconds predicted{0};
  Nanoseconds predicted_shared{0};

  // Memory of the GPU: the stream that the caller's work is in, and events to wait for besides.
  bool on_device = false;
  void* stream = nullptr;
  bool in_stream = false;               // it runs in that stream itself, which waits for it at once
  std::shared_ptr<cuda::Event> before;  // else: where that stream was when it was called
  std::vector<void*> ready;

  std::shared_ptr<Dependencies> after;  // works that it waits for before it begins; null: none
  Nanoseconds timeout{0};
  std::string name;
};

}  // namespace tutti::engine
