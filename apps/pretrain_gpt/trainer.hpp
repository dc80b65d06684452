// apps/pretrain_gpt/trainer.hpp - the training loop of one rank.
//
// Failure        the Status that ended the run; alike on all ranks where it was a common decision.
#pragma once

#include <memory>

#include "data.hpp"
#include "flags.hpp"
#include "returns.hpp"
#include "tutti/group.hpp"

namespace pretrain {

class Subject;  // subject.hpp

struct TrainingEnd {
  tutti::Status status;
  bool before_training = false;  // what was given is at fault: exit code 2
};

// `returns`: how lost ranks are taken back. Where this one is one of them, `group` is what the others
// have taken it into.
// The subject is lent.
TrainingEnd train(std::shared_ptr<tutti::Group> group, Subject& subject, const Flags& flags,
                  Data data, Returns returns);

}  // namespace pretrain
