// tutti/train/data_parallel.hpp - one replica of a model that is trained on several ranks.
//
// The layer owns parameters and gradients, in flat buckets of symmetric memory. It is told what the
// framework does ("this parameter is needed", "this gradient is there") and answers with
// collectives that run beside it. Whatever the mode, the weights have the same bits.
//
//   mode                          reduction                     update         then
//   plain                         all_reduce after backward     everything     -
//   overlap_grad_reduce           all_reduce during backward    everything     -
//   use_distributed_optimizer     reduce_scatter after          own shard      all_gather, waited for
//   … + overlap_grad_reduce       reduce_scatter during         own shard      all_gather, waited for
//   … + overlap_param_gather      reduce_scatter during         own shard      all_gather during the
//                                                                              next forward
//   zero = 2                      reduce_scatter during every   own shard      as use_distributed_optimizer
//                                 micro-batch's backward
//   zero = 3                      the same                      own shard      all_gather of each unit before
//                                                                              it is used, ahead of time
//
// use_distributed_optimizer is ZeRO's first stage: of the optimizer's state each rank keeps a shard. With
// the second one a rank keeps gradients only until they are reduced, and their sum in its shard. With the third
// one weights are whole only while they are used: between need and done (docs/algorithms/zero.md).
//
// Ordering       create, step and every method that says so are collective: all ranks call them in
//                the same order. need and ready are not; ranks may even use different parameters.
// Buffers        parameter() and gradient() are views of the layer's memory, on `device`. They move once, at the
//                end of the first backward, when the order of use is known: on_layout tells.
// Thread-safety  one thread at a time (torch's backward may call ready from its own thread).
// Failure        the first failure sticks: every later call that returns a Status returns it. A call
//                out of order is invalid_argument that names it; those without a Status (ready,
//                begin_backward) show it in the next call that has one.
//
//   auto model = train::DataParallel::create({group, group}, parameters, options);
//   for (int micro = 0; micro < accumulation; ++micro) {
//     (*model)->begin_micro_batch(micro + 1 == accumulation);
//     …forward: (*model)->need(p) before p is read…
//     (*model)->begin_backward();
//     …backward of the loss *sum*: gradient added to gradient(p), then (*model)->ready(p)…
//     (*model)->end_backward();
//   }
//   auto report = (*model)->step({.lr = 1e-3, .tokens = tokens_of_this_rank});
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/group.hpp"
#include "tutti/train/overlap.hpp"
#include "tutti/train/parameter.hpp"

