// dlpack.hpp - memory of other libraries' arrays, through the DLPack protocol.
//
// The array that comes back is a view that keeps the producer's memory alive. Types that numpy lacks
// (bf16, fp8) come back as unsigned integers of their size.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

namespace tutti_python {

// (numpy array, index of the tutti dtype or -1 when numpy's own tells it, whether it may be
// written)
pybind11::tuple from_dlpack(pybind11::object producer);

// The same for an array on a GPU, which must be contiguous; `stream` is the one that the producer makes
// wait for the contents, by the protocol's numbers. (address, bytes, shape, name of numpy's type, index of
// the tutti dtype or -1, whether it may be written, owner)
pybind11::tuple from_dlpack_on_gpu(pybind11::object producer, std::uint64_t stream);

// A capsule of the protocol, of its first version or before: memory of GPU `gpu` at `address`, which
// `owner` keeps alive. `parts`: how many of `dtype` make an element, 2 for complex numbers.
pybind11::object to_dlpack(pybind11::object owner, std::uintptr_t address, int gpu, int dtype,
                           int parts, const pybind11::tuple& shape, bool versioned);

}  // namespace tutti_python
