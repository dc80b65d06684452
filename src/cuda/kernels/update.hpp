// cuda/kernels/update.hpp - an optimizer's arithmetic, and what is asked of gradients.
//
// Formulas are those of reduce/update_formulas.hpp, which the processor's vectors use as well. A thread
// takes four elements at once, by vectors of 16 bytes where all arrays allow it.
#pragma once

#include "cuda/kernels/elements.hpp"
#include "cuda/kernels/machine.hpp"
#include "cuda/update_job.hpp"

namespace tutti::cuda::kernels {

using Single = WholeElement<float>;
inline constexpr int kGroupOfFour = 4;  // elements of a vector

// ---- four elements, or the few that are left

struct Four {
  float x[kGroupOfFour];
};

TUTTI_DEVICE Four load_four(std::uint64_t at, bool vectors, int count) {
  Four four{};
  if (vectors) {
    const Quad quad = load<Quad>(at);
    TUTTI_UNROLL
    for (int i = 0; i < kGroupOfFour; ++i) four.x[i] = Single::open(quad.words[i]);
  } else {
    TUTTI_UNROLL
    for (int i = 0; i < kGroupOfFour; ++i)
      if (i < count) four.x[i] = Single::open(load<std::uint32_t>(at + sizeof(float) * i));
  }
  return four;
}

// NaNs are written as the canonical one.
TUTTI_DEVICE void store_four(std::uint64_t at, const Four& four, bool vectors, int count) {
  if (vectors) {
    Quad quad;
    TUTTI_UNROLL
    for (int i = 0; i < kGroupOfFour; ++i) quad.words[i] = Single::close(four.x[i]);
    store(at, quad);
  } else {
    TUTTI_UNROLL
    for (int i = 0; i < kGroupOfFour; ++i)
      if (i < count) store(at + sizeof(float) * i, Single::close(four.x[i]));
  }
}

// Calls body(first element, how many of four) for all of [0, count), shared by all threads of the launch;
// `turn` is the tile that this block takes next, and is what is left of it for the elements after these.
template <class Body>
TUTTI_DEVICE void in_fours(std::uint64_t count, std::uint64_t& turn, const Worker& worker,
                           Body body) {
  const auto tile = static_cast<std::uint64_t>(kGroupOfFour) * worker.count;
  const std::uint64_t tiles = (count + tile - 1) / tile;
  TUTTI_ROLLED
  for (; turn < tiles; turn += worker.blocks) {
    const std::uint64_t at = turn * tile + kGroupOfFour * static_cast<std::uint64_t>(worker.index);
    if (at >= count) continue;
    const std::uint64_t left = count - at;
    body(at, left < kGroupOfFour ? static_cast<int>(left) : kGroupOfFour);
  }
  turn -= tiles;
}

// ---- updates

TUTTI_DEVICE void update_four(const AdamWJob& job, const reduce::AdamWFactors& factors,
                              std::uint64_t offset, bool vectors, int count) {
  Four w = load_four(job.weights + offset, vectors, count);
  const Four g = load_four(job.gradient + offset, vectors, count);
  Four m = load_four(job.moments[0] + offset, vectors, count);
  Four v = load_four(job.moments[1] + offset, vectors, count);
  TUTTI_UNROLL
  for (int i = 0; i < kGroupOfFour; ++i) {
    const auto after = reduce::adamw_step<float>(factors, g.x[i], {w.x[i], m.x[i], v.x[i]},
                                                 [](float x) { return square_root(x); });
    w.x[i] = after.weight;
    m.x[i] = after.exp_avg;
    v.x[i] = after.exp_avg_sq;
  }
  store_four(job.weights + offset, w, vectors, count);
  store_four(job.moments[0] + offset, m, vectors, count);
  store_four(job.moments[1] + offset, v, vectors, count);
}

TUTTI_DEVICE void update_four(const SgdJob& job, const reduce::SgdFactors& factors,
                              std::uint64_t offset, bool vectors, int count) {
  Four w = load_four(job.weights + offset, vectors, count);
  const Four g = load_four(job.gradient + offset, vectors, count);
  Four b{};
  if (!factors.first) b = load_four(job.moments[0] + offset, vectors, count);
  TUTTI_UNROLL
  for (int i = 0; i < kGroupOfFour; ++i) {
    const reduce::SgdState<float> before{w.x[i], b.x[i]};
    const auto after = factors.first ? reduce::sgd_step<true, float>(factors, g.x[i], before)
                                     : reduce::sgd_step<false, float>(factors, g.x[i], before);
    w.x[i] = after.weight;
    b.x[i] = after.momentum;
  }
  store_four(job.weights + offset, w, vectors, count);
  store_four(job.moments[0] + offset, b, vectors, count);
}

template <class Factors>
TUTTI_DEVICE void run_update(const UpdateJob<Factors>& job, const Worker& worker) {
  const bool alike =
      (job.weights | job.gradient | job.moments[0] | job.moments[1]) % sizeof(Quad) == 0;
  std::uint64_t turn = worker.block;
  TUTTI_ROLLED
  for (int i = 0; i < job.piece_count; ++i) {
    const UpdatePiece& piece = job.pieces[i];
    const bool vectors = alike && piece.first % kGroupOfFour == 0;
    in_fours(piece.count, turn, worker, [&](std::uint64_t at, int count) {
      update_four(job, job.factors[piece.factors], (piece.first + at) * sizeof(float),
                  vectors && count == kGroupOfFour, count);
    });
  }
}

// ---- floats of 16 bits

TUTTI_DEVICE std::uint32_t narrowed(bool is_f16, std::uint32_t bits) {
  return is_f16 ? reduce::lanes::narrow<5, 10, true, float>(bits)
                : reduce::lanes::narrow_bf16(bits);
}
TUTTI_DEVICE std::uint32_t widened(bool is_f16, std::uint32_t bits) {
  return is_f16 ? reduce::lanes::widen<5, 10, true, float>(bits) : reduce::lanes::widen_bf16(bits);
}

TUTTI_DEVICE void run_narrow(const ConvertJob& job, const Worker& worker) {
  const bool alike = job.from % sizeof(Quad) == 0 && job.to % sizeof(std::uint64_t) == 0;
  const bool is_f16 = job.is_f16 != 0;
  std::uint64_t turn = worker.block;
  in_fours(job.count, turn, worker, [&](std::uint64_t at, int count) {
    const std::uint64_t from = job.from + at * sizeof(float);
    const std::uint64_t to = job.to + at * sizeof(std::uint16_t);
    if (alike && count == kGroupOfFour) {
      const Quad wide = load<Quad>(from);
      std::uint64_t narrow = 0;
      TUTTI_UNROLL
      for (int i = 0; i < kGroupOfFour; ++i)
        narrow |= static_cast<std::uint64_t>(narrowed(is_f16, wide.words[i])) << 16 * i;
      store(to, narrow);
    } else {
      for (int i = 0; i < count; ++i)
        store(to + sizeof(std::uint16_t) * i,
              static_cast<std::uint16_t>(
                  narrowed(is_f16, load<std::uint32_t>(from + sizeof(float) * i))));
    }
  });
}

TUTTI_DEVICE void run_widen(const ConvertJob& job, const Worker& worker) {
  const bool alike = job.to % sizeof(Quad) == 0 && job.from % sizeof(std::uint64_t) == 0;
  std::uint64_t turn = worker.block;
  in_fours(job.count, turn, worker, [&](std::uint64_t at, int count) {
    const std::uint64_t from = job.from + at * sizeof(std::uint16_t);
    const std::uint64_t to = job.to + at * sizeof(float);
    const auto widened_one = [&](std::uint64_t bits) {
      return widened(job.is_f16 != 0, static_cast<std::uint32_t>(bits & 0xffff));
    };
    if (alike && count == kGroupOfFour) {
      const auto narrow = load<std::uint64_t>(from);
      Quad wide;
      TUTTI_UNROLL
      for (int i = 0; i < kGroupOfFour; ++i) wide.words[i] = widened_one(narrow >> 16 * i);
      store(to, wide);
    } else {
      for (int i = 0; i < count; ++i)
        store(to + sizeof(float) * i,
              widened_one(load<std::uint16_t>(from + sizeof(std::uint16_t) * i)));
    }
  });
}

// ---- sums of gradients

TUTTI_DEVICE void run_add(const AddJob& job, const Worker& worker) {
  const bool vectors = job.from % sizeof(Quad) == 0 && job.to % sizeof(Quad) == 0;
  std::uint64_t turn = worker.block;
  in_fours(job.count, turn, worker, [&](std::uint64_t at, int count) {
    const std::uint64_t offset = at * sizeof(float);
    const bool whole = vectors && count == kGroupOfFour;
    Four sum = load_four(job.to + offset, whole, count);
    const Four more = load_four(job.from + offset, whole, count);
    TUTTI_UNROLL
    for (int i = 0; i < kGroupOfFour; ++i) sum.x[i] += more.x[i];
    store_four(job.to + offset, sum, whole, count);
  });
}

// ---- what is asked of gradients

// The elements that lie before the first in memory count most: fetch_max keeps that one.
TUTTI_DEVICE void report_not_finite(const InspectJob& job, std::uint64_t index) {
  auto* findings = reinterpret_cast<GradientFindings*>(job.findings);
  fetch_max(&findings->not_finite, job.count - index);
}

inline constexpr std::uint32_t kInfinity = 0x7f800000;

// Zeros where there are less.
TUTTI_DEVICE Quad load_bits(std::uint64_t from, int count, bool alike) {
  if (alike && count == kGroupOfFour) return load<Quad>(from);
  Quad bits{};
  TUTTI_UNROLL
  for (int i = 0; i < kGroupOfFour; ++i)
    if (i < count) bits.words[i] = load<std::uint32_t>(from + sizeof(float) * i);
  return bits;
}

TUTTI_DEVICE void run_find_not_finite(const InspectJob& job, const Worker& worker) {
  const bool alike = job.values % sizeof(Quad) == 0;
  std::uint64_t first = job.count;
  std::uint64_t turn = worker.block;
  in_fours(job.count, turn, worker, [&](std::uint64_t at, int count) {
    const Quad bits = load_bits(job.values + at * sizeof(float), count, alike);
    TUTTI_UNROLL
    for (int i = kGroupOfFour; i-- > 0;)
      if ((bits.words[i] & 0x7fffffff) >= kInfinity && at + i < first) first = at + i;
  });
  if (first < job.count) report_not_finite(job, first);
}

// Limbs of a block of threads.
struct SharedLimbs {
  std::uint64_t limbs[reduce::kLimbs];
};

// Σ x² of one thread, exactly, in 128 bits for as long as exponents stay in a window of 32, as those of
// gradients mostly do. A square has 48 bits, and its exponent moves it by 64 at most.
//
//   x = m · 2^(e − 150), m < 2^24           sum_ = Σ m² << 2(e − lowest_)
class SquareAdder {
 public:
  TUTTI_DEVICE explicit SquareAdder(SharedLimbs& shared) : shared_(shared) {}
  // Of one that is finite, by its bits.
  TUTTI_DEVICE void add(std::uint32_t bits) {
    const std::uint32_t field = bits >> 23 & 0xff;
    const std::uint64_t mantissa = (bits & 0x7fffff) | (field != 0 ? 0x800000 : 0);
    if (mantissa == 0) return;
    const int exponent = field != 0 ? static_cast<int>(field) : 1;
    if (exponent < lowest_ || exponent > lowest_ + kWindow || added_ == kMost) {
      flush();
      lowest_ = exponent > kWindow / 2 ? exponent - kWindow / 2 : 1;
    }
    ++added_;
    const std::uint64_t square = mantissa * mantissa;
    const int shift = 2 * (exponent - lowest_);
    const std::uint64_t low = shift < 64 ? square << shift : 0;
    const std::uint64_t high = shift == 0 ? 0 : shift < 64 ? square >> (64 - shift) : square;
    sum_[0] += low;
    sum_[1] += high + (sum_[0] < low ? 1 : 0);
  }
  TUTTI_DEVICE void flush() {
    const int place = 2 * (lowest_ - 150) - reduce::kLowestBit;
    const int shift = place % reduce::kLimbBits;
    const auto carried = [&](std::uint64_t word) { return shift == 0 ? 0 : word >> (64 - shift); };
    const std::uint64_t words[3] = {sum_[0] << shift, sum_[1] << shift | carried(sum_[0]),
                                    carried(sum_[1])};
    TUTTI_UNROLL
    for (int i = 0; i < 5; ++i) {
      const std::uint64_t part = words[i / 2] >> reduce::kLimbBits * (i % 2) & 0xffffffff;
      if (part != 0) fetch_add(&shared_.limbs[place / reduce::kLimbBits + i], part);
    }
    sum_[0] = sum_[1] = 0;
    added_ = 0;
  }

