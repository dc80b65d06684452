// What each collective does, said in the plainest way: with everybody's input at hand.
#include <numeric>

#include "support/trial.hpp"

namespace tutti::test {
namespace {

bool has_parts(Collective collective) {
  switch (collective) {
    case Collective::gather:
    case Collective::all_gather:
    case Collective::scatter:
    case Collective::reduce_scatter:
    case Collective::all_to_all: return true;
    default: return false;
  }
}

bool is_uneven(Shape shape) { return shape == Shape::uneven || shape == Shape::uneven_list; }

// Elements of the part that belongs to rank r.
std::size_t part(const Case& what, int rank) {
  if (!is_uneven(what.shape)) return what.count;
  return rank % 3 == 1 ? 0 : what.count + 3 * static_cast<std::size_t>(rank);
}

// Elements that go from one rank to another in all_to_all.
std::size_t pair(const Case& what, int from, int to) {
  if (!is_uneven(what.shape)) return what.count;
  const int key = from + 2 * to;
  return key % 4 == 1 ? 0 : what.count + static_cast<std::size_t>(key);
}

std::vector<std::size_t> all_parts(const Case& what, int size) {
  std::vector<std::size_t> parts;
  for (int rank = 0; rank < size; ++rank) parts.push_back(part(what, rank));
  return parts;
}

std::size_t sum_of(const std::vector<std::size_t>& counts, std::size_t how_many) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(how_many),
                         std::size_t{0});
}

// Part `index` of a contiguous array that is cut into `counts`.
Bytes cut_out(const Bytes& whole, const std::vector<std::size_t>& counts, int index,
              std::size_t width) {
  const auto at = static_cast<std::size_t>(index);
  const auto first = whole.begin() + static_cast<std::ptrdiff_t>(sum_of(counts, at) * width);
  return {first, first + static_cast<std::ptrdiff_t>(counts[at] * width)};
}

Bytes fold(const Case& what, const std::vector<Bytes>& inputs, int divisor) {
  return fold_in_order(what.dtype, what.reduction, inputs, divisor, result_dtype(what),
                       what.order == ReductionOrder::tree);
}

Bytes fold_ranks(const Case& what, int first, int last, int divisor) {
  std::vector<Bytes> inputs;
  for (int rank = first; rank < last; ++rank) inputs.push_back(input_of(what, divisor, rank));
  return fold(what, inputs, divisor);
}

Bytes gathered(const Case& what, int size) {
  Bytes whole;
  for (int rank = 0; rank < size; ++rank) {
    const Bytes input = input_of(what, size, rank);
    whole.insert(whole.end(), input.begin(), input.end());
  }
  return whole;
}

// Only the needed slice of everybody's input is made: a rank would otherwise fold n times too much.
Bytes reduced_part(const Case& what, int size, int rank) {
  const auto parts = all_parts(what, size);
  const std::size_t first = sum_of(parts, static_cast<std::size_t>(rank));
  const Recipe recipe{what.dtype, what.reduction.op, what.values, what.seed};
  std::vector<Bytes> slices;
  for (int from = 0; from < size; ++from)
    slices.push_back(make_values(recipe, from, first, parts[static_cast<std::size_t>(rank)]));
  return fold(what, slices, size);
}

Bytes exchanged(const Case& what, int size, int rank) {
  Bytes whole;
  for (int from = 0; from < size; ++from) {
    const Bytes sent = cut_out(input_of(what, size, from), input_parts(what, size, from), rank,
                               size_of(what.dtype));
    whole.insert(whole.end(), sent.begin(), sent.end());
  }
  return whole;
}

}  // namespace

Dtype result_dtype(const Case& what) { return what.widens ? Dtype::f32 : what.dtype; }

bool exists(const Case& what) {
  if (what.shape == Shape::even) return true;
  return has_parts(what.collective) && !(what.in_place && what.shape != Shape::uneven) &&
         !(what.in_place && what.collective == Collective::all_to_all);
}

std::vector<std::size_t> input_parts(const Case& what, int size, int rank) {
  switch (what.collective) {
    case Collective::barrier: return {};
    case Collective::broadcast:
      return rank == what.root ? std::vector{what.count} : std::vector<std::size_t>{};
    case Collective::gather:
    case Collective::all_gather: return {part(what, rank)};
    case Collective::scatter:
      return rank == what.root ? all_parts(what, size) : std::vector<std::size_t>{};
    case Collective::reduce_scatter: return all_parts(what, size);
    case Collective::all_to_all: {
      std::vector<std::size_t> parts;
      for (int to = 0; to < size; ++to) parts.push_back(pair(what, rank, to));
      return parts;
    }
    case Collective::reduce:
    case Collective::all_reduce:
    case Collective::scan:
    case Collective::exclusive_scan: return {what.count};
  }
  return {};
}

std::vector<std::size_t> output_parts(const Case& what, int size, int rank) {
  switch (what.collective) {
    case Collective::barrier: return {};
    case Collective::reduce:
      return rank == what.root ? std::vector{what.count} : std::vector<std::size_t>{};
    case Collective::gather:
      return rank == what.root ? all_parts(what, size) : std::vector<std::size_t>{};
    case Collective::all_gather: return all_parts(what, size);
    case Collective::scatter:
    case Collective::reduce_scatter: return {part(what, rank)};
    case Collective::all_to_all: {
      std::vector<std::size_t> parts;
      for (int from = 0; from < size; ++from) parts.push_back(pair(what, from, rank));
      return parts;
    }
    case Collective::broadcast:
    case Collective::all_reduce:
    case Collective::scan:
    case Collective::exclusive_scan: return {what.count};
  }
  return {};
}

Bytes input_of(const Case& what, int size, int rank) {
  const auto parts = input_parts(what, size, rank);
  const Recipe recipe{what.dtype, what.reduction.op, what.values, what.seed};
  return make_values(recipe, rank, 0, sum_of(parts, parts.size()));
}

Bytes expected_output(const Case& what, int size, int rank, const Bytes& before) {
  switch (what.collective) {
    case Collective::barrier: return {};
    case Collective::broadcast: return input_of(what, size, what.root);
    case Collective::reduce: return rank == what.root ? fold_ranks(what, 0, size, size) : before;
    case Collective::all_reduce: return fold_ranks(what, 0, size, size);
    case Collective::gather: return rank == what.root ? gathered(what, size) : before;
    case Collective::all_gather: return gathered(what, size);
    case Collective::scatter:
      return cut_out(input_of(what, size, what.root), all_parts(what, size), rank,
                     size_of(what.dtype));
    case Collective::reduce_scatter: return reduced_part(what, size, rank);
    case Collective::all_to_all: return exchanged(what, size, rank);
    case Collective::scan: return fold_ranks(what, 0, rank + 1, size);
    case Collective::exclusive_scan: return rank == 0 ? before : fold_ranks(what, 0, rank, size);
  }
  return {};
}

}  // namespace tutti::test
