// checkpoint/overlap_reader.hpp - elements of a stored tensor to where they are wanted, in the type that is wanted.
//
// Failure        io and corrupt name the file.
#pragma once

#include <cstddef>
#include <span>

#include "checkpoint/safetensors/safetensors.hpp"
#include "checkpoint/stored_pieces.hpp"

namespace tutti::checkpoint {

// Whether one can be read as the other: the same type, or both f16, bf16, f32 or f64.
bool is_convertible(Dtype from, Dtype to);

// `overlaps` are by their place in the tensor. What lies close together is read in one go, never more than some MiB.
Status read_overlaps(const SafetensorsFile& file, const TensorEntry& tensor,
                     std::span<const PieceOverlap> overlaps, Dtype wanted, std::byte* into);

}  // namespace tutti::checkpoint
