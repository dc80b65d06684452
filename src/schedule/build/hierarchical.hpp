// schedule/build/hierarchical.hpp - when there is a hierarchy at all.
#pragma once

#include "schedule/schedule.hpp"

namespace tutti::schedule::builders {

// Whether the request names hosts, and more than one.
bool spans_hosts(const Request& request);
// And each has as many ranks as the others.
bool spans_equal_hosts(const Request& request);

}  // namespace tutti::schedule::builders
