// bindings/libtorch/tensor_calls.hpp - between torch and the library: tensors as buffers, exceptions as
// statuses and back.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <utility>

#include "tutti/collectives.hpp"
#include "tutti/libtorch/placed.hpp"

namespace tutti::libtorch {

// A contiguous tensor's memory. ParallelError for a type that tutti has no name for.
Buffer lend(const torch::Tensor& tensor);
// For calls on that tensor: on a GPU they follow its current stream.
CallOptions call_on(const torch::Tensor& tensor, const char* name);

// Out of a place that can only throw.
inline void throw_failure(const Status& status) {
  if (!status.ok()) throw ParallelError(status);
}
template <class T>
T value_or_throw(Result<T> result) {
  throw_failure(result.status());
  return *std::move(result);
}
[[noreturn]] inline void throw_invalid(std::string message) {
  throw ParallelError({Code::invalid_argument, std::move(message)});
}

// Runs something of torch's; what it throws becomes a Status.
template <class Body>
Status status_of(const char* what, Body&& body) {
  try {
    body();
    return {};
  } catch (const GateError& error) {
    return error.status();
  } catch (const c10::Error& error) {
    return {Code::invalid_argument, std::string(what) + ": " + error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {Code::internal, std::string(what) + ": " + error.what()};
  }
}

// An object that a node of the graph keeps for its backward.
template <class T>
struct Kept : torch::CustomClassHolder {
  explicit Kept(T given) : value(std::move(given)) {}
  T value;
};
template <class T>
c10::IValue keep(T value) {
  return c10::IValue::make_capsule(c10::make_intrusive<Kept<T>>(std::move(value)));
}
template <class T>
const T& kept(const torch::autograd::AutogradContext& context, const char* name) {
  return static_cast<const Kept<T>*>(context.saved_data.at(name).toCapsule().get())->value;
}

}  // namespace tutti::libtorch
