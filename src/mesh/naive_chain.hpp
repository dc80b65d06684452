// mesh/naive_chain.hpp - the chain that goes axis by axis, as torch's DTensor does on CPU groups: what a
// plan has to beat.
//
// Torch turns the placements of one axis after another: partial to replicate by all_reduce, partial to
// shard by reduce_scatter, shard to replicate by all_gather, replicate to shard by a slice; shard(i) to
// shard(j) by all_gather and a slice, because its all_to_all is for GPUs alone. It goes from the last axis
// to the first, and makes whole on the way what another axis cuts wrongly there; then from the first to
// the last for what is left. Other nestings than the axes' own order it does not know: there everything
// is made whole, then cut.
#pragma once

#include <vector>

#include "mesh/step_maker.hpp"

namespace tutti::mesh {

// To `to` but for what is partial there and not in `from`.
std::vector<Leg> naive_chain(const TensorLayout& tensor, const Arrangement& from,
                             const Arrangement& to);

}  // namespace tutti::mesh
