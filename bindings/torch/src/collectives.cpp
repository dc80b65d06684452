// The collectives of the backend: each checks its arguments, lends the tensors and starts a call.
#include <ATen/ATen.h>

#include <algorithm>

#include "backend.hpp"
#include "errors.hpp"
#include "reduction.hpp"
#include "work.hpp"

namespace tutti_torch {
namespace {

using c10d::OpType;
using tutti::Collective;
using Buffers = c10::SmallVector<tutti::Buffer, 8>;
using ConstBuffers = c10::SmallVector<tutti::ConstBuffer, 8>;

template <class List>
auto span_of(const List& list) {
  return std::span<const typename List::value_type>(list.data(), list.size());
}

tutti::Call call_of(Collective collective, int64_t root = 0) {
  tutti::Call call;
  call.collective = collective;
  call.root = static_cast<int>(root);
  return call;
}

Buffers lend_all(Loan& loan, const Tensors& tensors, Use use) {
  Buffers buffers;
  for (const at::Tensor& tensor : tensors) buffers.push_back(lend(loan, tensor, use));
  return buffers;
}

// The same tensors, or copies to be returned where one is there twice: each is written on its own.
Tensors apart(Loan& loan, const Tensors& tensors) {
  std::vector<const void*> places;
  for (const at::Tensor& tensor : tensors)
    if (tensor.numel() > 0) places.push_back(tensor.data_ptr());
  std::sort(places.begin(), places.end());
  if (std::adjacent_find(places.begin(), places.end()) == places.end()) return tensors;
  Tensors copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.clone(at::MemoryFormat::Contiguous));
    loan.returns.emplace_back(tensor, copies.back());
  }
  return copies;
}

ConstBuffers inputs_of(Loan& loan, const Tensors& tensors) {
  ConstBuffers buffers;
  for (const at::Tensor& tensor : tensors) buffers.push_back(lend(loan, tensor, Use::input));
  return buffers;
}

// The only list in `lists`, with one tensor per rank of the type of `like`.
const Tensors& check_list(const char* operation, const char* side,
                          const std::vector<Tensors>& lists, std::size_t ranks,
                          const at::Tensor& like) {
  if (lists.size() != 1)
    refuse(operation, std::string("requires a single-element ") + side +
                          " list containing a list with " + std::to_string(ranks) + " tensors");
  if (lists[0].size() != ranks)
    refuse(operation, std::string("Incorrect ") + side + " list size " +
                          std::to_string(lists[0].size()) + ". " +
                          (side[0] == 'i' ? "Input" : "Output") + " list size should be " +
                          std::to_string(ranks) + ", same as size of the process group.");
  check_same_type(operation, like, lists[0]);
  return lists[0];
}

void check_own_part(const char* operation, const at::Tensor& own, const at::Tensor& part,
                    int rank) {
  if (own.numel() != part.numel())
    refuse(operation, "invalid tensor size at index " + std::to_string(rank) + " (expected " +
                          shape_of(own) + ", got " + shape_of(part) + ")");
}

void check_whole(const char* operation, const at::Tensor& part, const at::Tensor& whole,
                 std::size_t ranks) {
  check_tensor(operation, part);
  check_tensor(operation, whole);
  if (part.scalar_type() != whole.scalar_type())
    refuse(operation, std::string("input and output tensors must have the same dtype, got ") +
                          c10::toString(part.scalar_type()) + " and " +
                          c10::toString(whole.scalar_type()));
  if (part.numel() * static_cast<int64_t>(ranks) != whole.numel())
    refuse(operation, "the larger tensor must have world size times the elements of the smaller: " +
                          std::to_string(ranks) + " times " + std::to_string(part.numel()) +
                          " is not " + std::to_string(whole.numel()));
}

}  // namespace

