// backend.hpp - a tutti::Group as torch.distributed's backend "tutti".
//
// Ordering       as torch asks: all ranks call the same collectives in the same order. On tensors of a GPU an
//                operation follows what the current stream holds, and barrier waits for that.
// Thread-safety  any thread may call; operations are started one at a time.
// Failure        the caller's mistakes are thrown at once, everything else by the Work.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "compat.hpp"
#include "levels.hpp"
#include "operations.hpp"
#include "tensors.hpp"
#include "tutti/group.hpp"
#include "work.hpp"

namespace tutti_torch {

class Backend : public BackendBase {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // Meets the other ranks in `store`; blocks, at most `timeout`.
  static c10::intrusive_ptr<Backend> create(c10::intrusive_ptr<c10d::Store> store, int rank,
                                            int size, Milliseconds timeout,
                                            const std::string& name);
  // A group of some of `world`'s ranks, on its links. Called by those ranks alone; blocks, at most
  // `timeout`.
  static c10::intrusive_ptr<Backend> create_within(Backend& world,
                                                   c10::intrusive_ptr<c10d::Store> store,
                                                   const std::vector<int>& ranks,
                                                   Milliseconds timeout, const std::string& name);
  // What is left of this one's group after a failure; called by all survivors.
  c10::intrusive_ptr<Backend> shrink(Milliseconds timeout);
  // This one's group and those who wait in `store`, up to `most` ranks; null: nobody does. Called by all
  // its ranks.
  c10::intrusive_ptr<Backend> grow(c10::intrusive_ptr<c10d::Store> store, int most);
  // Waits in `store` until a group of that name grows; at most `timeout`.
  static c10::intrusive_ptr<Backend> join(c10::intrusive_ptr<c10d::Store> store,
                                          Milliseconds timeout, const std::string& name);
  Backend(std::shared_ptr<tutti::Store> store, std::shared_ptr<tutti::Group> group,
          Milliseconds timeout);
  ~Backend() override;

  // Leaves every group of this process in good order, for its end: whoever is still there would take
  // its silence for its death. torch's own destroy_process_group only lets go of a group, which
  // whatever else holds it keeps alive.
  static void leave_all();

  const std::string getBackendName() const override { return "tutti"; }

  WorkHandle broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkHandle allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  // The sum of sparse tensors; blocks, for nobody knows how much the others have.
  WorkHandle allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options);
  WorkHandle allreduce_coalesced(Tensors& tensors,
                                 const c10d::AllreduceCoalescedOptions& options) override;
  WorkHandle reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkHandle allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                       const c10d::AllgatherOptions& options) override;
  WorkHandle _allgather_base(at::Tensor& output, at::Tensor& input,
                             const c10d::AllgatherOptions& options) override;
  WorkHandle allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const c10d::AllgatherOptions& options) override;
  WorkHandle allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions& options);
  WorkHandle gather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::GatherOptions& options) override;
  WorkHandle scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                     const c10d::ScatterOptions& options) override;
  WorkHandle reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                            const c10d::ReduceScatterOptions& options) override;
  WorkHandle _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                  const c10d::ReduceScatterOptions& options) override;
  WorkHandle reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                             const c10d::ReduceScatterOptions& options);
  WorkHandle alltoall_base(at::Tensor& output, at::Tensor& input,
                           std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                           const c10d::AllToAllOptions& options) override;
  WorkHandle alltoall(Tensors& outputs, Tensors& inputs,
                      const c10d::AllToAllOptions& options) override;
  // Blocks until the current stream, and what was started on this group, are through on this rank's GPU;
  // its Work is one of the CPU.
  WorkHandle barrier(const c10d::BarrierOptions& options) override;
  // Through the store, so that the group lives on when somebody does not come.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  WorkHandle send(Tensors& tensors, int peer, int tag) override;
  WorkHandle recv(Tensors& tensors, int peer, int tag) override;
  WorkHandle recvAnysource(Tensors& tensors, int tag) override;

  void startCoalescing() override;
