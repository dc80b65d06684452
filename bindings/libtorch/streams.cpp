#include "streams.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/version.h>

namespace tutti::libtorch {

void* current_stream(c10::Device device) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11)
  return stream.native_handle();
#else
  TORCH_CHECK(false, "training on ", stream.device(),
              " needs torch 2.11 or newer: older ones do not say which stream compute runs in");
#endif
}

}  // namespace tutti::libtorch