WorkHandle Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  static constexpr Title kTitle{OpType::BROADCAST, "tutti:broadcast"};
  if (options.rootTensor < 0 || options.rootTensor >= static_cast<int64_t>(tensors.size()))
    refuse(kTitle.name(), "invalid root tensor: " + std::to_string(options.rootTensor));
  if (tensors.size() > 1) return broadcast_several(tensors, options);
  const at::Tensor& tensor = check_single(kTitle.name(), tensors);
  check_root(kTitle.name(), options.rootRank);
  tutti::Call call = call_of(Collective::broadcast, options.rootRank);
  Loan loan;
  const bool is_root = options.rootRank == getRank();
  const tutti::Buffer buffer = lend(loan, tensor, is_root ? Use::input : Use::output);
  const tutti::ConstBuffer input = buffer;
  call.input = {&input, 1};
  call.output = {&buffer, 1};
  return launch(kTitle, call, options, std::move(loan), tensors);
}

WorkHandle Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  static constexpr Title kTitle{OpType::ALLREDUCE, "tutti:all_reduce"};
  if (tensors.size() != 1) return allreduce_several(tensors, options);
  if (tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  const at::Tensor& tensor = check_single(kTitle.name(), tensors);
  tutti::Call call = call_of(Collective::all_reduce);
  call.reduction = reduction_of(kTitle.name(), options.reduceOp, tensor);
  Loan loan;
  const tutti::Buffer buffer = lend(loan, tensor, Use::in_place);
  const tutti::ConstBuffer input = buffer;
  call.input = {&input, 1};
  call.output = {&buffer, 1};
  return launch(kTitle, call, options, std::move(loan), tensors);
}

WorkHandle Backend::allreduce_coalesced(Tensors& tensors,
                                        const c10d::AllreduceCoalescedOptions& options) {
  static constexpr Title kTitle{OpType::ALLREDUCE_COALESCED, "tutti:all_reduce_coalesced",
                                "tutti:all_reduce"};
  if (tensors.empty()) refuse(kTitle.name(), "requires non-empty tensor list");
  for (const at::Tensor& tensor : tensors)
    if (tensor.scalar_type() != tensors[0].scalar_type())
      refuse(kTitle.name(), "tensors must all have the same type");
  check_same_type(kTitle.name(), tensors[0], tensors);
  tutti::Call call = call_of(Collective::all_reduce);
  call.reduction = reduction_of(kTitle.name(), options.reduceOp, tensors[0]);
  Loan loan;
  const Buffers buffers = lend_all(loan, apart(loan, tensors), Use::in_place);
  const ConstBuffers inputs(buffers.begin(), buffers.end());
  call.input = span_of(inputs);
  call.output = span_of(buffers);
  return launch(kTitle, call, options, std::move(loan), tensors);
}

WorkHandle Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  static constexpr Title kTitle{OpType::REDUCE, "tutti:reduce"};
  const at::Tensor& tensor = check_single(kTitle.name(), tensors);
  check_root(kTitle.name(), options.rootRank);
  if (options.rootTensor != 0)
    refuse(kTitle.name(), "invalid root tensor: " + std::to_string(options.rootTensor));
  tutti::Call call = call_of(Collective::reduce, options.rootRank);
  call.reduction = reduction_of(kTitle.name(), options.reduceOp, tensor);
  Loan loan;
  const bool is_root = options.rootRank == getRank();
  const tutti::Buffer buffer = lend(loan, tensor, is_root ? Use::in_place : Use::input);
  const tutti::ConstBuffer input = buffer;
  call.input = {&input, 1};
  if (is_root) call.output = {&buffer, 1};
  return launch(kTitle, call, options, std::move(loan), tensors);
}

// ---- gathering

tutti::Work Backend::start_gather(const Title& title, const at::Tensor& input,
                                  const Tensors& outputs, const Terms& terms, Loan& loan) {
  check_own_part(title.name(), input, outputs[static_cast<std::size_t>(getRank())], getRank());
  tutti::Call call = call_of(Collective::all_gather);
  const tutti::ConstBuffer source = lend(loan, input, Use::input);
  const Buffers parts = lend_all(loan, outputs, Use::output);
  for (const tutti::Buffer& part : parts) call.uneven |= part.count != source.count;
  call.input = {&source, 1};
  call.output = span_of(parts);
  return start(call, terms, loan);
}

tutti::Work Backend::start_gather(const Title& title, const at::Tensor& input,
                                  const at::Tensor& output, const Terms& terms, Loan& loan) {
  check_whole(title.name(), input, output, ranks());
  tutti::Call call = call_of(Collective::all_gather);
  const tutti::ConstBuffer source = lend(loan, input, Use::input);
  const tutti::Buffer whole = lend(loan, output, Use::output);
  call.input = {&source, 1};
  call.output = {&whole, 1};
  return start(call, terms, loan);
}

