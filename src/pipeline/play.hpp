// pipeline/play.hpp - runs the programs of all ranks in virtual time, for simulation and for the proof
// that nobody waits for ever.
//
// Each rank has its own time, and goes on as long as what it waits for is known; then the next one has
// its turn. That needs no event queue: when a message leaves is known once its sender has come to it, and
// messages between two ranks leave in the order of the sender's program.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tutti/pipeline/simulate.hpp"

namespace tutti::pipeline {

class Playback {
 public:
  // Both are lent. `durations` has been checked; programs have the ops that verify_pipeline wants of each.
  Playback(std::span<const PipelineProgram> programs, const PipelineDurations& durations);

  // ok, or Code::internal with what each rank that is stuck waits for.
  Status play();
  PipelineTimeline take() { return std::move(timeline_); }

 private:
  struct Cursor {
    std::size_t at = 0;  // the next op
    double time = 0;
    bool posted = false;  // its batch
  };

  const PipelineShape& shape() const { return programs_.front().shape; }
  bool advance(int rank);
  bool compute(int rank, const PipelineOp& op);
  bool meet(int rank);
  std::size_t end_of_batch(int rank) const;
  double duration(int rank, const PipelineOp& op) const;
  double transfer(int rank, PipelineOpKind kind, int virtual_stage) const;
  void hand_on(int rank, const PipelineOp& op, double done);
  double& arrival(PipelineOpKind received, int place, int micro_batch);
  double& posted(int rank, const PipelineOp& op);
  double posted_by_peer(int rank, const PipelineOp& op);
  std::string stuck() const;

  std::span<const PipelineProgram> programs_;
  const PipelineDurations& durations_;
  std::vector<Cursor> cursors_;
  std::vector<double> arrivals_;  // of what a place receives, by kind, place and micro-batch
  std::vector<double>
      posted_;  // when a transfer's batch was reached, by rank, kind, virtual stage …
  std::vector<double> link_free_;  // by sender and receiver
  PipelineTimeline timeline_;
};

}  // namespace tutti::pipeline