#if TUTTI_TORCH_AT_LEAST(2, 0)
  WorkHandle endCoalescing() override;
#else
  void endCoalescing(std::vector<WorkHandle>& works) override;
#endif

  // Counts collectives; all ranks start at zero, so there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_.load(); }

  void setTimeout(Milliseconds timeout) { timeout_ = timeout; }
  Milliseconds timeout() const { return timeout_; }
  void abort();
  void shutdown();

  // Null after shutdown.
  std::shared_ptr<tutti::Group> group();
  // A tensor of `bytes` bytes in memory that all ranks of this host have mapped, of the CPU or of this
  // rank's GPU. Collective.
  at::Tensor allocate(std::size_t bytes, c10::Device device);

 private:
  struct Title {
    c10d::OpType type;
    const char* text;             // "tutti:all_reduce"
    const char* event = nullptr;  // in a profile, where torch's backends share another name
    const char* name() const { return text + 6; }
  };

  // What every collective's options say alike.
  struct Terms {
    template <class Options>
    Terms(const Options& options) : timeout(options.timeout) {
      if constexpr (requires { options.asyncOp; }) blocks = !options.asyncOp;
    }
    Milliseconds timeout;
    bool blocks = false;  // wait() is called at once; torch says so from 2.8 on
  };

  std::chrono::nanoseconds timeout_of(Milliseconds asked) const;
  WorkHandle launch(const Title& title, tutti::Call& call, const Terms& terms, Loan loan,
                    Tensors outputs);
  tutti::Work start(tutti::Call& call, const Terms& terms, const Loan& loan);
  WorkHandle transfer(const Title& title, tutti::Transfer::Kind kind, const Tensors& tensors,
                      int peer, int tag);
  WorkHandle hand_out(const Title& title, Operations operations, Loan loan, Tensors outputs);
  WorkHandle make_work(const Title& title, Operations operations, Loan loan, Tensors outputs);
  c10::Stream side_stream(c10::Device gpu);
  void finish_gpu();
  void check_root(const char* operation, int64_t root) const;
  std::size_t ranks() const { return static_cast<std::size_t>(getSize()); }

  // Several tensors per rank in one call (several.cpp).
  WorkHandle allreduce_several(Tensors& tensors, const c10d::AllreduceOptions& options);
  WorkHandle broadcast_several(Tensors& tensors, const c10d::BroadcastOptions& options);
  WorkHandle allgather_several(std::vector<Tensors>& outputs, Tensors& inputs,
                               const c10d::AllgatherOptions& options);

  tutti::Work start_gather(const Title& title, const at::Tensor& input, const Tensors& outputs,
                           const Terms& terms, Loan& loan);
  tutti::Work start_gather(const Title& title, const at::Tensor& input, const at::Tensor& output,
                           const Terms& terms, Loan& loan);
  tutti::Work start_reduce_scatter(const Title& title, const at::Tensor& input,
                                   const at::Tensor& output,
                                   const c10d::ReduceScatterOptions& options, Loan& loan);

  std::shared_ptr<tutti::Store> store_;
  Levels levels_;
  std::atomic<Milliseconds> timeout_;
  const std::uint64_t strand_ = new_strand();
  std::atomic<std::uint64_t> sequence_{0};
  std::uint64_t monitored_barriers_ = 0;
  std::mutex gpu_mutex_;
  std::optional<c10::Stream> side_stream_;
  tutti::Work last_on_gpu_;
  std::optional<c10::Stream> last_stream_;  // that a blocking call ran in

  // What was started since startCoalescing.
  struct Coalesced {
    std::vector<WorkHandle> parts;
    Operations operations;
    Tensors outputs;
    std::optional<c10::Stream> stream;
  };
  bool coalescing_ = false;
  Coalesced coalesced_;
};

}  // namespace tutti_torch