WorkHandle Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) {
  static constexpr Title kTitle{OpType::ALLGATHER, "tutti:all_gather"};
  if (inputs.empty()) refuse(kTitle.name(), "requires non-empty input tensor list");
  if (inputs.size() != outputs.size())
    refuse(kTitle.name(), "requires input/output tensor lists to have the same length");
  if (inputs.size() > 1) return allgather_several(outputs, inputs, options);
  if (outputs[0].size() != ranks())
    refuse(kTitle.name(), "invalid output tensor list at index 0 (expected length " +
                              std::to_string(ranks()) + ", got " +
                              std::to_string(outputs[0].size()) + ")");
  const at::Tensor& input = check_single(kTitle.name(), inputs);
  const Tensors& parts = check_list(kTitle.name(), "output", outputs, ranks(), input);
  Loan loan;
  tutti::Work operation = start_gather(kTitle, input, parts, options, loan);
  return hand_out(kTitle, std::move(operation), std::move(loan), parts);
}

WorkHandle Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                    const c10d::AllgatherOptions& options) {
  static constexpr Title kTitle{OpType::_ALLGATHER_BASE, "tutti:all_gather_into_tensor"};
  Loan loan;
  tutti::Work operation = start_gather(kTitle, input, output, options, loan);
  return hand_out(kTitle, std::move(operation), std::move(loan), {output});
}

// outputs[i][r] is what rank r passed as inputs[i].
WorkHandle Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& options) {
  static constexpr Title kTitle{OpType::ALLGATHER_COALESCED, "tutti:all_gather_coalesced",
                                "tutti:all_gather"};
  if (inputs.empty()) refuse(kTitle.name(), "requires non-empty input tensor list");
  // torch documents outputs[rank][i]; its lists are turned here into one list per input.
  if (outputs.size() != ranks())
    refuse(kTitle.name(), "output lists should be equal to world size");
  for (const Tensors& list : outputs)
    if (list.size() != inputs.size())
      refuse(kTitle.name(), "invalid output size: (expected length " +
                                std::to_string(inputs.size()) + ", got " +
                                std::to_string(list.size()) + ")");
  Loan loan;
  Tensors all;
  std::vector<Tensors> by_input(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(kTitle.name(), inputs[i]);
    for (const Tensors& list : outputs) by_input[i].push_back(list[i]);
    check_same_type(kTitle.name(), inputs[i], by_input[i]);
  }
  Operations operations;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    operations.add(start_gather(kTitle, inputs[i], by_input[i], options, loan));
  for (const Tensors& list : outputs) all.insert(all.end(), list.begin(), list.end());
  return hand_out(kTitle, std::move(operations), std::move(loan), std::move(all));
}

WorkHandle Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& options) {
  static constexpr Title kTitle{OpType::ALLGATHER_COALESCED,
                                "tutti:all_gather_into_tensor_coalesced"};
  if (inputs.empty() || inputs.size() != outputs.size())
    refuse(kTitle.name(), "requires input/output tensor lists of the same length, not empty");
  for (std::size_t i = 0; i < inputs.size(); ++i)
    check_whole(kTitle.name(), inputs[i], outputs[i], ranks());
  Loan loan;
  Operations operations;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    operations.add(start_gather(kTitle, inputs[i], outputs[i], options, loan));
  return hand_out(kTitle, std::move(operations), std::move(loan), outputs);
}

WorkHandle Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                           const c10d::GatherOptions& options) {
  static constexpr Title kTitle{OpType::GATHER, "tutti:gather"};
  const at::Tensor& input = check_single(kTitle.name(), inputs, "input ");
  check_root(kTitle.name(), options.rootRank);
  tutti::Call call = call_of(Collective::gather, options.rootRank);
  call.uneven = true;
  Loan loan;
  const tutti::ConstBuffer source = lend(loan, input, Use::input);
  call.input = {&source, 1};
  Buffers parts;
  Tensors results;
  if (options.rootRank == getRank()) {
    results = check_list(kTitle.name(), "output", outputs, ranks(), input);
    check_own_part(kTitle.name(), input, results[static_cast<std::size_t>(getRank())], getRank());
    parts = lend_all(loan, results, Use::output);
    call.output = span_of(parts);
  } else if (!outputs.empty() && !(outputs.size() == 1 && outputs[0].empty())) {
    refuse(kTitle.name(), "requires empty output on non-root");
  }
  return launch(kTitle, call, options, std::move(loan), std::move(results));
}

