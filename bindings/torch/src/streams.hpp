// streams.hpp - streams of a GPU, by torch's own interface to devices: it compiles with any torch, and
// nothing here is called where torch has no CUDA.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace tutti_torch {

// The calling thread's.
c10::Stream current_stream(c10::Device device);
// One that torch lends out in turn, to others too.
c10::Stream pooled_stream(c10::Device device);
// What CUDA knows it by: a cudaStream_t.
void* handle_of(const c10::Stream& stream);
// Blocks until the GPU is through with what the stream has so far.
void finish(const c10::Stream& stream);

}  // namespace tutti_torch
