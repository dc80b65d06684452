// schedule/build/builders.hpp - what the files of this folder have in common: each gives the catalog
// its rows, and some of their builders are parts of others.
#pragma once

#include <span>

#include "schedule/build/draft.hpp"
#include "schedule/entry.hpp"

namespace tutti::schedule::builders {

// direct_rows(), linear_rows() …: each in the file of its name.
#define TUTTI_ALGORITHM(word, WORD) std::span<const Entry> word##_rows();
#include "tutti/algorithms.def"
#undef TUTTI_ALGORITHM

Program direct_reduce(const Request& request);
Program direct_all_gather(const Request& request);
Program direct_reduce_scatter(const Request& request);

Program ring_all_reduce(const Request& request);
Program ring_all_gather(const Request& request);
Program ring_reduce_scatter(const Request& request);

Program pairwise_all_reduce(const Request& request);

Program binomial_tree_broadcast(const Request& request);
Program binomial_tree_reduce(const Request& request);

}  // namespace tutti::schedule::builders
