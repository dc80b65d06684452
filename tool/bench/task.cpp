#include "tool/bench/task.hpp"

#include <algorithm>
#include <cstring>

#include "tool/bench/arithmetic.hpp"

namespace tutti::tool {

bool has_placement(Collective collective, bool in_place) {
  if (collective == Collective::broadcast) return in_place;
  if (collective == Collective::barrier) return !in_place;
  return true;
}

Task::Task(const Cell& cell, int rank, int ranks, const Areas& areas)
    : cell_(cell),
      rank_(rank),
      ranks_(ranks),
      part_(cell.count() / static_cast<std::size_t>(ranks)),
      values_(cell.dtype, cell.op, ranks) {
  place_sides(areas);
  plan_contribution();
  plan_result();
  input_buffer_ = ConstBuffer(input_, input_count_, cell.dtype);
  output_buffer_ = Buffer{output_, output_count_, cell.dtype};
  call_.collective = cell.collective;
  if (input_ != nullptr && cell.collective != Collective::broadcast)
    call_.input = {&input_buffer_, 1};
  if (output_ != nullptr) call_.output = {&output_buffer_, 1};
  call_.reduction =
      cell.op == ReduceOp::premul_sum ? Reduction::premul_sum(Values::kScalar) : Reduction(cell.op);
  call_.root = cell.root;
  call_.options.algorithm = cell.algorithm;
}

std::byte* Task::element(std::byte* base, std::size_t index) const {
  return base + index * size_of(cell_.dtype);
}

// In place follows nccl-tests: a rank's own part lies where it belongs in the whole array.
void Task::place_sides(const Areas& areas) {
  auto* first = static_cast<std::byte*>(areas.first);
  auto* second = cell_.in_place ? first : static_cast<std::byte*>(areas.second);
  const std::size_t own = cell_.in_place ? static_cast<std::size_t>(rank_) * part_ : 0;
  const std::size_t whole = cell_.count();
  const auto sides = [&](std::byte* in, std::size_t in_count, std::byte* out,
                         std::size_t out_count) {
    input_ = in_count > 0 ? in : nullptr;
    input_count_ = in_count;
    output_ = out_count > 0 ? out : nullptr;
    output_count_ = out_count;
  };
  switch (cell_.collective) {
    case Collective::barrier: return;
    case Collective::broadcast: return sides(first, whole, first, whole);
    case Collective::reduce: return sides(first, whole, second, at_root() ? whole : 0);
    case Collective::all_reduce:
    case Collective::scan:
    case Collective::exclusive_scan:
    case Collective::all_to_all: return sides(first, whole, second, whole);
    case Collective::gather:
      return sides(element(first, at_root() ? own : 0), part_, second, at_root() ? whole : 0);
    case Collective::all_gather: return sides(element(first, own), part_, second, whole);
    case Collective::scatter:
      return sides(first, at_root() ? whole : 0, element(second, at_root() ? own : 0), part_);
    case Collective::reduce_scatter: return sides(first, whole, element(second, own), part_);
  }
}

std::size_t Task::add_period(Period period) {
  periods_.push_back(std::move(period));
  return periods_.size() - 1;
}

void Task::plan_contribution() {
  if (input_ == nullptr) return;
  if (cell_.collective == Collective::broadcast && !at_root()) return;
  contribution_ = {input_, 0, input_count_, add_period(values_.of(rank_))};
}

void Task::expect(std::size_t offset, std::size_t first, std::size_t count, std::size_t period) {
  if (count > 0) result_.push_back({element(output_, offset), first, count, period});
}

void Task::plan_result() {
  if (output_ == nullptr) return;
  const std::size_t own = static_cast<std::size_t>(rank_) * part_;
  switch (cell_.collective) {
    case Collective::barrier: return;
    case Collective::broadcast:
      return expect(0, 0, output_count_, add_period(values_.of(cell_.root)));
    case Collective::reduce:
    case Collective::all_reduce:
      return expect(0, 0, output_count_, add_period(values_.folded(ranks_ - 1)));
    case Collective::scan: return expect(0, 0, output_count_, add_period(values_.folded(rank_)));
    case Collective::exclusive_scan:  // rank 0's output stays as it was
      if (rank_ > 0) expect(0, 0, output_count_, add_period(values_.folded(rank_ - 1)));
      return;
    case Collective::scatter: return expect(0, own, part_, add_period(values_.of(cell_.root)));
    case Collective::reduce_scatter:
      return expect(0, own, part_, add_period(values_.folded(ranks_ - 1)));
    case Collective::gather:
    case Collective::all_gather:
    case Collective::all_to_all:
      for (int from = 0; from < ranks_; ++from)
        expect(static_cast<std::size_t>(from) * part_,
               cell_.collective == Collective::all_to_all ? own : 0, part_,
               add_period(values_.of(from)));
  }
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
