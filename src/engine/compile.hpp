// engine/compile.hpp - a program, prepared for running: who waits for whom, and which messages
// come.
//
// Nothing here depends on sizes or addresses, so a compiled program serves every launch with the
// same key. All knowledge comes from the ops themselves, none from the algorithm's name.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti::engine {

// Op `later` may work on its chunk `chunk` only as far as op `earlier` is through with its chunk
// `earlier_chunk`: they are the same memory, and one of the two writes it.
struct ChunkHazard {
  std::uint32_t earlier = 0;
  std::uint32_t earlier_chunk = 0;
  std::uint32_t chunk = 0;

  friend auto operator<=>(const ChunkHazard&, const ChunkHazard&) = default;
};

// Where a message that this rank receives ends up.
struct Stream {
  int peer = 0;
  std::uint32_t step = 0;
};

struct Compiled {
  schedule::Program program;
  std::vector<std::vector<ChunkHazard>> hazards;          // per op
  std::vector<Stream> streams;                            // sorted by (peer, step)
  std::vector<std::uint32_t> recv_stream;                 // per op: of a recv
  std::vector<std::vector<std::uint32_t>> source_stream;  // per op, per source: of a message source
  // Per op: of a send in a row of exchanges, the stream of the exchange before; else nothing. Whoever sends
  // on before that has come as far leaves one wire to two senders and another to nobody.
  std::vector<std::optional<std::uint32_t>> exchange_before;
  int exchanges = 0;          // in that row; 0: there is none
  std::vector<int> peers;     // with whom messages are exchanged, sorted
  std::vector<int> sends_to;  // those of them who get any, sorted

  // Index into `streams`, or -1.
  int find_stream(int peer, std::uint32_t step) const;
};

Compiled compile(schedule::Program program);

}  // namespace tutti::engine
