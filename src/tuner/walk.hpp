// tuner/walk.hpp - which programs an estimate reads, and how large their chunks are.
#pragma once

#include <vector>

#include "schedule/catalog.hpp"
#include "tuner/choose.hpp"

namespace tutti::tuner {

// Groups up to this size are walked whole.
inline constexpr int kWholeRanks = 16;

struct Walked {
  int rank = 0;
  double weight = 1;  // how many ranks of its host it stands for
};

// By host: everybody in small groups; in large ones the first rank of a host and three of the rest,
// on the first, the middle and the last host.
std::vector<std::vector<Walked>> ranks_to_walk(const CallFacts& facts);

// What a builder is asked for; root 0.
schedule::Request request_of(const CallFacts& facts, int rank, int shots);

// Bytes of the whole call.
double total_bytes(const CallFacts& facts);

// How many ranks share the cores of this rank's machine, itself included.
int company_of(const CallFacts& facts, int rank);

// Whether what a rank receives here is only folded, and so may be read where it lies.
bool is_only_folded(const CallFacts& facts, const schedule::Op& recv);

}  // namespace tutti::tuner
