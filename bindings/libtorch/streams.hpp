// bindings/libtorch/streams.hpp - the stream that compute runs in, by torch's own interface to devices:
// it compiles with any torch, and nothing here is called where torch has no CUDA.
#pragma once

#include <c10/core/Device.h>

namespace tutti::libtorch {

// Of the calling thread, as CUDA knows it: a cudaStream_t. Throws c10::Error where this torch does not say.
void* current_stream(c10::Device device);

}  // namespace tutti::libtorch
