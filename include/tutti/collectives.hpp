// tutti/collectives.hpp - every operation that a group of ranks can run together, by name.
//
// Each comes in two forms: `x` blocks in this thread and returns a Status, `x_async` returns a
// Work. A call with one buffer is in place. Counts are in elements.
//
// Buffers may be on a GPU, all of a call on the same one. Then `x` does not block: it is `x_async` and
// Work::wait_on for options.stream, so that what the caller puts there next finds the result. Only
// send and recv still do, because the message's source and size are known when it has come.
//
// Zero elements are not an error anywhere. Ranks that pass different counts, types, roots or
// reductions where they must agree all get Code::mismatch, which names who called what.
//
//   group->all_reduce(tutti::Buffer::of(values), tutti::ReduceOp::sum);
//   group->all_gather(tutti::ConstBuffer::of(mine), tutti::Buffer::of(everyones));
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tutti/buffer.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"
#include "tutti/work.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

struct CallOptions {
  // How long the operation may take; zero: the group's.
  std::chrono::nanoseconds timeout{0};
  Algorithm algorithm = Algorithm::automatic;
  // With buffers on a GPU: the caller's stream, a CUstream or cudaStream_t; null is the legacy default
  // stream. The operation begins behind what is in it. With buffers in CPU memory it must be null.
  void* stream = nullptr;
  const char* name = "";  // shown in logs and traces; lent until the Work is done
  // A blocking call that has to wait asks this some ten times a second, in its own thread; true
  // aborts the group. For callers with a Ctrl-C of their own, such as interpreters.
  bool (*interrupted)() = nullptr;
  // What the operation begins after; see `after`.
  std::vector<Work> dependencies{};

  // The operation takes its place in its group's queue now, and begins when `work` is done, whatever group
  // that is of; no thread waits for it, and blocking calls drive it. What follows in the queue waits, too;
  // of messages, those of the same peer and tag. On a GPU the group's stream waits for the work, the
  // host only where Work::wait_on would. The deadline counts from the call. If the work fails, so does
  // this operation, and its group with it: the other ranks must not wait for this one.
  //   group->all_gather(weights, all, CallOptions{}.after(update).after(barrier));
  CallOptions& after(Work work) & {
    dependencies.push_back(std::move(work));
    return *this;
  }
  CallOptions after(Work work) && { return std::move(after(std::move(work))); }
};

// One collective call, spelled out. The named methods of Group fill one in; bindings may do so too.
//
// `input` and `output` hold either one contiguous buffer or one buffer per rank (gather,
// all_gather, scatter, reduce_scatter, all_to_all). `input_counts` / `output_counts`, when not
// empty, cut a contiguous buffer into one part per rank; otherwise it is cut evenly. A side that a
// rank does not have (output of reduce away from the root) is empty. Same memory on both sides
// means in place.
//
// All buffers are of one type, with one exception: where 16- or 8-bit floats are folded, the output may
// be of f32. Inputs travel as they are, and the fold, in f32 as ever, is not rounded at its end. Not in
// place, and not with a function of the user's. Away from the root of a reduce, ranks say so by an output
// of that type and the input's length, with or without memory.
//
// `uneven` says that parts may differ by rank; for gather, scatter and all_to_all,
// where a rank cannot see that from its own arguments, all ranks must set it alike (the v-forms and
// the list forms do).
struct Call {
  Collective collective = Collective::barrier;
  std::span<const ConstBuffer> input{};
  std::span<const Buffer> output{};
  std::span<const std::size_t> input_counts{};
  std::span<const std::size_t> output_counts{};
  Reduction reduction{};
  int root = 0;
  bool uneven = false;
  CallOptions options{};
};

// One part of a batch of point-to-point operations.
struct Transfer {
  enum class Kind : std::uint8_t { send, recv };
  Kind kind = Kind::send;
  Buffer buffer{};
  int peer = 0;  // kAnySource for a recv from whoever comes first
  std::uint32_t tag = 0;
};
inline constexpr int kAnySource = -1;

using Counts = std::span<const std::size_t>;
using Options = const CallOptions&;

class Collectives {
 public:
  virtual ~Collectives() = default;

  // Runs a call to its end in this thread, without a hop to another.
  virtual Status run(const Call& call) = 0;
  // Starts a call; it goes on in the background, and in whoever waits for it.
  virtual Work start(const Call& call) = 0;
  // Sends and receives as one call, in whatever order they stand: they cannot deadlock.
  virtual Work transfer(std::span<const Transfer> transfers, const CallOptions& options) = 0;
  // The same to its end in this thread. Tells of the last receive that it contained.
  virtual Result<Received> exchange(std::span<const Transfer> transfers,
                                    const CallOptions& options) = 0;

  // The root's elements reach every rank.
  Status broadcast(Buffer buffer, int root, Options options = {});
  Work broadcast_async(Buffer buffer, int root, Options options = {});

  // The root gets the fold of all inputs; elsewhere `output` may say that it is of f32 (see Call).
  Status reduce(ConstBuffer input, Buffer output, Reduction reduction, int root,
                Options options = {});
  Work reduce_async(ConstBuffer input, Buffer output, Reduction reduction, int root,
                    Options options = {});

