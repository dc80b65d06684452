#include "stream_work.hpp"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>

#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "errors.hpp"
#include "gil.hpp"
#include "streams.hpp"

namespace tutti_torch {
namespace {

// As programs ask NCCL's backend for it.
bool always_blocks() {
  static const bool asked = [] {
    const char* word = std::getenv("TORCH_NCCL_BLOCKING_WAIT");
    return word != nullptr && std::string_view(word) == "1";
  }();
  return asked;
}

}  // namespace

StreamWork::StreamWork(int rank, c10d::OpType type, const char* title, Operations operations,
                       Loan loan, Tensors outputs, std::optional<c10::Stream> side)
    : c10d::Work(rank, type, title, profiled_tensors(title, loan, outputs)),
      started_on_(*loan.stream),
      side_(std::move(side)),
      operations_(std::move(operations)),
      outputs_(std::move(outputs)),
      was_done_at_once_(operations_.done()),
      loan_(std::move(loan)) {
  // A profile shows what the host does, and that is over.
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
  // Captured in a graph: only the captured stream itself knows what comes before what.
  if (was_done_at_once_ && operations_.status().ok()) {
    order(started_on_);
    release();
  }
}

StreamWork::StreamWork(int rank, std::vector<WorkHandle> parts, Operations operations,
                       Tensors outputs, c10::Stream started_on)
    : c10d::Work(rank),
      started_on_(started_on),
      operations_(std::move(operations)),
      parts_(std::move(parts)),
      outputs_(std::move(outputs)),
      was_done_at_once_(operations_.done()) {}

// The operation goes on without a handle: the memory that it uses must, too.
StreamWork::~StreamWork() {
  if (!loan_.returns.empty()) {  // nobody has waited for it
    try {
      without_gil([this] { order(side()); });
    } catch (const std::exception&) {
      // It has failed, and there is nobody to tell; the group's next operation says so.
    }
  }
  if (loan_.held.empty() || operations_.done()) return;
  operations_.when_done([loan = std::make_shared<Loan>(std::move(loan_))] {});
}

std::exception_ptr StreamWork::exception() const {
  const tutti::Status status = operations_.status();
  return status.ok() ? nullptr : std::make_exception_ptr(Failure(status));
}

int StreamWork::sourceRank() const {
  check(operations_.wait(kNoTimeout));
  return operations_.received().source;
}

bool StreamWork::wait(std::chrono::milliseconds timeout) {
  if (timeout.count() > 0 || always_blocks()) {
    const tutti::Status status = operations_.wait(timeout);
    if (!operations_.done()) throw Failure(status);  // it is still under way
  }
  synchronize();
  return true;
}

void StreamWork::synchronize() {
  const c10::Stream stream = current_stream(started_on_.device());
  order(stream);
  if (stream == started_on_ || operations_.done()) release();
}

void StreamWork::abort() {
  unsupported("work", "one operation cannot be aborted; abort its group");
}

// What comes into `stream` from here on finds the result.
void StreamWork::order(const c10::Stream& stream) {
  if (!parts_.empty()) {
    c10::MultiStreamGuard current(stream);
    for (const WorkHandle& part : parts_) part->synchronize();
    return;
  }
  check(operations_.wait_on(handle_of(stream)));
  give_back_on(stream);
}

// Once; whoever comes later waits for that.
void StreamWork::give_back_on(const c10::Stream& stream) {
  std::scoped_lock lock(lending_);
  if (given_back_ && stream != *given_back_on_) given_back_->block(stream);
  if (loan_.returns.empty()) return;
  c10::MultiStreamGuard current(stream);
  // Their memory belongs to another stream, which must not have it again before these copies are made.
  if (stream != started_on_)
    for (auto& [destination, source] : loan_.returns) {
      destination.record_stream(stream);
      source.record_stream(stream);
    }
  loan_.give_back();
  given_back_on_ = stream;
  given_back_.emplace(stream.device_type());
  given_back_->record(stream);
}

// Freed after the lock is put down: the last reference to a tensor may need the interpreter, whose
// holder may wait for this very lock.
void StreamWork::release() {
  Loan returned;
  std::scoped_lock lock(lending_);
  std::swap(returned, loan_);
}

c10::Stream StreamWork::side() const {
  return side_ ? *side_ : pooled_stream(started_on_.device());
}

c10::intrusive_ptr<c10::ivalue::Future> StreamWork::getFuture() {
  without_gil([this] { complete_future(); });
  return future_;
}

// Not on the caller's stream, which is not to wait before it is asked to.
void StreamWork::complete_future() {
  std::scoped_lock lock(completing_);
  if (future_) return;
  future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                               std::vector<c10::Device>{started_on_.device()});
  try {
    const c10::Stream stream = was_done_at_once_ ? started_on_ : side();
    order(stream);
    c10::MultiStreamGuard current(stream);
    future_->markCompleted(c10::IValue(outputs_));
  } catch (const std::exception&) {
    future_->setErrorIfNeeded(std::current_exception());
  }
}

}  // namespace tutti_torch
