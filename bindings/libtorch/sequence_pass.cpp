#include "sequence_pass.hpp"

#include "tensor_calls.hpp"

namespace tutti::libtorch {

namespace {

constexpr std::int64_t kScratchAlignment = 128;
constexpr std::int64_t kMostTaken = 4;  // tensors of one exchange, each of which may leave a gap
constexpr const char* kCallName = "tensor parallel";

// Runs that meet are one: a collective in one piece means one product.
Status for_each_run(const exchange::RowPiece& piece, const SequencePass::OnRows& body) {
  return status_of("a product beside an exchange failed", [&] {
    for (const exchange::IndexRun& run : exchange::joined(piece.ranges)) body(run.first, run.count);
  });
}

}  // namespace

ScratchRoom::ScratchRoom(TensorParallel& ranks, const torch::Tensor& like, std::int64_t elements)
    : like_(like.options().requires_grad(false)),
      item_bytes_(like.element_size()),
      room_(ranks.scratch(elements * item_bytes_ + kMostTaken * kScratchAlignment, like.device())) {
}

torch::Tensor ScratchRoom::take(std::int64_t rows, std::int64_t width) {
  auto* place = static_cast<char*>(room_.data_ptr()) + used_;
  const std::int64_t bytes = rows * width * item_bytes_;
  used_ += (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  return torch::from_blob(place, {rows, width}, like_);
}

SequencePass::SequencePass(TensorParallel& ranks, std::vector<std::int64_t> whole_shape,
                           const torch::Tensor& weight)
    : ranks_(ranks), blocks_(std::move(whole_shape), ranks.options().sequence_dim, ranks.size()) {
  flops_ = 2.0 * static_cast<double>(blocks_.all_rows()) * static_cast<double>(weight.numel());
}

torch::Tensor SequencePass::part(const torch::Tensor& rows) const {
  auto shape = blocks_.part_shape(ranks_.rank());
  shape.back() = rows.size(1);
  return rows.view(shape);
}

exchange::RowCounts SequencePass::rows_of(const torch::Tensor& whole) const {
  return {blocks_.rows(), static_cast<std::size_t>(whole.size(1))};
}

int SequencePass::pieces(Collective collective, const torch::Tensor& whole) const {
  if (!ranks_.options().overlap) return 1;
  return ranks_.pieces(collective, static_cast<std::size_t>(whole.nbytes()), flops_);
}

void SequencePass::note(const Result<exchange::ExchangeTimes>& times) {
  throw_failure(times.status());
  ranks_.add_times(*times);
}

void SequencePass::gather(const torch::Tensor& part, const torch::Tensor& whole,
                          const OnRows& use) {
  note(exchange::gather_in_pieces(
      ranks_.group(), rows_of(whole), lend(part), lend(whole),
      pieces(Collective::all_gather, whole),
      [&](const exchange::RowPiece& piece) { return for_each_run(piece, use); },
      call_on(whole, kCallName)));
}

void SequencePass::scatter(const torch::Tensor& whole, const torch::Tensor& part,
                           const OnRows& make, const std::function<void()>& beside) {
  const bool overlap = ranks_.options().overlap;
  std::function<Status()> meanwhile;
  if (overlap) meanwhile = [&] { return status_of("a weight's product failed", beside); };
  note(exchange::scatter_in_pieces(
      ranks_.group(), rows_of(whole), lend(whole), lend(part), ReduceOp::sum,
      pieces(Collective::reduce_scatter, whole),
      [&](const exchange::RowPiece& piece) { return for_each_run(piece, make); }, meanwhile,
      call_on(whole, kCallName)));
  if (!overlap) beside();
}

GatherBeside::GatherBeside(TensorParallel& ranks, const RowBlocks& blocks,
                           const torch::Tensor& part, const torch::Tensor& whole)
    : ranks_(ranks) {
  if (!part.defined()) return;
  std::vector<std::size_t> counts = blocks.rows();
  for (std::size_t& count : counts) count *= static_cast<std::size_t>(whole.size(1));
  const CallOptions options = call_on(whole, kCallName);
  meter_.emplace(lend(whole).device, options.stream);
  meter_->follow(ranks.group().all_gather_v_async(lend(part), lend(whole), counts, options));
}

GatherBeside::~GatherBeside() {
  if (meter_) (void)meter_->wait_for_all().ok();
}

void GatherBeside::wait() {
  if (!meter_) return;
  const Status status = meter_->wait_for_all();
  ranks_.add_times(meter_->times());
  meter_.reset();
  throw_failure(status);
}

}  // namespace tutti::libtorch
