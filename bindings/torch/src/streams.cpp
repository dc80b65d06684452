#include "streams.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "compat.hpp"
#include "errors.hpp"

#if TUTTI_TORCH_CUDA && !TUTTI_TORCH_AT_LEAST(2, 11)
#include <c10/cuda/CUDAStream.h>
#endif

namespace tutti_torch {

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Stream pooled_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

void* handle_of(const c10::Stream& stream) {
#if TUTTI_TORCH_AT_LEAST(2, 11)
  return stream.native_handle();
#elif TUTTI_TORCH_CUDA
  return c10::cuda::CUDAStream(stream).stream();
#else
  (void)stream;
  unsupported("stream",
              "tutti_torch was built without CUDA's headers, which this torch needs for it");
#endif
}

void finish(const c10::Stream& stream) {
  c10::impl::VirtualGuardImpl(stream.device_type()).synchronizeStream(stream);
}

}  // namespace tutti_torch
