// tensors.hpp - tensors as tutti's buffers, and what an operation borrows while it runs.
//
// A contiguous tensor is lent as it lies. Any other is copied to memory in order, and copied back
// when the operation is done: ranks may differ in that. On a GPU these copies go into the current stream,
// which the operation follows.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compat.hpp"
#include "tutti/buffer.hpp"

namespace tutti_torch {

using Tensors = std::vector<at::Tensor>;

// How the elements of a tensor look to tutti: a complex number is two, an odd type is bytes.
struct Elements {
  tutti::Dtype dtype = tutti::Dtype::u8;
  std::size_t per_element = 1;
};
Elements elements_of(const at::Tensor& tensor);
// Whether the numbers themselves can be folded, not only moved.
bool is_arithmetic(at::ScalarType type);

// The type of whose elements they are one each.
at::ScalarType scalar_type_of(tutti::Dtype dtype);

// What is borrowed from the call until the operation is done.
struct Loan {
  c10::SmallVector<at::Tensor, 2> held;
  std::vector<std::pair<at::Tensor, at::Tensor>> returns;  // (where to, from where)
  Tensors profiled;                                        // the inputs, where a profiler listens
  // The caller's on the tensors' GPU; absent: they are in CPU memory.
  std::optional<c10::Stream> stream;

  // Copies what was staged to where it belongs.
  void give_back();
};

// Whose shapes a profiler shows under `title`: what goes in, or is written where nothing goes in. Absent
// where none listens (a null title).
MaybeTensors profiled_tensors(const char* title, const Loan& loan, const Tensors& outputs);

enum class Use { input, output, in_place };

// The memory of `tensor` for the time of the loan; staged when it is not in order.
tutti::Buffer lend(Loan& loan, const at::Tensor& tensor, Use use);

// Refuses what no operation takes: undefined, neither on the CPU nor on a GPU, sparse, quantized.
void check_tensor(const char* operation, const at::Tensor& tensor);
// `side` is "", "input " or "output ".
const at::Tensor& check_single(const char* operation, const Tensors& tensors,
                               const char* side = "");
void check_same_type(const char* operation, const at::Tensor& expected, const Tensors& tensors);
// "(2, 3)".
std::string shape_of(const at::Tensor& tensor);

}  // namespace tutti_torch
