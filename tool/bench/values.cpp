#include "tool/bench/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "tutti/dtypes.hpp"
#include "tutti/shape.hpp"

namespace tutti::tool {
namespace {

constexpr long kMost = 12;

// A number that looks random; the same on every rank and machine.
unsigned long mix(int rank, std::size_t index) {
  unsigned long x =
      index * 0x9e3779b97f4a7c15UL + static_cast<unsigned long>(rank) * 0xd1b54a32d192ed03UL;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9UL;
  return x >> 33;
}

// sign 0, then the exponent, then the mantissa.
std::uint64_t float_bits(long value, const DtypeInfo& info) {
  if (value == 0) return 0;
  const int mantissa = info.mantissa_bits;
  const int bias = (1 << (info.exponent_bits - 1)) - 1;
  const int exponent = std::bit_width(static_cast<unsigned long>(value)) - 1;
  const auto fraction = static_cast<std::uint64_t>(value - (1L << exponent));
  const std::uint64_t shifted =
      exponent <= mantissa ? fraction << (mantissa - exponent) : fraction >> (exponent - mantissa);
  return static_cast<std::uint64_t>(exponent + bias) << mantissa | shifted;
}

}  // namespace

long exact_limit(Dtype dtype) {
  constexpr long kEnough = 32767;
  const DtypeInfo& info = info_of(dtype);
  if (info.kind == DtypeKind::truth) return 1;
  const auto up_to = [](int bits) { return bits > 15 ? kEnough : (1L << bits) - 1; };
  if (info.kind == DtypeKind::integer) return up_to(8 * info.bytes - 1);
  if (info.kind == DtypeKind::natural) return up_to(8 * info.bytes);
  // A float holds all whole numbers of as many bits as its mantissa and the leading one, and the
  // next; unless it ends before.
  const int largest_exponent = (1 << (info.exponent_bits - 1)) - 1;
  return std::min(up_to(info.mantissa_bits + 1) + (info.mantissa_bits < 15 ? 1 : 0),
                  up_to(largest_exponent + 1));
}

void encode(long value, Dtype dtype, std::byte* to) {
  const DtypeInfo& info = info_of(dtype);
  const std::uint64_t bits =
      info.is_float() ? float_bits(value, info) : static_cast<std::uint64_t>(value);
  std::memcpy(to, &bits, info.bytes);  // the low bytes come first
}

Status Values::check(Collective collective, Dtype dtype, ReduceOp op, int ranks) {
  if (!has_reduction(collective)) return {};
  if (op == ReduceOp::user)
    return {Code::invalid_argument, "--op user: a function cannot be given on the command line"};
  if (!is_sensible(op, dtype))
    return {Code::invalid_argument,
            fmt::format("--op {} has no meaning on {}", to_string(op), to_string(dtype))};
  if (op != ReduceOp::avg) return {};
  if (shape_of(collective).is_prefix())
    return {Code::invalid_argument, fmt::format("--op avg: a {} of it has no exact result to check",
                                                to_string(collective))};
  if (2L * ranks > exact_limit(dtype))
    return {Code::invalid_argument, fmt::format("--op avg of {} over {} ranks has no exact result",
                                                to_string(dtype), ranks)};
  return {};
}

long Values::value(int rank, std::size_t index) const {
  const long limit = exact_limit(dtype_);
  const auto up_to = [&](long most) {
    return static_cast<long>(mix(rank, index) % static_cast<unsigned long>(most + 1));
  };
  if (info_of(dtype_).kind == DtypeKind::truth) return up_to(1);
  switch (op_) {
    case ReduceOp::prod:  // exactly one rank brings a factor
      return rank == static_cast<int>(index % static_cast<std::size_t>(ranks_)) ? 2 : 1;
    case ReduceOp::avg: {  // neighbours differ by two, and their mean is whole
      const long most = std::clamp(limit / ranks_ - 1, 1L, kMost);
      const long base = 1 + static_cast<long>(index) % most;
      if (rank % 2 == 1) return base - 1;
      return rank + 1 < ranks_ ? base + 1 : base;
    }
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor: return up_to(127);
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::user: return up_to(std::min(limit, kMost));
    case ReduceOp::sum:
    case ReduceOp::premul_sum: break;
  }
  const long room = op_ == ReduceOp::premul_sum ? limit / static_cast<long>(kScalar) : limit;
  if (room >= ranks_) return up_to(std::min(room / ranks_, kMost));
  // More ranks than the type can count: only some bring a one.
  const long stride = (ranks_ + room - 1) / room;
  return rank % stride == static_cast<long>(index) % stride ? 1 : 0;
}

long Values::fold_at(int last, std::size_t index) const {
  long result = value(0, index);
  for (int rank = 1; rank <= last; ++rank) {
    const long next = value(rank, index);
    switch (op_) {
      case ReduceOp::sum:
      case ReduceOp::premul_sum:
      case ReduceOp::avg:
      case ReduceOp::user: result += next; break;
      case ReduceOp::prod: result *= next; break;
      case ReduceOp::min: result = std::min(result, next); break;
      case ReduceOp::max: result = std::max(result, next); break;
      case ReduceOp::band: result &= next; break;
      case ReduceOp::bor: result |= next; break;
      case ReduceOp::bxor: result ^= next; break;
    }
  }
  if (op_ == ReduceOp::premul_sum) result *= static_cast<long>(kScalar);
  if (op_ == ReduceOp::avg) result /= ranks_;
  return info_of(dtype_).kind == DtypeKind::truth ? std::min(result, 1L) : result;
}

Period Values::of(int rank) const {
  const std::size_t size = size_of(dtype_);
  Period period(kPeriod * size);
  for (std::size_t i = 0; i < kPeriod; ++i) encode(value(rank, i), dtype_, &period[i * size]);
  return period;
}

Period Values::folded(int last) const {
  const std::size_t size = size_of(dtype_);
  Period period(kPeriod * size);
  for (std::size_t i = 0; i < kPeriod; ++i) encode(fold_at(last, i), dtype_, &period[i * size]);
  return period;
}

void Values::fill(void* to, std::size_t first, std::size_t count, const Period& period) const {
  const std::size_t size = size_of(dtype_);
  auto* at = static_cast<std::byte*>(to);
  for (std::size_t from = first % kPeriod; count > 0; from = 0) {
    const std::size_t now = std::min(count, kPeriod - from);
    std::memcpy(at, &period[from * size], now * size);
    at += now * size;
    count -= now;
  }
}

std::size_t Values::count_wrong(const void* data, std::size_t first, std::size_t count,
                                const Period& period) const {
  const std::size_t size = size_of(dtype_);
  const auto* at = static_cast<const std::byte*>(data);
  std::size_t wrong = 0;
  for (std::size_t from = first % kPeriod; count > 0; from = 0) {
    const std::size_t now = std::min(count, kPeriod - from);
    if (std::memcmp(at, &period[from * size], now * size) != 0)
      for (std::size_t i = 0; i < now; ++i)
        wrong += std::memcmp(at + i * size, &period[(from + i) * size], size) != 0 ? 1 : 0;
    at += now * size;
    count -= now;
  }
  return wrong;
}

}  // namespace tutti::tool
