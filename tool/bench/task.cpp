#include "tool/bench/task.hpp"

#include <algorithm>
#include <cstring>

#include "tool/bench/arithmetic.hpp"

namespace tutti::tool {

bool has_placement(Collective collective, bool in_place) {
  const CollectiveShape& shape = shape_of(collective);
  if (shape.has_one_buffer()) return in_place;
  return shape.has_data() || !in_place;
}

Task::Task(const BenchCell& cell, int rank, int ranks, const Areas& areas, Device device,
           void* stream)
    : cell_(cell),
      shape_(shape_of(cell.collective)),
      rank_(rank),
      ranks_(ranks),
      part_(cell.count() / static_cast<std::size_t>(ranks)),
      values_(cell.dtype, cell.op, ranks) {
  place_sides(areas);
  plan_contribution();
  plan_result();
  input_buffer_ = ConstBuffer(input_, input_count_, cell.dtype);
  input_buffer_.device = device;
  output_buffer_ = Buffer{output_, output_count_, cell.dtype, device};
  call_.collective = cell.collective;
  if (input_ != nullptr && !shape_.has_one_buffer()) call_.input = {&input_buffer_, 1};
  if (output_ != nullptr) call_.output = {&output_buffer_, 1};
  call_.reduction =
      cell.op == ReduceOp::premul_sum ? Reduction::premul_sum(Values::kScalar) : Reduction(cell.op);
  call_.root = cell.root;
  call_.options.algorithm = cell.algorithm;
  if (shape_.has_data()) call_.options.stream = stream;
}

std::byte* Task::element(std::byte* base, std::size_t index) const {
  return base + index * size_of(cell_.dtype);
}

// In place follows nccl-tests: a rank's own part lies where it belongs in the whole array.
void Task::place_sides(const Areas& areas) {
  auto* first = static_cast<std::byte*>(areas.first);
  auto* second = cell_.in_place ? first : static_cast<std::byte*>(areas.second);
  if (!shape_.has_data()) return;
  const bool gives = shape_.has_one_buffer() || shape_.input.is_there(at_root());
  const bool gets = shape_.output.is_there(at_root());
  const bool nested = cell_.in_place && shape_.has_parts() && gives && gets;
  const std::size_t own = nested ? static_cast<std::size_t>(rank_) * part_ : 0;
  const auto count = [&](const CollectiveSide& side) {
    return shape_.is_part(side) ? part_ : cell_.count();
  };
  const auto at = [&](const CollectiveSide& side, std::byte* area) {
    return side.blocks == Blocks::one ? element(area, own) : area;
  };
  input_count_ = gives ? count(shape_.input) : 0;
  input_ = input_count_ > 0 ? at(shape_.input, first) : nullptr;
  output_count_ = gets ? count(shape_.output) : 0;
  output_ = output_count_ > 0 ? at(shape_.output, second) : nullptr;
}

std::size_t Task::add_period(Period period) {
  periods_.push_back(std::move(period));
  return periods_.size() - 1;
}

void Task::plan_contribution() {
  if (input_ == nullptr) return;
  if (shape_.has_one_buffer() && !at_root()) return;
  contribution_ = {input_, 0, input_count_, add_period(values_.of(rank_))};
}

void Task::expect(std::size_t offset, std::size_t first, std::size_t count, std::size_t period) {
  if (count > 0) result_.push_back({element(output_, offset), first, count, period});
}

void Task::plan_result() {
  if (output_ == nullptr) return;
  if (shape_.gets_nothing(rank_, ranks_)) return;
  const std::size_t own = static_cast<std::size_t>(rank_) * part_;
  if (shape_.output.blocks == Blocks::one) {
    const Period period = shape_.folds() ? values_.folded(shape_.contributors(rank_, ranks_) - 1)
                                         : values_.of(cell_.root);
    return expect(0, shape_.has_parts() ? own : 0, output_count_, add_period(period));
  }
  for (int from = 0; from < ranks_; ++from)
    expect(static_cast<std::size_t>(from) * part_, shape_.has_pairs() ? own : 0, part_,
           add_period(values_.of(from)));
}

void Task::fill() const {
  if (contribution_.count > 0)
    values_.fill(contribution_.at, contribution_.first, contribution_.count,
                 periods_[contribution_.period]);
}

void Task::fill_and_spoil() const {
  for (const Piece& piece : result_)
    std::memset(piece.at, 0xA5, piece.count * size_of(cell_.dtype));
  fill();
}

void Task::clear() const {
  if (input_ != nullptr) std::memset(input_, 0, input_count_ * size_of(cell_.dtype));
  if (output_ != nullptr) std::memset(output_, 0, output_count_ * size_of(cell_.dtype));
}

std::size_t Task::count_wrong() const {
  std::size_t wrong = 0;
  for (const Piece& piece : result_)
    wrong += values_.count_wrong(piece.at, piece.first, piece.count, periods_[piece.period]);
  return wrong;
}

}  // namespace tutti::tool
