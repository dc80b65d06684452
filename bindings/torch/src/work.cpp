#include "work.hpp"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "callbacks.hpp"
#include "errors.hpp"

namespace tutti_torch {
namespace {

using Future = c10::ivalue::Future;

}  // namespace

std::uint64_t new_strand() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

Work::Work(int rank, c10d::OpType type, const char* title, Operations operations, Loan loan,
           Tensors outputs)
    : c10d::Work(rank, type, title, profiled_tensors(title, loan, outputs)),
      operations_(std::move(operations)),
      loan_(std::move(loan)),
      outputs_(std::move(outputs)) {}

Work::Work(int rank, std::vector<WorkHandle> parts, Operations operations, Tensors outputs)
    : c10d::Work(rank),
      operations_(std::move(operations)),
      parts_(std::move(parts)),
      outputs_(std::move(outputs)) {}

// The operation goes on without a handle: the memory that it uses must, too.
Work::~Work() {
  if (settled_) return;
  if (operations_.done()) {
    if (operations_.status().ok()) loan_.give_back();
    return;
  }
  auto loan = std::make_shared<Loan>(std::move(loan_));
  loan->held.append(outputs_.begin(), outputs_.end());
  operations_.when_done([loan, operations = operations_] {
    if (operations.status().ok()) loan->give_back();
  });
}

void Work::settle() {
  // Freed after the lock is put down: the last reference to a tensor may need the interpreter, whose
  // holder may wait for this very lock.
  Loan returned;
  std::scoped_lock lock(settling_);
  if (settled_) return;
  std::exception_ptr failure;
  try {
    check(operations_.status());
    for (const auto& part : parts_) (void)part->isCompleted();  // which settles it
    loan_.give_back();
  } catch (...) {
    failure = std::current_exception();
  }
  std::swap(returned, loan_);
  finish(failure);
  settled_ = true;
}

bool Work::isCompleted() {
  if (!operations_.done()) return false;
  settle();
  return true;
}

bool Work::isSuccess() const { return exception() == nullptr; }

std::exception_ptr Work::exception() const {
  if (operations_.done()) const_cast<Work*>(this)->settle();
  std::scoped_lock lock(mutex_);
  return exception_;
}

int Work::sourceRank() const { return operations_.received().source; }

std::vector<at::Tensor> Work::result() {
  if (!isCompleted())
    refuse("work", "needs to be completed before calling result(); call wait() first");
  return outputs_;
}

// Tensors on the CPU are ready when the operation is done.
void Work::synchronize() { wait(kNoTimeout); }

bool Work::wait(std::chrono::milliseconds timeout) {
  tutti::Status status = operations_.wait(timeout);
  if (!operations_.done()) throw Failure(status);
  settle();
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

void Work::abort() { unsupported("work", "one operation cannot be aborted; abort its group"); }

void Work::complete_future() {
  settle();
  c10::intrusive_ptr<Future> future;
  {
    std::scoped_lock lock(settling_);
    ended_.notify_all();  // whoever came between the future and its end has nobody else to tell it
    if (!future_ || std::exchange(completed_, true)) return;
    future = future_;
  }
  if (exception_)
    future->setError(exception_);
  else
    future->markCompleted(c10::IValue(outputs_));
}

c10::intrusive_ptr<Future> Work::getFuture() {
  c10::intrusive_ptr<Future> future;
  {
    std::scoped_lock lock(settling_);
    if (future_) return future_;
    future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
    future = future_;
  }
  if (operations_.done()) {
    complete_future();
    return future;
  }
  auto self = c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this);
  operations_.when_done([self] { self->on_end(); });
  return future;
}

// In the thread that completed the operation, which is not to be kept.
void Work::on_end() {
  {
    std::scoped_lock lock(settling_);
    if (awaited_ > 0) return ended_.notify_all();
  }
  auto self = c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this);
  run_callback([self] { self->complete_future(); });
}

void Work::await_end() {
  (void)getFuture();  // whose end is told
  {
    std::unique_lock lock(settling_);
    ++awaited_;
    ended_.wait(lock,
                [this] { return operations_.done(); });  // bounded: by the operation's deadline
    --awaited_;
  }
  complete_future();
}

void Work::drive() {
  (void)operations_.wait(kNoTimeout);
  complete_future();
}

}  // namespace tutti_torch
