// mesh/search.hpp - the cheapest chain of steps between two arrangements, over all that lie between.
//
// Dijkstra's: nodes are arrangements, edges are what one step can do from there:
//   slice           a replicated axis cuts further, inside of what cuts already; costs nothing
//   all_gather      axes that cut innermost become replicated; several at once, also of several dimensions
//   all_reduce      partial axes become replicated; several at once
//   reduce_scatter  partial axes cut further; several at once
//   all_to_all      the innermost axis of one dimension cuts another one
//   transfer        the axes that cut do so in any other way; or straight to the end
// Gathering an outer axis while an inner one cuts the same dimension is no edge: that is no box.
//
// Of two chains with one price the shorter counts. A chain that is known is in it from the start: none that
// comes out is dearer, also where there are too many arrangements to look at all of them.
#pragma once

#include <vector>

#include "mesh/step_maker.hpp"

namespace tutti::mesh {

// `to` is partial at most where `from` is. `known`: a chain from there to there.
std::vector<Leg> cheapest_chain(const TensorLayout& tensor, const Arrangement& from,
                                const Arrangement& to, const std::vector<Leg>& known,
                                StepMaker& maker);

}  // namespace tutti::mesh
