// schedule/build/builders.hpp - every builder, by algorithm; catalog.cpp lists them for others.
//
// A builder is a pure function: the program of request.rank, without looking at anybody else's. The
// messages it exchanges do not depend on request.in_place, since ranks may differ in that.
#pragma once

#include "schedule/build/draft.hpp"
#include "schedule/schedule.hpp"

namespace tutti::schedule::builders {

Program direct_broadcast(const Request& request);
Program direct_reduce(const Request& request);
Program direct_all_reduce(const Request& request);
Program direct_gather(const Request& request);
Program direct_all_gather(const Request& request);
Program direct_scatter(const Request& request);
Program direct_reduce_scatter(const Request& request);
Program direct_all_to_all(const Request& request);
Program direct_barrier(const Request& request);
Program direct_scan(const Request& request);
Program direct_exclusive_scan(const Request& request);

Program linear_broadcast(const Request& request);
Program linear_reduce(const Request& request);
Program linear_gather(const Request& request);
Program linear_scatter(const Request& request);
Program linear_barrier(const Request& request);
Program linear_scan(const Request& request);
Program linear_exclusive_scan(const Request& request);

Program ring_broadcast(const Request& request);
Program ring_reduce(const Request& request);
Program ring_all_reduce(const Request& request);
Program ring_all_gather(const Request& request);
Program ring_reduce_scatter(const Request& request);

Program binomial_tree_broadcast(const Request& request);
Program binomial_tree_reduce(const Request& request);
Program binomial_tree_all_reduce(const Request& request);
Program binomial_tree_gather(const Request& request);
Program binomial_tree_scatter(const Request& request);
Program binomial_tree_barrier(const Request& request);

Program double_binary_tree_broadcast(const Request& request);
Program double_binary_tree_reduce(const Request& request);
Program double_binary_tree_all_reduce(const Request& request);

Program recursive_doubling_all_reduce(const Request& request);
Program recursive_doubling_all_gather(const Request& request);
Program recursive_doubling_barrier(const Request& request);
Program recursive_doubling_scan(const Request& request);
Program recursive_doubling_exclusive_scan(const Request& request);

Program halving_doubling_reduce(const Request& request);
Program halving_doubling_all_reduce(const Request& request);
Program halving_doubling_reduce_scatter(const Request& request);

Program hypercube_all_gather(const Request& request);

Program bruck_all_gather(const Request& request);
Program bruck_all_to_all(const Request& request);

Program pairwise_all_reduce(const Request& request);
Program pairwise_reduce_scatter(const Request& request);
Program pairwise_all_to_all(const Request& request);

Program torus_2d_all_reduce(const Request& request);
Program torus_2d_all_gather(const Request& request);

Program hierarchical_broadcast(const Request& request);
Program hierarchical_reduce(const Request& request);
Program hierarchical_all_reduce(const Request& request);
Program hierarchical_all_gather(const Request& request);
Program hierarchical_reduce_scatter(const Request& request);
Program hierarchical_barrier(const Request& request);

}  // namespace tutti::schedule::builders
