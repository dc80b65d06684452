// dlpack.hpp - memory of other libraries' arrays, through the DLPack protocol.
//
// Only CPU memory is taken. The array that comes back is a view that keeps the producer's memory
// alive. Types that numpy lacks (bf16, fp8) come back as unsigned integers of their size.
#pragma once

#include <pybind11/pybind11.h>

namespace tutti_python {

// (numpy array, index of the tutti dtype or -1 when numpy's own tells it, whether it may be
// written)
pybind11::tuple from_dlpack(pybind11::object producer);

}  // namespace tutti_python
