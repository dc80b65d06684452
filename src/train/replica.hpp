// train/replica.hpp - DataParallel itself: buckets, what is known of the step, and the step.
//
//   begin_micro_batch ─▶ need … ─▶ begin_backward ─▶ ready … ─▶ end_backward ─▶ step
//                         │                            │             │           │
//     waits for a gather ─┘     last one of a bucket ──┘             │           │
//                               launches its reduction               │           │
//     first time: rank 0's order becomes the layout ─────────────────┘           │
//     rest of the reductions, control all_reduce, update, gathers ───────────────┘
//
// Sequence on the wire, the same on all ranks: reductions by bucket number, the control all_reduce,
// gathers in the order of forward. Files: replica.cpp (making, views), replica_order.cpp (learning),
// replica_step.cpp (a step), replica_state.cpp (checkpoints, hashes).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "train/bucket.hpp"
#include "train/bucket_layout.hpp"
#include "train/control.hpp"
#include "train/digest.hpp"
#include "train/stopwatch.hpp"
#include "train/update.hpp"
#include "tutti/train/data_parallel.hpp"

namespace tutti::train {

class Replica final : public DataParallel {
 public:
  Replica(std::shared_ptr<Group> group, std::vector<Parameter> parameters,
          DataParallelOptions options);
  ~Replica() override;
  // Collective: memory, and rank 0's weights.
  Status start();

  const std::vector<Parameter>& parameters() const override { return parameters_; }
  const DataParallelOptions& options() const override { return options_; }
  Group& group() const override { return *group_; }
  Buffer parameter(std::size_t index) const override;
  Buffer gradient(std::size_t index) const override;
  void on_layout(std::function<void()> callback) override { on_layout_ = std::move(callback); }

  Status begin_micro_batch(bool last) override;
  Status need(std::size_t index) override;
  void begin_backward() override;
  void ready(std::size_t index) override;
  Status end_backward() override;
  Result<StepReport> step(const StepInput& input) override;

  Status parameters_ready() override;
  Status discard_gradients() override;
  std::string stale_at(const void* address) const override;
  Result<std::string> weight_hash() override;
  Status check_weights() override;
  StepTimes take_times() override { return watch_.take(); }

  std::vector<StatePiece> state() override;
  std::vector<std::int64_t> step_counts() const override { return steps_; }
  Status set_step_counts(std::span<const std::int64_t> counts) override;
  Status adopt_parameters() override;
  std::vector<std::string> order() const override;
  std::string describe() const override { return train::describe(parameters_, layout_); }

 private:
  using Buckets = std::vector<std::unique_ptr<Bucket>>;

  // ---- replica.cpp
  Status agree();
  Status choose_bucket_bytes();
  Order hinted_order() const;
  Result<Buckets> make_buckets(const BucketLayout& layout);
  Status broadcast_weights();
  Range range_of(std::size_t index) const;  // of a parameter, in its bucket
  Bucket& bucket_of(std::size_t index) const { return *buckets_[layout_.place[index]->bucket]; }
  std::size_t parameter_at(std::size_t bucket, std::size_t offset) const;
  Status fail(Status status);

  // ---- replica_order.cpp
  Status learn_order();
  Result<Order> rank_zeros_order();
  Status move_to(BucketLayout layout);

  // ---- replica_step.cpp
  void expect_gradients();
  void launch_reduction(std::size_t bucket);
  void launch_reductions_that_are_ready();
  void launch_all_reductions();
  void look_for_faults(std::size_t bucket);
  Status await_reductions(ExactSum& norm);
  void add_norm(std::size_t bucket, ExactSum& norm);
  Status exchange_control(const StepInput& input, const ExactSum& norm);
  StepReport read_control();
  std::vector<Fault> faults_found() const;
  Status update_all(const StepInput& input, const StepReport& report);
  void update_bucket(std::size_t bucket, const Update& update);
  void launch_gather(std::size_t bucket);
  Status await_gather(Bucket& bucket);
  void end_step(bool gathers_are_carried);

  Digest::Value digest_of_weights() const;
  // Collective. Ranks whose digest is not rank 0's.
  Result<std::vector<int>> ranks_that_differ(const Digest::Value& mine);

  std::shared_ptr<Group> group_;
  std::vector<Parameter> parameters_;
  DataParallelOptions options_;
  std::function<void()> on_layout_;
  BucketLayout layout_;
  Buckets buckets_;
  Control control_;
  Stopwatch watch_;
  Status status_;

  bool learning_ = true;  // until the end of the first backward
  Order seen_order_;
  std::vector<bool> asked_;  // forward went through a gate for it, ever
  std::vector<bool> used_;   // its gradient came, in this step
  std::vector<bool> came_;   // its gradient came, in this backward
  std::vector<bool> told_;   // was reported as unused
  std::vector<std::int64_t> steps_;
  bool last_ = true;
  std::size_t next_ = 0;  // bucket whose reduction is launched next
};

}  // namespace tutti::train
