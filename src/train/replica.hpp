// train/replica.hpp - DataParallel itself: buckets, what is known of the step, and the step.
//
//   begin_micro_batch ─▶ need … ─▶ begin_backward ─▶ ready … ─▶ end_backward ─▶ step
//                         │                            │             │           │
//     waits for a gather ─┘     last one of a bucket ──┘             │           │
//                               launches its reduction               │           │
//     first time: rank 0's order becomes the layout ─────────────────┘           │
//     rest of the reductions, control all_reduce, update, gathers ───────────────┘
//
// Sequence on the wire, the same on all ranks of the data group: reductions by bucket number, the control
// all_reduce, gathers in the order of forward. Buckets that are added up over a sum group first come last.
// Files: replica.cpp (making, views), replica_order.cpp (learning),
// replica_pass.cpp (forward and backward), replica_step.cpp (the step), replica_state.cpp
// (checkpoints, hashes), replica_recover.cpp (going on without a lost rank, and with it again).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "train/bucket.hpp"
#include "train/bucket_layout.hpp"
#include "train/buddy.hpp"
#include "train/call_order.hpp"
#include "train/control.hpp"
#include "train/digest.hpp"
#include "train/gatherer.hpp"
#include "train/gradient_counts.hpp"
#include "train/holdings.hpp"
#include "train/norm_group.hpp"
#include "train/reducer.hpp"
#include "train/stopwatch.hpp"
#include "train/update.hpp"
#include "train/workplace.hpp"
#include "tutti/train/data_parallel.hpp"

namespace tutti::train {

// Of the copy that carries the buckets.
GroupSpec bucket_group_of(const Group& data, ReductionOrder order);

// The layer's own copies of train::Groups.
struct ReplicaGroups {
  static Result<ReplicaGroups> create(const Groups& groups,
                                      const std::vector<Parameter>& parameters,
                                      ReductionOrder order);
  std::shared_ptr<Group> data;
  std::unique_ptr<NormGroup> norm;              // null where everyone is the data group
  std::vector<std::unique_ptr<SumGroup>> sums;  // null where this rank is in none
};

class Replica final : public DataParallel {
 public:
  Replica(ReplicaGroups groups, std::vector<Parameter> parameters, DataParallelOptions options);
  ~Replica() override;
  // Collective: memory, and rank 0's weights.
  Status start();

  const std::vector<Parameter>& parameters() const override { return parameters_; }
  const DataParallelOptions& options() const override { return options_; }
  Group& group() const override { return *group_; }
  Group& everyone() const override { return norm_group_ ? norm_group_->group() : *group_; }
  Buffer parameter(std::size_t index) const override;
  Buffer gradient(std::size_t index) override;
  bool keeps_whole_weights() const override { return keeps_of(options_).whole_weights; }
  void on_layout(std::function<void()> callback) override { on_layout_ = std::move(callback); }
  void on_gate(std::function<void(std::size_t, bool)> callback) override {
    on_gate_ = std::move(callback);
  }

  Status begin_micro_batch(bool last) override;
  Status need(std::size_t index) override;
  void done(std::size_t index) override;
  void begin_backward() override;
  void begin_backward(bool last) override;
  void end_forward() override { watch_.end_forward(); }
  void ready(std::size_t index) override;
  Status end_backward() override;
  Result<StepReport> step(const StepInput& input) override;

  Status parameters_ready() override;
  Status discard_gradients() override;
  Result<std::string> weight_hash() override;
  Status check_weights() override;
  StepTimes take_times() override { return watch_.take(); }

  void set_buffers(std::function<std::vector<ModuleBuffer>()> list) override {
    list_buffers_ = std::move(list);
  }
  std::vector<ModuleBuffer> buffers() const override {
    return list_buffers_ ? list_buffers_() : std::vector<ModuleBuffer>();
  }
  std::vector<StatePiece> state() override;
  std::vector<StatePiece> weights() override;
  Status read(const ConstBuffer& view, void* to) override;
  Status write(const Buffer& view, const void* from) override;
  MemoryUse memory() const override;
  std::vector<std::int64_t> step_counts() const override { return steps_; }
  Status set_step_counts(std::span<const std::int64_t> counts) override;
  Status adopt_parameters() override;
  Status adopt_state(std::int64_t step) override;
  std::vector<std::string> order() const override;
  std::string describe() const override;
  Result<std::int64_t> recover(Groups survivors) override;
  Result<std::int64_t> join(Groups others) override;

 private:
  // ---- replica.cpp
  Status agree(Group& group, const DataParallelOptions& options) const;
  Status choose_bucket_bytes();
  // Of a collective on this memory: in the stream of compute, where that is on a device.
  CallOptions call_on(const Buffer& buffer, const char* name = nullptr) const;
  void settle_everything();
  Order hinted_order() const;
  Result<Buckets> make_buckets(Group& group, const BucketLayout& layout) const;
  Status make_slots();
  Status make_pools();
  Status fill_buckets();
  Status broadcast_frozen(Group& group) const;
  Range range_of(std::size_t index) const;  // of a parameter, in its bucket
  Bucket& bucket_of(std::size_t index) const { return *buckets_[layout_.place[index]->bucket]; }
  std::size_t parameter_at(std::size_t bucket, std::size_t offset) const;
  Status fail(Status status);

