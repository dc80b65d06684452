// A build without CUDA says so, and needs nobody to ask whether it is one.
#include <gtest/gtest.h>

#include "cuda/device.hpp"

namespace tutti::cuda {
namespace {

TEST(Cuda, is_built_in_or_not) { EXPECT_EQ(is_built_in(), TUTTI_WITH_CUDA != 0); }

TEST(WithoutCuda, a_device_cannot_be_opened_and_the_reason_is_told) {
  if (TUTTI_WITH_CUDA) return;  // the emulated driver is tested instead
  for (const Status& status : {Device::open(0).status(), count_devices().status(),
                               device_of(nullptr).status(), look_at(0).status()}) {
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_EQ(status.message().rfind("this build has no CUDA", 0), 0U) << status.message();
  }
}

}  // namespace
}  // namespace tutti::cuda