WorkHandle Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                            const c10d::ScatterOptions& options) {
  static constexpr Title kTitle{OpType::SCATTER, "tutti:scatter"};
  const at::Tensor& output = check_single(kTitle.name(), outputs, "output ");
  check_root(kTitle.name(), options.rootRank);
  tutti::Call call = call_of(Collective::scatter, options.rootRank);
  call.uneven = true;
  Loan loan;
  const tutti::Buffer target = lend(loan, output, Use::output);
  call.output = {&target, 1};
  ConstBuffers parts;
  if (options.rootRank == getRank()) {
    const Tensors& list = check_list(kTitle.name(), "input", inputs, ranks(), output);
    check_own_part(kTitle.name(), output, list[static_cast<std::size_t>(getRank())], getRank());
    parts = inputs_of(loan, list);
    call.input = span_of(parts);
  } else if (!inputs.empty() && !(inputs.size() == 1 && inputs[0].empty())) {
    refuse(kTitle.name(), "requires empty input on non-root");
  }
  return launch(kTitle, call, options, std::move(loan), outputs);
}

// ---- reduce_scatter

WorkHandle Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ReduceScatterOptions& options) {
  static constexpr Title kTitle{OpType::REDUCE_SCATTER, "tutti:reduce_scatter"};
  const at::Tensor& output = check_single(kTitle.name(), outputs);
  const Tensors& list = check_list(kTitle.name(), "input", inputs, ranks(), output);
  check_own_part(kTitle.name(), output, list[static_cast<std::size_t>(getRank())], getRank());
  tutti::Call call = call_of(Collective::reduce_scatter);
  call.reduction = reduction_of(kTitle.name(), options.reduceOp, output);
  Loan loan;
  const tutti::Buffer target = lend(loan, output, Use::output);
  const ConstBuffers parts = inputs_of(loan, list);
  for (const tutti::ConstBuffer& part : parts) call.uneven |= part.count != target.count;
  call.input = span_of(parts);
  call.output = {&target, 1};
  return launch(kTitle, call, options, std::move(loan), outputs);
}

tutti::Work Backend::start_reduce_scatter(const Title& title, const at::Tensor& input,
                                          const at::Tensor& output,
                                          const c10d::ReduceScatterOptions& options, Loan& loan) {
  check_whole(title.name(), output, input, ranks());
  tutti::Call call = call_of(Collective::reduce_scatter);
  call.reduction = reduction_of(title.name(), options.reduceOp, output);
  const tutti::ConstBuffer whole = lend(loan, input, Use::input);
  const tutti::Buffer target = lend(loan, output, Use::output);
  call.input = {&whole, 1};
  call.output = {&target, 1};
  return start(call, options, loan);
}

WorkHandle Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                         const c10d::ReduceScatterOptions& options) {
  static constexpr Title kTitle{OpType::_REDUCE_SCATTER_BASE, "tutti:reduce_scatter_tensor"};
  Loan loan;
  tutti::Work operation = start_reduce_scatter(kTitle, input, output, options, loan);
  return hand_out(kTitle, std::move(operation), std::move(loan), {output});
}

WorkHandle Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::ReduceScatterOptions& options) {
  static constexpr Title kTitle{OpType::_REDUCE_SCATTER_BASE,
                                "tutti:reduce_scatter_tensor_coalesced"};
  if (inputs.empty() || inputs.size() != outputs.size())
    refuse(kTitle.name(), "requires input/output tensor lists of the same length, not empty");
  for (std::size_t i = 0; i < inputs.size(); ++i)
    check_whole(kTitle.name(), outputs[i], inputs[i], ranks());
  Loan loan;
  Operations operations;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    operations.add(start_reduce_scatter(kTitle, inputs[i], outputs[i], options, loan));
  return hand_out(kTitle, std::move(operations), std::move(loan), outputs);
}