  // ---- replica_order.cpp
  Status learn_order();
  Result<Order> share_order(Group& group, const Order& mine) const;  // rank 0's
  Status move_to(BucketLayout layout);
  Status move_sums(const BucketLayout& layout, const Buckets& buckets);
  Status move_shards(const BucketLayout& layout, const Buckets& buckets);
  template <class Take>
  void each_kept(const Bucket& bucket, const BucketLayout& layout, const Buckets& buckets,
                 const Take& take) const;

  // ---- replica_pass.cpp
  void expect_gradients();
  Status end_passes();
  void learn_counts();
  // Those of this backward cross the ranks.
  bool gradients_go() const { return calls_.is_last() || reducer_.in_every_micro_batch(); }
  Status await_gather(Bucket& bucket);
  Status end_gathers();
  void set_open(std::size_t index, bool open);
  Status take_gradient(std::size_t index);
  Status take_late_gradient(std::size_t index);
  Status reduce_late_gradients();
  Status complete_rounds();
  bool keeps_whole_gradients() const { return keeps_of(options_).whole_gradients; }

  // ---- replica_step.cpp
  Status share_uses();
  Status await_reductions(ExactSum& norm);
  void zero_gradients();
  void take_findings(ExactSum& norm);
  Status exchange_control(const StepInput& input, const ExactSum& norm);
  Result<StepReport> read_control(double loss_scale);
  std::vector<Fault> faults_found() const;
  Status add_other_data_groups(double& norm_squared, std::vector<Fault>& faults);
  Outcome outcome_of(const StepReport& report) const;
  std::vector<std::string> newly_unused();
  Status update_all(Update update, const StepReport& report);
  void update_bucket(std::size_t bucket, const Update& update);
  void launch_gather(std::size_t bucket);
  void end_step(std::optional<std::int64_t> number);

  // ---- replica_recover.cpp
  // Where the state lies that ranks go on from.
  struct Remains {
    std::int64_t step = 0;
    int root = 0;                // whose live state it is, and whose step counts
    bool in_shards = false;      // in everybody's live shard instead
    bool in_copies = false;      // in the survivors' copies of shards instead
    bool is_pristine = false;    // as it was made
    bool has_newcomers = false;  // who have none of it
  };
  std::size_t shard_floats() const;
  void pack_shard(std::vector<float>& values);
  Status copy_shard();
  Status copy_shard_now();
  Result<Remains> choose_remains(Group& survivors);
  void collect(const Remains& remains, std::size_t index, int kind, bool is_root,
               std::vector<std::uint32_t>& bits);
  template <class Put>
  void collect_own(Bucket& bucket, int kind, const Put& put);
  template <class Put>
  void collect_live(Bucket& bucket, int kind, const Put& put);
  void restore(Bucket& bucket, Range range, int kind, const float* from);
  std::vector<float> on_host(const float* values, std::size_t count) const;
  Result<std::vector<std::int64_t>> counts_of(const Remains& remains, Group& survivors);
  Status bring_up(Group& group);
  Result<Buckets> assemble(const Remains& remains, Group& survivors, const BucketLayout& layout);
  void begin_again(std::shared_ptr<Group> group, BucketLayout layout, Buckets buckets,
                   std::int64_t step);

  // ---- replica_state.cpp
  std::vector<std::size_t> by_name() const;
  Status add_values(std::size_t index, Digest& digest);
  Result<Digest::Value> digest_of_weights();
  Result<Digest::Value> digest_of_the_whole();
  Status read_pieces(const std::vector<const StatePiece*>& pieces, std::vector<std::byte>& bytes);
  Status compare_data_groups();

  std::shared_ptr<Group> group_;
  std::unique_ptr<NormGroup> norm_group_;
  std::vector<std::unique_ptr<SumGroup>> sum_groups_;
  std::shared_ptr<Workplace> workplace_ = make_host_workplace();  // until start() has made its own
  std::vector<Parameter> parameters_;
  DataParallelOptions options_;
  std::function<void()> on_layout_;
  std::function<void(std::size_t, bool)> on_gate_;
  std::function<std::vector<ModuleBuffer>()> list_buffers_;
  BucketLayout layout_;
  Buckets buckets_;
  CallOrder calls_;
  GradientCounts counts_;
  Control control_;
  // Where gradients are reduced in every micro-batch, for what ranks agree on beside that: it must not queue
  // behind reductions that other ranks have not launched.
  std::shared_ptr<Group> beside_;
  Stopwatch watch_{workplace_};
  Reducer reducer_{{group_, sum_groups_, workplace_, options_, parameters_, buckets_, watch_}};
  Gatherer gatherer_{{parameters_, layout_, buckets_, watch_}};  // where weights are not kept whole
  std::shared_ptr<BucketSlots> gradient_slots_;  // where gradients are not kept whole
  std::vector<bool> late_;        // buckets that a gradient came for when they had gone
  std::unique_ptr<Buddy> buddy_;  // from the first step or load on, where it is wanted
  Status status_;

  bool learning_ = true;       // until the end of the first backward
  bool counts_known_ = false;  // how often gradients come
  Order order_;                // that the layout was made from
  bool is_pristine_ = true;    // never updated, and no state was asked for
  bool is_newcomer_ = false;   // its state is yet to come
  Order seen_order_;
  std::vector<bool> asked_;   // forward went through a gate for it, ever
  std::vector<bool> open_;    // its last update was waited for: it may be read
  std::vector<bool> passed_;  // where weights are not kept whole: was open in this micro-batch
  std::vector<bool> used_;    // its gradient came, in this step
  std::vector<bool> told_;    // was reported as unused
  std::vector<std::int64_t> steps_;
  std::int64_t number_ = 0;  // of the last step that is over
};

}  // namespace tutti::train
