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

// Calls `then` when the last of the operations is done.
void when_done(const tutti::Work& first, const std::vector<tutti::Work>& others,
               std::function<void()> then) {
  auto left = std::make_shared<std::atomic<std::size_t>>(1 + others.size());
  const auto count = [left, then = std::move(then)](const tutti::Status&) {
    if (left->fetch_sub(1) == 1) then();
  };
  tutti::Work(first).on_complete(count);
  for (const tutti::Work& other : others) tutti::Work(other).on_complete(count);
}

#if TUTTI_TORCH_AT_LEAST(2, 2)
using MaybeTensors = std::optional<Tensors>;
#else
using MaybeTensors = c10::optional<Tensors>;
#endif

// Whose shapes a profiler shows: what goes in, or is written where nothing goes in.
MaybeTensors inputs_of(const char* title, const Loan& loan, const Tensors& outputs) {
  if (title == nullptr) return {};
  return loan.profiled.empty() ? outputs : loan.profiled;
}

}  // namespace

std::uint64_t new_strand() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

Work::Work(int rank, c10d::OpType type, const char* title, tutti::Work operation, Loan loan,
           Tensors outputs)
    : c10d::Work(rank, type, title, inputs_of(title, loan, outputs)),
      first_(std::move(operation)),
      loan_(std::move(loan)),
      outputs_(std::move(outputs)) {}

Work::Work(int rank, c10d::OpType type, const char* title, std::vector<tutti::Work> operations,
           Loan loan, Tensors outputs)
    : Work(rank, type, title, tutti::Work(), std::move(loan), std::move(outputs)) {
  others_ = std::move(operations);
}

Work::Work(int rank, std::vector<c10::intrusive_ptr<Work>> parts)
    : c10d::Work(rank), parts_(std::move(parts)) {
  for (const auto& part : parts_) {
    others_.push_back(part->first_);
    others_.insert(others_.end(), part->others_.begin(), part->others_.end());
    outputs_.insert(outputs_.end(), part->outputs_.begin(), part->outputs_.end());
  }
}

// The operation goes on without a handle: the memory that it uses must, too.
Work::~Work() {
  if (settled_) return;
  if (done()) {
    if (status().ok()) loan_.give_back();
    return;
  }
  auto loan = std::make_shared<Loan>(std::move(loan_));
  loan->held.append(outputs_.begin(), outputs_.end());
  when_done(first_, others_, [loan, first = first_, others = others_] {
    bool ok = first.status().ok();
    for (const tutti::Work& other : others) ok = ok && other.status().ok();
    if (ok) loan->give_back();
  });
}

bool Work::done() const {
  if (!first_.done()) return false;
  for (const tutti::Work& other : others_)
    if (!other.done()) return false;
  return true;
}

tutti::Status Work::status() const {
  if (tutti::Status status = first_.status(); !status.ok()) return status;
  for (const tutti::Work& other : others_)
    if (tutti::Status status = other.status(); !status.ok()) return status;
  return {};
}

tutti::Status Work::wait_all(std::chrono::milliseconds timeout) {
  if (timeout.count() <= 0) {
    tutti::Status failure = first_.wait();
    for (tutti::Work& other : others_)
      if (tutti::Status status = other.wait(); failure.ok()) failure = status;
    return failure;
  }
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  tutti::Status failure = first_.wait(timeout);
  for (tutti::Work& other : others_) {
    const auto left = deadline - std::chrono::steady_clock::now();
    tutti::Status status =
        other.wait(std::max<std::chrono::nanoseconds>(left, std::chrono::nanoseconds(1)));
    if (failure.ok()) failure = status;
  }
  return failure;
}

void Work::settle() {
  // Freed after the lock is put down: the last reference to a tensor may need the interpreter, whose
  // holder may wait for this very lock.
  Loan returned;
  std::scoped_lock lock(settling_);
  if (settled_) return;
  std::exception_ptr failure;
  try {
    check(status());
    for (const auto& part : parts_) part->settle();
    loan_.give_back();
  } catch (...) {
    failure = std::current_exception();
  }
  std::swap(returned, loan_);
  finish(failure);
  settled_ = true;
}

bool Work::isCompleted() {
  if (!done()) return false;
  settle();
  return true;
}

bool Work::isSuccess() const { return exception() == nullptr; }

std::exception_ptr Work::exception() const {
  if (done()) const_cast<Work*>(this)->settle();
  std::scoped_lock lock(mutex_);
  return exception_;
}

int Work::sourceRank() const { return first_.received().source; }

std::vector<at::Tensor> Work::result() {
  if (!isCompleted())
    refuse("work", "needs to be completed before calling result(); call wait() first");
  return outputs_;
}

// Tensors on the CPU are ready when the operation is done.
void Work::synchronize() { wait(kNoTimeout); }

bool Work::wait(std::chrono::milliseconds timeout) {
  tutti::Status status = wait_all(timeout);
  if (!done()) throw Failure(status);
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
  if (done()) {
    complete_future();
    return future;
  }
  auto self = c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this);
  when_done(first_, others_, [self] { self->on_end(); });
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
    ended_.wait(lock, [this] { return done(); });  // bounded: by the operation's deadline
    --awaited_;
  }
  complete_future();
}

void Work::drive() {
  (void)wait_all(kNoTimeout);
  complete_future();
}

}  // namespace tutti_torch
