// schedule/entry.hpp - one row of the catalog: an algorithm for a collective.
//
// A builder is a pure function: the program of request.rank, without looking at anybody else's. The
// messages it exchanges do not depend on request.in_place, since ranks may differ in that.
#pragma once

#include "schedule/schedule.hpp"

namespace tutti::schedule {

// Words for the flags below.
inline constexpr bool kAnyOrder = false, kOrdered = true;
inline constexpr bool kEven = false, kUneven = true;

struct Entry {
  Collective collective;
  Algorithm algorithm;
  Program (*build)(const Request&);
  // Whether every result's expression is the fold in rank order; the verifier checks this claim.
  bool rank_ordered = kAnyOrder;
  // Whether parts of different size (v-variants) and one buffer per rank are possible: each message
  // is one part, and only its two ends need its size.
  bool uneven = kEven;
  // Whether it exists for this request (hypercube wants a power of two); null: always.
  bool (*applies)(const Request&) = nullptr;
};

}  // namespace tutti::schedule