  // Every rank gets the fold of all inputs.
  Status all_reduce(Buffer buffer, Reduction reduction, Options options = {});
  Work all_reduce_async(Buffer buffer, Reduction reduction, Options options = {});
  Status all_reduce(ConstBuffer input, Buffer output, Reduction reduction, Options options = {});
  Work all_reduce_async(ConstBuffer input, Buffer output, Reduction reduction,
                        Options options = {});
  // Several buffers of one type as one call.
  Status all_reduce(std::span<const Buffer> buffers, Reduction reduction, Options options = {});
  Work all_reduce_async(std::span<const Buffer> buffers, Reduction reduction, Options options = {});

  // The root gets rank r's input as part r. With `counts` the parts may differ (all ranks pass
  // their own count in `input`; the root's `counts` must agree with them).
  Status gather(ConstBuffer input, Buffer output, int root, Options options = {});
  Work gather_async(ConstBuffer input, Buffer output, int root, Options options = {});
  Status gather_v(ConstBuffer input, Buffer output, Counts counts, int root, Options options = {});
  Work gather_v_async(ConstBuffer input, Buffer output, Counts counts, int root,
                      Options options = {});
  Status gather(ConstBuffer input, std::span<const Buffer> outputs, int root, Options options = {});
  Work gather_async(ConstBuffer input, std::span<const Buffer> outputs, int root,
                    Options options = {});

  // Every rank gets rank r's input as part r. All ranks pass the same counts.
  Status all_gather(ConstBuffer input, Buffer output, Options options = {});
  Work all_gather_async(ConstBuffer input, Buffer output, Options options = {});
  Status all_gather_v(ConstBuffer input, Buffer output, Counts counts, Options options = {});
  Work all_gather_v_async(ConstBuffer input, Buffer output, Counts counts, Options options = {});
  Status all_gather(ConstBuffer input, std::span<const Buffer> outputs, Options options = {});
  Work all_gather_async(ConstBuffer input, std::span<const Buffer> outputs, Options options = {});

  // Rank r gets part r of the root's input; `input` is looked at on the root only.
  Status scatter(ConstBuffer input, Buffer output, int root, Options options = {});
  Work scatter_async(ConstBuffer input, Buffer output, int root, Options options = {});
  Status scatter_v(ConstBuffer input, Counts counts, Buffer output, int root, Options options = {});
  Work scatter_v_async(ConstBuffer input, Counts counts, Buffer output, int root,
                       Options options = {});
  Status scatter(std::span<const ConstBuffer> inputs, Buffer output, int root,
                 Options options = {});
  Work scatter_async(std::span<const ConstBuffer> inputs, Buffer output, int root,
                     Options options = {});

  // Rank r gets the fold of every rank's part r. All ranks pass the same counts.
  Status reduce_scatter(ConstBuffer input, Buffer output, Reduction reduction,
                        Options options = {});
  Work reduce_scatter_async(ConstBuffer input, Buffer output, Reduction reduction,
                            Options options = {});
  Status reduce_scatter_v(ConstBuffer input, Counts counts, Buffer output, Reduction reduction,
                          Options options = {});
  Work reduce_scatter_v_async(ConstBuffer input, Counts counts, Buffer output, Reduction reduction,
                              Options options = {});
  Status reduce_scatter(std::span<const ConstBuffer> inputs, Buffer output, Reduction reduction,
                        Options options = {});
  Work reduce_scatter_async(std::span<const ConstBuffer> inputs, Buffer output, Reduction reduction,
                            Options options = {});

  // Part r of rank s's input becomes part s of rank r's output. In the v-form each pair agrees on
  // its own count.
  Status all_to_all(ConstBuffer input, Buffer output, Options options = {});
  Work all_to_all_async(ConstBuffer input, Buffer output, Options options = {});
  Status all_to_all_v(ConstBuffer input, Counts input_counts, Buffer output, Counts output_counts,
                      Options options = {});
  Work all_to_all_v_async(ConstBuffer input, Counts input_counts, Buffer output,
                          Counts output_counts, Options options = {});
  Status all_to_all(std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
                    Options options = {});
  Work all_to_all_async(std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
                        Options options = {});

  // Nobody leaves before everybody came.
  Status barrier(Options options = {});
  Work barrier_async(Options options = {});

  // Prefix folds: rank r gets x0 ∘ … ∘ xr; the exclusive form x0 ∘ … ∘ xr-1, and leaves rank 0's
  // output as it was.
  Status scan(ConstBuffer input, Buffer output, Reduction reduction, Options options = {});
  Work scan_async(ConstBuffer input, Buffer output, Reduction reduction, Options options = {});
  Status exclusive_scan(ConstBuffer input, Buffer output, Reduction reduction,
                        Options options = {});
  Work exclusive_scan_async(ConstBuffer input, Buffer output, Reduction reduction,
                            Options options = {});

  // Point to point. Messages of one (source, tag) arrive in the order they were sent; collectives
  // are no part of that order. A blocking send may wait for its receive; a small message may leave
  // before. A receive buffer may be larger than the message (Received says by how much). A smaller
  // one is an error for the receiver, and for a sender whose message waited for it.
  Status send(ConstBuffer buffer, int peer, std::uint32_t tag = 0, Options options = {});
  Work isend(ConstBuffer buffer, int peer, std::uint32_t tag = 0, Options options = {});
  Result<Received> recv(Buffer buffer, int source, std::uint32_t tag = 0, Options options = {});
  Work irecv(Buffer buffer, int source, std::uint32_t tag = 0, Options options = {});
};

}  // namespace v1
}  // namespace tutti
