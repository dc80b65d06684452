// tuner/stage.hpp - what a direct schedule costs when all ranks share one host.
//
// There the ranks do not send messages: each puts what others read into its window and they read
// it there, or, on symmetric memory, where it lies. Four ways, told apart by how much a rank shows
// to the others:
//
//   tiny       in the line of the flag itself      meet, fold
//   small      copied into the window              copy, meet, fold; once per step
//   large      in pieces through the window        meet, copies and folds overlapped between ranks,
//                                                  and one wait more than steps per piece
//   symmetric  nothing copied                      meet, fold and put or pull, meet
//
// Ranks that outnumber the cores take turns: their work is added up and divided by the cores.
#pragma once

#include "schedule/catalog.hpp"
#include "tuner/choose.hpp"
#include "tuner/machine.hpp"

namespace tutti::tuner {

// The borders between the ways, as the executor has them; more ranks have no stage.
inline constexpr int kMostStagedRanks = 64;
inline constexpr double kTinyBytes = 112;
inline constexpr double kSmallBytes = 64 << 10;
inline constexpr double kPieceBytes = 128 << 10;
// What a byte of a window costs beyond a copy within one cache, because it goes from core to core:
// its writer has to take the line back from the last reader, and its reader from the writer. 32 KiB,
// two cores of a KVM guest (Sapphire Rapids), 2026-11-15: 2.3 µs to write, 3.2 µs to read. Beyond
// that prefetching hides half of it (512 KiB: 27 and 28 µs).
inline constexpr double kShowSeconds = 0.06e-9;
inline constexpr double kTakeSeconds = 0.09e-9;
inline constexpr double kCrossingBytes = 64 << 10;
inline constexpr double kPrefetched = 0.5;
// What a call costs beside the meeting: 0.42 µs for 4 B where bare flags take 0.27 (same machine).
inline constexpr double kCallSeconds = 0.15e-6;
// What a core keeps near itself.
inline constexpr double kNearBytes = 256 << 10;

double stage_seconds(const schedule::Entry& entry, const CallFacts& facts, int shots,
                     const Machine& machine);

}  // namespace tutti::tuner