 private:
  static constexpr int kWindow = 32;
  static constexpr int kMost = 1 << 15;  // squares of 112 bits, in 128

  SharedLimbs& shared_;
  int lowest_ = 1;  // exponent, biased
  int added_ = 0;
  std::uint64_t sum_[2] = {0, 0};
};

TUTTI_DEVICE void run_sum_squares(const InspectJob& job, SharedLimbs& shared,
                                  const Worker& worker) {
  for (int i = worker.index; i < reduce::kLimbs; i += worker.count) shared.limbs[i] = 0;
  worker.sync();
  SquareAdder adder(shared);
  std::uint64_t first = job.count;
  std::uint64_t turn = worker.block;
  const bool alike = job.values % sizeof(Quad) == 0;
  in_fours(job.count, turn, worker, [&](std::uint64_t at, int count) {
    const Quad bits = load_bits(job.values + at * sizeof(float), count, alike);
    TUTTI_UNROLL
    for (int i = 0; i < kGroupOfFour; ++i) {
      if ((bits.words[i] & kInfinity) != kInfinity)
        adder.add(bits.words[i]);
      else if (at + i < first)
        first = at + i;
    }
  });
  adder.flush();
  worker.sync();
  auto* findings = reinterpret_cast<GradientFindings*>(job.findings);
  for (int i = worker.index; i < reduce::kLimbs; i += worker.count)
    if (shared.limbs[i] != 0) fetch_add(&findings->limbs[i], shared.limbs[i]);
  if (first < job.count) report_not_finite(job, first);
}

}  // namespace tutti::cuda::kernels
