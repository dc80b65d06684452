// group/extensions.hpp - algorithms and transports that a program brings along.
//
// Handed to a group by GroupOptions::extensions, it serves that group and all that are made from it.
// All ranks bring the same. For trying things out and for tests; what has proved its worth is a file
// in src/ (docs/extending.md).
//
//   auto more = std::make_shared<tutti::Extensions>();
//   more->algorithms = {{Collective::all_gather, Algorithm::custom, my_all_gather, kOrdered}};
//   options.extensions = more;
#pragma once

#include <vector>

#include "schedule/entry.hpp"
#include "transport/transport.hpp"

namespace tutti {
inline namespace v1 {

struct Extensions {
  // Besides the built-in ones; named Algorithm::custom, at most one for each collective.
  std::vector<schedule::Entry> algorithms;
  // Tried before the built-in ones. They must outlive the group.
  std::vector<const transport::Transport*> transports;
};

}  // namespace v1
}  // namespace tutti
