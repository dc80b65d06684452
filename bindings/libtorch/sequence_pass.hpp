// bindings/libtorch/sequence_pass.hpp - a layer's exchanges along the sequence: rows that come from all ranks, and
// rows of a sum that go to them, in as many pieces as the ranks' options say, beside the products that need or
// make them.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <optional>
#include <vector>

#include "row_blocks.hpp"
#include "tutti/libtorch/tensor_parallel.hpp"

namespace tutti::libtorch {

// Tensors in the ranks' scratch, for one exchange. `elements`: of all that is taken, on the rank that takes most.
class ScratchRoom {
 public:
  ScratchRoom(TensorParallel& ranks, const torch::Tensor& like, std::int64_t elements);
  torch::Tensor take(std::int64_t rows, std::int64_t width);

 private:
  torch::TensorOptions like_;
  std::int64_t item_bytes_;
  torch::Tensor room_;
  std::int64_t used_ = 0;
};

class SequencePass {
 public:
  // Rows first … first + count − 1, rank by rank.
  using OnRows = std::function<void(std::int64_t first, std::int64_t count)>;

  // `whole_shape` of the layer's input or output, whichever is not split by features.
  SequencePass(TensorParallel& ranks, std::vector<std::int64_t> whole_shape,
               const torch::Tensor& weight);

  const RowBlocks& blocks() const { return blocks_; }
  std::int64_t own() const { return rows_of_rank(ranks_.rank()); }
  std::int64_t most_own() const { return rows_of_rank(0); }  // of any rank: the first has most
  // Own rows as a part of the sequence.
  torch::Tensor part(const torch::Tensor& rows) const;

  // All ranks' rows of `part` in `whole`; use() is called for those that have come.
  void gather(const torch::Tensor& part, const torch::Tensor& whole, const OnRows& use);
  // The sum over ranks of `whole`, which make() fills, in `part`. `beside` needs nothing of it.
  void scatter(const torch::Tensor& whole, const torch::Tensor& part, const OnRows& make,
               const std::function<void()>& beside);

 private:
  std::int64_t rows_of_rank(int rank) const {
    return static_cast<std::int64_t>(blocks_.rows()[static_cast<std::size_t>(rank)]);
  }
  exchange::RowCounts rows_of(const torch::Tensor& whole) const;
  int pieces(Collective collective, const torch::Tensor& whole) const;
  void note(const Result<exchange::ExchangeTimes>& times);

  TensorParallel& ranks_;
  double flops_;  // of the layer's product
  RowBlocks blocks_;
};

// An all_gather of rows on its way beside other things. An undefined part: there is nothing to gather.
class GatherBeside {
 public:
  GatherBeside(TensorParallel& ranks, const RowBlocks& blocks, const torch::Tensor& part,
               const torch::Tensor& whole);
  ~GatherBeside();  // waits: the tensors are lent
  GatherBeside(const GatherBeside&) = delete;
  GatherBeside& operator=(const GatherBeside&) = delete;
  // Once or more.
  void wait();

 private:
  TensorParallel& ranks_;
  std::optional<exchange::ExchangeMeter> meter_;  // absent: it is over
};

}  // namespace tutti::libtorch