namespace tutti::train {
inline namespace [[gnu::visibility("default")]] v1 {

struct DataParallelOptions {
  bool overlap_grad_reduce = false;
  bool use_distributed_optimizer = false;
  bool overlap_param_gather = false;  // needs the other two
  // What of the replica a rank keeps as a shard (ZeRO's stages): 0 nothing, 1 the optimizer's state, 2 also
  // gradients, 3 also weights. Absent: 1 with use_distributed_optimizer, else 0; another number beside that flag is an
  // error. 2 and 3 need overlap_grad_reduce: gradients that were not reduced as they come would all be
  // there at once. All ranks then have as many micro-batches in a step. 3: on the CPU, without buddy.
  std::optional<int> zero{};
  // With zero = 3, how many units are gathered ahead; 0: chosen after the first micro-batch, by what compute
  // took there and what Group::predict says of gathers.
  int prefetch_units = 0;
  // Gradients are reduced in every micro-batch's backward, and summed in the shard: from zero = 2 on they
  // are in any case. With zero = 1 it costs more, and gives the bits of zero = 2.
  bool reduce_every_micro_batch = false;
  // Gradients cross the ranks in bf16: each is rounded once, and what comes out of the sum, in f32 as ever, is not
  // rounded. Half the bytes of a reduce_scatter, three quarters of an all_reduce, whose sums travel as f32; two bytes of
  // memory more for each gradient that is kept whole. Sums of micro-batches stay in f32, and so does what is added up
  // over Groups::sums before.
  bool grad_reduce_in_bf16 = false;
  // Of gradients, in a bucket; 0: from Group::predict.
  std::size_t bucket_bytes = 0;
  double clip_grad = 0;  // largest global norm; 0: any
  // In which gradients are summed over the data group: rank or tree; bits are promised, so any is refused.
  // All modes agree in either; with one rank that goes through as many micro-batches, rank alone does.
  ReductionOrder reduction_order = ReductionOrder::rank;
  Optimizer optimizer = AdamW{};
  std::vector<ParameterGroup> groups = {ParameterGroup{}};
  // Several micro-batches are under way at once, as in a stage of a pipeline: their forwards and backwards
  // come in any order, begin_backward(last) says which backwards complete gradients, and what was learned of
  // the order of use counts from the second step on.
  bool pipelined = false;
  // Gradients are looked at before they are reduced, so that the rank at fault can be named, and a
  // step with one that is not finite is `rejected` instead of `skipped`.
  bool check_for_nan = false;
  // With use_distributed_optimizer: after each step a rank's shard is copied to its neighbour, beside
  // the next step's compute, so that recover() has it when the rank is lost. Takes four times the
  // memory of the shard and its moments. Without it every rank has everything.
  bool buddy = false;
  // Where parameters, gradients and the optimizer's state lie, and where updates are computed. On cuda
  // nothing of a step waits on the host but its agreement: need and ready put waits into streams, so
  // bits and order are those of the CPU, times those of the device.
  Device device = Device::cpu;
  // On cuda: the stream that compute runs in (a CUstream), asked in the thread that calls whenever
  // something is put into it; null: always the legacy default stream.
  std::function<void*()> stream{};
  // Names in the order of an earlier run's backward (DataParallel::order): saves the move.
  std::vector<std::string> order_hint{};
};

// Who trains what. Ranks of `data` train the same parameters on different tokens. Where a model is cut
// over ranks there are several data groups, one for each part; `everyone` is all ranks of all of them.
//
//   dp × cp 2, tp 2       data {0 2} and {1 3}       everyone {0 1 2 3}       sums[0] {0 1} and {2 3}
//
// Uses and tokens are the data group's, and each data group must count the same tokens. Norm, clipping,
// faults, checkpoints and hashes are everyone's. Ranks of sums[i] add the gradients of parameters with
// ParameterPlace::sum = i before the data groups do; null where this rank has none of them. The layer
// makes copies of all of them for itself; all but the data group's fold in rank order.
struct Groups {
  std::shared_ptr<Group> data{};
  std::shared_ptr<Group> everyone{};  // null: data
  std::vector<std::shared_ptr<Group>> sums{};
  // What this rank's part of the model is called in messages, such as "pp 0, tp 1": the same on all ranks
  // of its data group.
  std::string part{};
};

// What one group of parameters is updated with in one step, where a schedule may change all of it.
struct GroupStep {
  double lr = 0;
  double weight_decay = 0;
  Optimizer optimizer{};  // of the kind that the layer was made with
};

struct StepInput {
  double lr = 0;
  // One for each of DataParallelOptions::groups, in place of lr, of what stands there and of the optimizer's
  // numbers; empty: those hold.
  std::span<const GroupStep> groups{};
  // The loss was multiplied by this before backward; gradients and their norm are divided by it.
  double loss_scale = 1;
  // That this rank's loss sum is made of; gradients are divided by all ranks'. May be 0, but
  // must be given.
  std::int64_t tokens = -1;
  bool loss_is_finite = true;  // looked at when the step is decided (--strict-loss-check)
  // Of this step, as traces show it; 0: the one after the last. A step computed again has the
  // same number.
  std::int64_t number = 0;
  // This rank wants to end with this step; StepReport::stop tells all of them.
  bool stop = false;
  // This rank wants all of them to do something together after this step, such as to take in a rank that
  // came back; StepReport::meet tells all of them.
  bool meet = false;
};

enum class Outcome : std::uint8_t {
  updated,
  skipped,   // a gradient was not finite: nothing changed, on any rank
  rejected,  // the same, or the loss was not finite, with check_for_nan: the caller decides
  empty,     // no rank had a token (all are masked): nothing changed, on any rank
};
std::string_view to_string(Outcome outcome) noexcept;

// Something that was not finite. The same list on every rank.
struct Fault {
  int rank = -1;          // of its data group; -1: found after the reduction, so any rank's
  bool is_loss = false;   // else a gradient
  std::string parameter;  // of the gradient
  int bucket = -1;
  int data_group = -1;  // the lowest of its ranks among everyone; -1: there is one data group
  std::string part{};   // Groups::part of that data group
};

struct StepReport {
  Outcome outcome = Outcome::updated;
  std::int64_t tokens = 0;  // of all ranks
  double grad_norm = 0;     // of the mean gradient, before clipping
  bool stop = false;        // some rank asked for it: the same answer on every rank
  bool meet = false;        // likewise, of its data group
  std::vector<Fault> faults;
  std::vector<std::string> unused;  // parameters that no rank used and that were not told before
};

// Bytes that a rank keeps in the layer's memory.
struct MemoryUse {
  std::size_t weights = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;  // main weights behind bf16 ones, and moments
  std::size_t pool = 0;       // for what is whole only for a while: see docs/algorithms/zero.md
};

// A part of what this rank keeps of a parameter: elements [first, first + count) of it. Names: "weight",
// "main" (f32 weights behind bf16 ones), "exp_avg", "exp_avg_sq", "momentum".
struct StatePiece {
  std::size_t parameter = 0;
  std::size_t first = 0;
  std::string_view name;
  Buffer values;
};

class DataParallel {
 public:
  // Collective. Rank 0's weights reach every rank. invalid_argument names the option or parameter.
  static Result<std::unique_ptr<DataParallel>> create(Groups groups,
                                                      std::vector<Parameter> parameters,
                                                      DataParallelOptions options);
  virtual ~DataParallel() = default;

  virtual const std::vector<Parameter>& parameters() const = 0;
  virtual const DataParallelOptions& options() const = 0;
  virtual Group& group() const = 0;  // the copy of the data group that carries the buckets
  virtual Group& everyone()
      const = 0;  // the copy of Groups::everyone; the same where there is one data group

  // Views; of a frozen parameter there is no gradient (null data). Gradients are f32 whatever the
  // parameter is, and zero when a step begins. Between step() and its gate a parameter's values are
  // partly old: whoever reads plain memory then is found out only when the gradient comes.
  // With zero = 3 there are none but between need and done (null data).
  virtual Buffer parameter(std::size_t index) const = 0;
  // From zero = 2 on there is one in backward alone, from when it is asked for, zero at first, until it was
  // reduced: ask each time when a gradient is to be added. May wait for earlier reductions then. Null data
  // otherwise, and after a failure, which end_backward tells.
  virtual Buffer gradient(std::size_t index) = 0;
  // Whether parameter() is whole behind parameters_ready, in memory that is kept anyway.
  virtual bool keeps_whole_weights() const { return true; }
  // Called when all views have moved, and the contents with them.
  virtual void on_layout(std::function<void()> callback) = 0;
  // Called for each parameter when it may not be read any more (closed: its next value is on its
  // way), and when it may again (open: somebody has waited for it). Without overlap_param_gather
  // never, unless zero = 3: then by need and done; parameter() tells where it is, which changes.
  virtual void on_gate(std::function<void(std::size_t index, bool open)> callback) = 0;

  // ---- a step, in the order of these methods
  // `last`: this micro-batch's backward completes the gradients. Waits for those parameters that no
  // forward has ever asked for.
  virtual Status begin_micro_batch(bool last) = 0;
  // The gate: returns when the parameter has the value of the last step.
  // With zero = 3 also before backward reads it, and each is followed by a done. Which ones are needed,
  // in which order, is learned in the first micro-batch, where it must be the same on all ranks; a pass may
  // need less later, or in another order, but none more often. Outside of steps need is collective.
  virtual Status need(std::size_t index) = 0;
  // It is not read any more before the next need. Those that were not told are done when backward ends.
  virtual void done(std::size_t) {}
  virtual void begin_backward() = 0;
  // With options.pipelined, of any micro-batch that was begun. `last`: the gradients that it brings are
  // complete with it; of a step there may be several such backwards, of different parameters.
  virtual void begin_backward(bool last) = 0;
  // What follows is no forward any more, for the times that are reported; may be left out.
  virtual void end_forward() = 0;
  // A gradient was added to gradient(index). Mostly once in a backward; where forward is recomputed
  // in segments, or tensors share memory, as often as one was added. How often is learned in the
  // first step; once more than ever before, when the bucket has gone, is an error. So is a gradient
  // of a parameter whose gate was not passed in this step. Failures show in end_backward.
  virtual void ready(std::size_t index) = 0;
  // After the very first one rank 0's order of use becomes everybody's layout (collective then).
  virtual Status end_backward() = 0;
  // Collective. Completes the reductions, decides together, updates, starts the gathers.
  virtual Result<StepReport> step(const StepInput& input) = 0;

  // ---- beside the steps
  // Every parameter has the value of the last step: call before any read that is not behind need. With
  // zero = 3 there is no such read.
  virtual Status parameters_ready() = 0;
  // Gradients of an unfinished step become zero, and are waited for if they are on their way.
  // Collective: a step that is begun again is begun again everywhere. With reduce_every_micro_batch all
  // ranks must have begun as many micro-batches.
  virtual Status discard_gradients() = 0;
  // Collective among everyone, with the same answer. SHA-256 of names, types and values of the whole
  // tensors, by name, as hex: buckets, shards and cuts of the model leave no trace in it. Waits for
  // parameters. A tensor that no rank has the whole of is put together on one rank.
  virtual Result<std::string> weight_hash() = 0;
  // Collective among everyone. mismatch names ranks whose weights differ from rank 0's of their data
  // group, or two data groups that have the same box with other values.
  virtual Status check_weights() = 0;
  // What the last complete step's collectives did; see overlap.hpp.
  virtual StepTimes take_times() = 0;

  // ---- after a failure, and when a lost rank is back
  // Collective on the ranks that are left, or that are more (Group::shrink, grow): the layer goes on in
  // their group, with other shards, from the newest step of which they hold the whole state. Returns its number, as step() was told it:
  // that of the last step or one or two before. Gradients of an unfinished step are dropped, and all
  // views move (on_layout). peer_lost without a peer: a shard is lost; the layer is of no more
  // use, so make another and load a checkpoint. With one: another rank was lost meanwhile; once more.
  virtual Result<std::int64_t> recover(Groups survivors) = 0;
  // The same for a newcomer, while the others recover(): a layer that was made alone, in a group of one,
  // gets its state from them. mismatch: it has other parameters or options.
  virtual Result<std::int64_t> join(Groups others) = 0;

  // ---- for checkpoints and logs
  // What belongs to the model and is not trained is saved and loaded with it. Asked each time: it
  // may have moved. Rank 0's are saved; all ranks load the same.
  virtual void set_buffers(std::function<std::vector<ModuleBuffer>()> list) = 0;
  virtual std::vector<ModuleBuffer> buffers() const = 0;
  virtual std::vector<StatePiece> state() = 0;
  // The weights that this rank answers for: of a data group each element is one rank's, whoever has
  // copies. They are up to date behind parameters_ready.
  virtual std::vector<StatePiece> weights() = 0;
  // Values of a view (parameter, gradient, buffers, state) into host memory and back, when what was put
  // into the stream before has been done; on the CPU they are copied.
  virtual Status read(const ConstBuffer& view, void* to);
  virtual Status write(const Buffer& view, const void* from);
  virtual MemoryUse memory() const { return {}; }
  // How often each parameter was updated; the optimizer's own step count.
  virtual std::vector<std::int64_t> step_counts() const = 0;
  virtual Status set_step_counts(std::span<const std::int64_t> counts) = 0;
  // Collective: after weights() were overwritten from outside, copies of them and main weights follow.
  // To be called before main weights are restored, where a checkpoint has them.
  virtual Status adopt_parameters() = 0;
  // Collective, when state() and the step counts were overwritten too: they are those after this step,
  // as step() counts them. With `buddy` the shards are copied.
  virtual Status adopt_state(std::int64_t step) = 0;
  // Names in the order in which their gradients become ready.
  virtual std::vector<std::string> order() const = 0;
  // Where each parameter lies: buckets, bytes, what makes the tail.
  virtual std::string describe() const = 0;
};

}  // namespace v1
}  // namespace tutti::train
