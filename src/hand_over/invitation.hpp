// hand_over/invitation.hpp - receivers of the trainer's own job are told where the door is.
#pragma once

#include <string>

#include "hand_over/door.hpp"
#include "tutti/config.hpp"
#include "tutti/group.hpp"

namespace tutti::hand_over {

struct Invitation {
  std::string addresses, secret;
};

// Both meet in a group of two of `group`, which is over when they return.
Status invite(Group& group, int receiver, const Entrance& door);
Result<Invitation> be_invited(Group& group, int trainer);

// What rounds go by: the program's, or the environment's; short meetings, no measuring, no traces of their own.
Result<Config> config_for_rounds(const std::optional<Config>& given);

}  // namespace tutti::hand_over
