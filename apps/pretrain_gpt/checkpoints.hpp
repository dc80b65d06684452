// apps/pretrain_gpt/checkpoints.hpp - saving, at once or beside training (--async-save), and telling
// of it.
//
// Ordering       create, save and finish are collective.
// Failure        of one beside training: failed() says so on some rank, at some step; the ranks end
//                the same step by StepInput::stop, and save or finish gives all of them the verdict.
#pragma once

#include <chrono>
#include <memory>

#include "flags.hpp"
#include "report.hpp"
#include "tutti/train/checkpoint.hpp"

namespace pretrain {

class Checkpoints {
 public:
  // `report` is null but on rank 0; lent.
  static tutti::Result<std::unique_ptr<Checkpoints>> create(tutti::Group& group, const Flags& flags,
                                                            TrainingReport* report);
  tutti::Status save(tutti::train::DataParallel& layer, const tutti::train::CheckpointInfo& info);
  // To be asked after each step: tells of one that has become whole meanwhile.
  bool failed();
  // Nothing is under way any more.
  tutti::Status finish();
  // The step of the last one, whole or under way; -1: there is none.
  std::int64_t last() const { return last_.step; }

 private:
  using Clock = std::chrono::steady_clock;
  void tell();

  std::string folder_;
  int keep_ = 0;
  TrainingReport* report_ = nullptr;
  std::unique_ptr<tutti::train::CheckpointWriter> writer_;  // null: saved at once
  SavedCheckpoint last_{.step = -1};
  Clock::time_point began_;
  bool under_way_ = false;
};

}  // namespace pretrain
