// stream_work.hpp - an operation on tensors of a GPU, as torch sees it.
//
// Ordering       the operation follows what its caller's stream held when it was started. wait() makes the
//                stream that is current then wait for the result, and returns at once. Given a timeout, or
//                with TORCH_NCCL_BLOCKING_WAIT=1, it blocks until the operation is over.
// Buffers        tensors are kept until the operation is over, also when the handle is dropped; or until
//                the stream that it was started on waits for it, for what comes into that memory next
//                comes behind it.
// Thread-safety  any thread may call any method.
// Failure        wait throws what is known by then, as Failure. What comes later is in exception(), and ends
//                the group's next operations.
//
// Python sees it as torch's own Work: its futures are torch's, complete from the beginning, and run what
// is chained to them at once, on streams that wait for the result.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <mutex>
#include <optional>
#include <vector>

#include "compat.hpp"
#include "operations.hpp"
#include "tensors.hpp"

namespace tutti_torch {

class StreamWork final : public c10d::Work {
 public:
  // The loan has a stream. `side` is a stream that only waits for operations such as this one, in their
  // order; absent: one of torch's is taken when it is needed.
  StreamWork(int rank, c10d::OpType type, const char* title, Operations operations, Loan loan,
             Tensors outputs, std::optional<c10::Stream> side);
  // One for several that are under way, some of them on `started_on`'s GPU; the operations are theirs.
  StreamWork(int rank, std::vector<WorkHandle> parts, Operations operations, Tensors outputs,
             c10::Stream started_on);
  ~StreamWork() override;

  bool isCompleted() override { return operations_.done(); }
  bool isSuccess() const override { return operations_.status().ok(); }
  std::exception_ptr exception() const override;
  // Blocks until that is known.
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  // Makes the current stream wait for the result.
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() { synchronize(); }
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void order(const c10::Stream& stream);
  void give_back_on(const c10::Stream& stream);
  void release();
  void complete_future();
  c10::Stream side() const;

  const c10::Stream started_on_;
  const std::optional<c10::Stream> side_;
  mutable Operations operations_;
  const std::vector<WorkHandle> parts_;
  const Tensors outputs_;
  bool was_done_at_once_ = false;
  std::mutex lending_;
  Loan loan_;
  // What was staged is where it belongs: on this stream at once, on others behind the event.
  std::optional<c10::Stream> given_back_on_;
  std::optional<c10::Event> given_back_;
  std::mutex completing_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace tutti_torch
