#include "watch.hpp"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

namespace tutti::libtorch {

namespace {

// Callbacks are plain functions: this is how they find the watch of their thread.
thread_local Watch* current_watch = nullptr;

void look_at(const at::Tensor& tensor, const char* operator_name) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return;
  current_watch->look(tensor.data_ptr(), operator_name);
}

std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction& function) {
  if (current_watch == nullptr) return nullptr;
  for (const c10::IValue& input : function.inputs()) {
    if (input.isTensor()) {
      look_at(input.toTensor(), function.name());
    } else if (input.isTensorList()) {
      for (const at::Tensor& tensor : input.toTensorVector()) look_at(tensor, function.name());
    }
  }
  return nullptr;
}

}  // namespace

void Watch::start() {
  stop();
  complaint_.clear();
  current_watch = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(before_operator)
                                           .needsInputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
  running_ = true;
}

void Watch::stop() {
  if (!running_) return;
  at::removeCallback(handle_);
  current_watch = nullptr;
  running_ = false;
}

void Watch::look(const void* address, const char* operator_name) {
  if (!complaint_.empty()) return;
  const std::string wrong = judge_(address);
  if (!wrong.empty()) complaint_ = std::string(operator_name) + " read " + wrong;
}

}  // namespace tutti::libtorch
