// extending/toys.hpp - the algorithm and the transport of docs/extending.md, each a page.
#pragma once

#include <span>

#include "schedule/entry.hpp"
#include "transport/transport.hpp"

namespace tutti::toys {

std::span<const schedule::Entry> star_rows();
const transport::Transport& unix_transport();

}  // namespace tutti::toys
