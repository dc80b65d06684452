// work.hpp - an operation on CPU tensors, as torch sees it. (On those of a GPU: stream_work.hpp.)
//
// Buffers        the tensors are kept until the operation is done, also when the handle is dropped.
// Thread-safety  any thread may call any method.
// Failure        wait throws Failure; a timeout given to wait leaves the operation under way.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "compat.hpp"
#include "operations.hpp"
#include "tensors.hpp"

namespace tutti_torch {

// A number that no other backend, and no other message, has.
std::uint64_t new_strand();

class Work : public c10d::Work {
 public:
  Work(int rank, c10d::OpType type, const char* title, Operations operations, Loan loan,
       Tensors outputs);
  // One Work for several that are under way; the operations are theirs.
  Work(int rank, std::vector<WorkHandle> parts, Operations operations, Tensors outputs);
  ~Work() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  // Completed in a thread of its own, or by `drive`; its value is the list of output tensors.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // Drives the operation to its end, and completes the future if there is one.
  void drive();
  // The same, but leaves the operation to others meanwhile.
  void await_end();

  // Functions chained to the futures of one strand run in the order in which they were chained:
  // collectives have their backend's, a message has its own.
  void set_strand(std::uint64_t strand) { strand_ = strand; }
  std::uint64_t strand() const { return strand_; }

 private:
  // Copies back and notes the outcome, once, when all operations are done.
  void settle();
  void complete_future();
  void on_end();

  Operations operations_;
  std::vector<WorkHandle> parts_;  // what the operations belong to, where they were joined
  Loan loan_;
  Tensors outputs_;
  mutable std::mutex settling_;
  bool settled_ = false;
  bool completed_ = false;  // the future, or about to be
  int awaited_ = 0;         // threads in await_end, of which one will complete the future
  std::condition_variable ended_;
  std::uint64_t strand_ = 0;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace tutti_torch
