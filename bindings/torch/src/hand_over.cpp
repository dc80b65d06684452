#include "hand_over.hpp"

#include <ATen/ATen.h>

#include "errors.hpp"
#include "streams.hpp"

namespace tutti_torch {
namespace {

[[noreturn]] void refuse_closed(const char* what) {
  throw Failure(tutti::Status(tutti::Code::aborted, std::string("this ") + what + " was closed"));
}

tutti::train::ReceiverOptions options_for(TensorReceiver::Where where, int gpu) {
  using Where = TensorReceiver::Where;
  tutti::train::ReceiverOptions options;
  if (where == Where::cpu) options.device = tutti::Device::cpu;
  if (where == Where::cuda) options.device = tutti::Device::cuda;
  options.gpu = gpu;
  return options;
}

}  // namespace

TensorSender::TensorSender(Backend* group, const std::vector<int>& receivers, int trainer,
                           const tutti::train::SenderOptions& options) {
  using tutti::train::WeightSender;
  if (group == nullptr) {
    sender_ = take(WeightSender::listen(options));
    return;
  }
  const auto members = group->group();
  sender_ = take(WeightSender::create(*members, trainer, receivers, options));
}

tutti::train::WeightSender& TensorSender::sender() const {
  if (!sender_) refuse_closed("sender");
  return *sender_;
}

void TensorSender::send(std::uint64_t version, const NamedTensors& weights, bool lend) {
  Loan loan;
  std::vector<tutti::train::NamedTensor> tensors;
  for (const auto& [name, tensor] : weights) {
    check_tensor("hand_over", tensor);
    const Elements elements = elements_of(tensor);
    if (!is_arithmetic(tensor.scalar_type()) || elements.per_element != 1)
      refuse("hand_over", "tensor '" + name + "' is of type " +
                              c10::toString(tensor.scalar_type()) +
                              ", which receivers would not know");
    tensors.push_back({name, tensor.sizes().vec(), tutti_torch::lend(loan, tensor, Use::input)});
  }
  tutti::train::SendOptions options;
  options.lend = lend;
  if (loan.stream) options.stream = handle_of(*loan.stream);
  check(sender().send(version, tensors, options));
  // The version before is through.
  loan_ = lend ? std::move(loan) : Loan();
}

void TensorSender::flush() {
  check(sender().flush());
  loan_ = Loan();
}

std::vector<std::pair<int, tutti::Status>> TensorSender::lost() const { return sender().lost(); }

std::vector<tutti::train::AttachedReceiver> TensorSender::receivers() const {
  return sender().receivers();
}

void TensorSender::close() {
  sender_.reset();
  loan_ = Loan();
}

TensorReceiver::TensorReceiver(Backend& group, int trainer, Where where, int gpu) {
  const auto members = group.group();
  const int self[] = {members->rank()};
  receiver_ =
      take(tutti::train::WeightReceiver::create(*members, trainer, self, options_for(where, gpu)));
}

TensorReceiver::TensorReceiver(const std::string& address, const std::string& secret_file,
                               std::chrono::nanoseconds patience, Where where, int gpu) {
  tutti::train::ReceiverOptions options = options_for(where, gpu);
  options.patience = patience;
  receiver_ = take(tutti::train::WeightReceiver::attach(address, secret_file, options));
}

tutti::train::WeightReceiver& TensorReceiver::receiver() const {
  if (!receiver_) refuse_closed("receiver");
  return *receiver_;
}

// What is shown can have been read on the current stream alone.
void* TensorReceiver::reading_stream() const {
  for (const auto& [name, tensor] : weights_)
    if (tensor.is_cuda()) return handle_of(current_stream(tensor.device()));
  return nullptr;
}

bool TensorReceiver::poll() {
  const bool newer = take(receiver().poll(reading_stream()));
  show();
  return newer;
}

void TensorReceiver::wait_for(std::uint64_t version, std::chrono::nanoseconds timeout) {
  const tutti::Status status = receiver().wait_for(version, timeout, reading_stream());
  show();  // one may have come, though not the one
  check(status);
}

void TensorReceiver::show() {
  if (version_ == receiver_->version()) return;
  NamedTensors weights;
  for (const tutti::train::NamedTensor& tensor : receiver_->weights()) {
    const bool on_gpu = tensor.values.device == tutti::Device::cuda;
    // Without an index: torch finds out on which GPU it lies.
    const auto options = at::TensorOptions()
                             .dtype(scalar_type_of(tensor.values.dtype))
                             .device(on_gpu ? at::kCUDA : at::kCPU);
    at::Tensor view = tensor.values.count == 0
                          ? at::empty(tensor.shape, options)
                          : at::from_blob(
                                const_cast<void*>(tensor.values.data), tensor.shape,
                                [owner = receiver_](void*) {}, options);
    weights.emplace_back(tensor.name, std::move(view));
  }
  version_ = receiver_->version();
  weights_ = std::move(weights);
}

void TensorReceiver::close() {
  weights_.clear();
  receiver_.reset();
}

}  // namespace tutti_torch
