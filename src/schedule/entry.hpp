// schedule/entry.hpp - one row of the catalog: an algorithm for a collective.
//
// A builder is a pure function: the program of request.rank, without looking at anybody else's. The
// messages it exchanges do not depend on request.in_place, since ranks may differ in that.
#pragma once

#include "schedule/schedule.hpp"

namespace tutti::schedule {

// What the results of a schedule are folded from, which decides what they can be asked for.
//   anyhow   partial folds, in any order
//   onward   each rank's input onto the fold of those before it: x0 ∘ x1 ∘ … from the left, exact where a
//            partial fold is not rounded on its way
//   whole    one fold of raw inputs in rank order, made in one place: from the left or balanced, as asked,
//            and rounded once or not at all
enum class FoldedFrom : std::uint8_t { anyhow, onward, whole };

// Words for the rows.
inline constexpr auto kAnyOrder = FoldedFrom::anyhow, kOnward = FoldedFrom::onward,
                      kOrdered = FoldedFrom::whole;
inline constexpr bool kEven = false, kUneven = true;
inline constexpr bool kAmongRanks = false, kBySwitch = true;

struct Entry {
  Collective collective;
  Algorithm algorithm;
  Program (*build)(const Request&);
  FoldedFrom folds = kAnyOrder;  // the verifier checks this claim
  // Whether parts of different size (v-variants) and one buffer per rank are possible: each message
  // is one part, and only its two ends need its size.
  bool uneven = kEven;
  // Whether it exists for this request (hypercube wants a power of two); null: always.
  bool (*applies)(const Request&) = nullptr;
  // Whether partial folds make the tree of ReductionOrder::tree where that is asked for; null: never.
  // The verifier checks this claim, too.
  bool (*balanced)(const Request&) = nullptr;
  // Whether groups of more than one rank need a switch that folds: its program is that of rank n, one
  // beyond the last, which owns no data.
  bool by_switch = kAmongRanks;

  // How many programs there are for so many ranks.
  int programs_of(int size) const { return size + (by_switch && size > 1 ? 1 : 0); }

  // Whether results are folded in the order that the request names, partial folds included.
  bool keeps_order(const Request& request) const {
    if (folds == FoldedFrom::whole || !has_reduction(collective)) return true;
    switch (request.order) {
      case ReductionOrder::any: return true;
      case ReductionOrder::rank: return folds == FoldedFrom::onward;
      case ReductionOrder::tree: return balanced != nullptr && balanced(request);
    }
    return false;
  }
};

}  // namespace tutti::schedule
