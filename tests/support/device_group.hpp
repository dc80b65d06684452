// support/device_group.hpp - a group whose calls run on device memory, for tests that know only the host's.
//
// Every buffer of a call is mirrored on the GPU: copied there, passed to the real group on a stream, and
// copied back. Buffers that overlap overlap there too, and lie alike within 64 bytes. So one test body
// serves both kinds of memory. TUTTI_TEST_DEVICE=cuda makes every world of support/worlds.hpp one of these.
#pragma once

#include <memory>

#include "tutti/group.hpp"

namespace tutti::test {

// Whether tests are to run on device memory; why they cannot, if they cannot.
bool wants_device();
std::shared_ptr<Group> on_device(std::shared_ptr<Group> group);

}  // namespace tutti::test