// ---- all_to_all

namespace {

// Elements for each rank: rows by `splits`, or evenly.
std::vector<std::size_t> parts_of(const char* side, const at::Tensor& tensor,
                                  const std::vector<int64_t>& splits, std::size_t ranks) {
  static constexpr const char* kName = "all_to_all_single";
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  std::vector<std::size_t> counts(ranks);
  const std::size_t width =
      rows == 0 ? 0
                : static_cast<std::size_t>(tensor.numel() / rows) * elements_of(tensor).per_element;
  if (splits.empty()) {
    if (rows % static_cast<int64_t>(ranks) != 0)
      refuse(kName, std::string("tensor's dim 0 does not divide equally across group size (") +
                        side + ": " + std::to_string(rows) + " rows, " + std::to_string(ranks) +
                        " ranks)");
    counts.assign(ranks, static_cast<std::size_t>(rows) / ranks * width);
    return counts;
  }
  if (splits.size() != ranks)
    refuse(kName, std::string("number of ") + side + " split sizes (" +
                      std::to_string(splits.size()) + ") is not equal to group size (" +
                      std::to_string(ranks) + ")");
  int64_t sum = 0;
  for (std::size_t i = 0; i < ranks; ++i) {
    if (splits[i] < 0) refuse(kName, std::string(side) + " split sizes must not be negative");
    sum += splits[i];
    counts[i] = static_cast<std::size_t>(splits[i]) * width;
  }
  if (sum != rows)
    refuse(kName, std::string(side) + " split sizes sum to " + std::to_string(sum) +
                      ", but the tensor's dim 0 is " + std::to_string(rows));
  return counts;
}

}  // namespace

WorkHandle Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                  std::vector<int64_t>& output_splits,
                                  std::vector<int64_t>& input_splits,
                                  const c10d::AllToAllOptions& options) {
  static constexpr Title kTitle{OpType::ALLTOALL_BASE, "tutti:all_to_all_single",
                                "tutti:all_to_all"};
  check_tensor(kTitle.name(), input);
  check_same_type(kTitle.name(), input, {output});
  const auto input_counts = parts_of("input", input, input_splits, ranks());
  const auto output_counts = parts_of("output", output, output_splits, ranks());
  tutti::Call call = call_of(Collective::all_to_all);
  // Whether others pass split sizes cannot be seen here: all calls take the form that allows them.
  call.uneven = true;
  Loan loan;
  const tutti::ConstBuffer source = lend(loan, input, Use::input);
  const tutti::Buffer target = lend(loan, output, Use::output);
  call.input = {&source, 1};
  call.output = {&target, 1};
  call.input_counts = input_counts;
  call.output_counts = output_counts;
  return launch(kTitle, call, options, std::move(loan), {output});
}

WorkHandle Backend::alltoall(Tensors& outputs, Tensors& inputs,
                             const c10d::AllToAllOptions& options) {
  static constexpr Title kTitle{OpType::ALLTOALL, "tutti:all_to_all"};
  if (inputs.size() != ranks() || outputs.size() != ranks())
    refuse(kTitle.name(), "number of input and output tensors are not equal to group size " +
                              std::to_string(ranks()));
  check_tensor(kTitle.name(), inputs[0]);
  check_same_type(kTitle.name(), inputs[0], inputs);
  check_same_type(kTitle.name(), inputs[0], outputs);
  const auto own = static_cast<std::size_t>(getRank());
  check_own_part(kTitle.name(), inputs[own], outputs[own], getRank());
  tutti::Call call = call_of(Collective::all_to_all);
  call.uneven = true;
  Loan loan;
  const ConstBuffers sources = inputs_of(loan, inputs);
  const Buffers targets = lend_all(loan, outputs, Use::output);
  call.input = span_of(sources);
  call.output = span_of(targets);
  return launch(kTitle, call, options, std::move(loan), outputs);
}

WorkHandle Backend::barrier(const c10d::BarrierOptions& options) {
  static constexpr Title kTitle{OpType::BARRIER, "tutti:barrier"};
  finish_gpu();
  tutti::Call call = call_of(Collective::barrier);
  return launch(kTitle, call, options, Loan(), {});
}

}  // namespace tutti_torch
