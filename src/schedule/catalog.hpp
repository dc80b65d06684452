// schedule/catalog.hpp - which algorithms there are for which collective, and how to build them.
//
//   auto program = build(Algorithm::ring,
//                        {.collective = Collective::all_reduce, .size = 4, .rank = 1});
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti::schedule {

// One row of the catalog.
struct Entry {
  Collective collective;
  Algorithm algorithm;
  Program (*build)(const Request&);
  // Whether every result's expression is the fold in rank order; the verifier checks this claim.
  bool rank_ordered;
  // Whether parts of different size (v-variants) and one buffer per rank are possible.
  bool uneven;
  // Whether it exists for this request (hypercube wants a power of two); null: always.
  bool (*applies)(const Request&);
};

const std::vector<Entry>& catalog();
const Entry* find(Collective collective, Algorithm algorithm);
std::vector<Algorithm> algorithms_for(Collective collective);

// The program of `request.rank`. An algorithm that does not exist for this collective or size is
// Code::invalid_argument with a list of those that do.
Result<Program> build(Algorithm algorithm, const Request& request);
// All ranks' programs.
Result<std::vector<Program>> build_all(Algorithm algorithm, Request request);

}  // namespace tutti::schedule
