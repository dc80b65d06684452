// transport/shm/descriptors.hpp - descriptors over a Unix socket (SCM_RIGHTS).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>

#include "core/sockets.hpp"

namespace tutti::transport {

inline constexpr std::size_t kMaxDescriptors = 2;

// One record of fixed size with its descriptors, whole or (false, errno) not at all: records are
// far smaller than what a Unix socket splits.
bool send_descriptors(int socket, const void* record, std::size_t bytes,
                      std::span<const int> descriptors);
// The bytes that came, 0 at the end, -1 with errno. Descriptors beyond those wanted are closed;
// those that did not come stay empty.
ssize_t receive_descriptors(int socket, void* record, std::size_t bytes,
                            std::span<Descriptor> descriptors);

}  // namespace tutti::transport
