// schedule/build/walk.hpp - builders that take ranks in the order of Request::walk.
#pragma once

#include <algorithm>

#include "schedule/build/builders.hpp"
#include "schedule/compose.hpp"

namespace tutti::schedule::builders {

// Whether the request names a walk, and results do not depend on who is whose neighbour.
inline bool may_walk(const Request& request) {
  return !request.walk.empty() &&
         (!has_reduction(request.collective) || request.order == ReductionOrder::any);
}

// `build` as if ranks had been numbered along the walk. Its parts are of one chunk each.
template <Program (*build)(const Request&)>
Program walking(const Request& request) {
  if (!may_walk(request)) return build(request);
  const auto place_of = [&](int rank) {
    return static_cast<int>(std::find(request.walk.begin(), request.walk.end(), rank) -
                            request.walk.begin());
  };
  Request by_place = request;
  by_place.rank = place_of(request.rank);
  by_place.root = place_of(request.root);
  by_place.walk = {};
  return renamed(build(by_place), request.walk);
}

}  // namespace tutti::schedule::builders
