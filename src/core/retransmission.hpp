// core/retransmission.hpp - how often TCP tries again what was lost.
#pragma once

#include "core/clock.hpp"

namespace tutti {

// At even distances at first, and every dead_after / 8 at least where the kernel lets us say so, instead of
// ever more rarely: else a connection over a link that was down for most of dead_after would stay silent
// for longer than the link did. (15 of them end a connection: after dead_after.) Nothing where dead_after
// is 0, or on a socket that has no such options.
void retransmit_evenly(int socket, Nanoseconds dead_after) noexcept;

}  // namespace tutti
