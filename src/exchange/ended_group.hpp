// exchange/ended_group.hpp - what becomes of a group when a callback of an exchange fails.
#pragma once

#include "tutti/group.hpp"

namespace tutti::exchange {

// The other ranks wait for what this one would have sent: they hear why it will not come.
inline void end_group(Group& group, const Status& why) {
  group.abort("what was computed beside an exchange failed: " + why.message());
}

}  // namespace tutti::exchange
