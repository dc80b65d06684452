// cost/symmetry.hpp - which ranks of a schedule are alike, so that one can stand for many.
//
// In rings, grids, pairwise exchanges and so on, rank r + k does what rank r does, to partners that
// are alike in the same way: all ranks of equal r mod k begin, wait and end at the same times, as
// long as the wires are alike too (k a whole number of hosts, or of leaf switches where uplinks are
// short). Then k programs tell it all. Whether that is so is looked at, not believed: programs of
// several ranks of each class are built and compared, op by op and hazard by hazard.
#pragma once

#include <vector>

#include "cost/network.hpp"
#include "schedule/catalog.hpp"

namespace tutti::cost {

// Receives that follow each other and do not touch the same chunk may stand in any order; some
// builders put them by rank, which differs from rank to rank. Here: by distance.
schedule::Program sorted_receives(schedule::Program program);

// The ranks that stand for all, 0 … k-1: k, or 0 where everybody has to be played.
int find_modulus(const Site& site, const schedule::Entry& entry, const schedule::Request& request,
                 const std::vector<int>& seats);
// Who stands for whom then.
Standing standing_for(const Site& site, const std::vector<int>& seats, int modulus);

}  // namespace tutti::cost
