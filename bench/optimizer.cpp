// bench/optimizer.cpp - how fast are the update's kernels, beside the plainest loops that do the same
// and beside memcpy?
//
//   bench_optimizer --benchmark_filter=adamw      or: exact_norm/avx512
//
// Every row times its subject, the plain loop and a memcpy in turn, on the same memory, and prints
// medians:
//
//   GBps     bytes read and written per second: 28 an element for adamw, 20 for sgd, 6 for narrow and
//            widen, 4 for exact_norm and first_not_finite
//   loop     time of the plain loop / time of the subject: above 1, the kernel is faster
//   memcpy   GBps / the GBps of a memcpy that reads and writes as much: near 1, memory is the limit
//
// The loops are compiled for the best instruction set that the processor has, and may be vectorised.
// exact_norm adds its sums into an ExactSum; its loop is a plain sum in f64.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "reduce/half.hpp"
#include "train/exact_sum.hpp"
#include "train/kernel_table.hpp"

namespace {

using namespace tutti;
using namespace tutti::train;

#if defined(__x86_64__)
#define BEST_TARGET [[gnu::target_clones("avx512f", "avx2", "default"), gnu::optimize("O3")]]
#else
#define BEST_TARGET
#endif

BEST_TARGET void adamw_loop(AdamWFactors f, float* __restrict w, const float* __restrict g,
                            float* __restrict m, float* __restrict v, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float scaled = g[i] * f.grad_scale;
    m[i] = m[i] * f.beta1 + scaled * f.one_minus_beta1;
    v[i] = v[i] * f.beta2 + (scaled * scaled) * f.one_minus_beta2;
    w[i] = w[i] * f.keep -
           f.step_size * (m[i] / (__builtin_sqrtf(v[i]) / f.root_correction2 + f.epsilon));
  }
}
BEST_TARGET void sgd_loop(SgdFactors f, float* __restrict w, const float* __restrict g,
                          float* __restrict b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    b[i] = b[i] * f.momentum + (g[i] * f.grad_scale + w[i] * f.decay);
    w[i] -= f.lr * b[i];
  }
}
BEST_TARGET void narrow_loop(const float* __restrict from, std::uint16_t* __restrict to,
                             std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = reduce::f32_to_bf16(from[i]);
}
BEST_TARGET void widen_loop(const std::uint16_t* __restrict from, float* __restrict to,
                            std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = reduce::bf16_to_f32(from[i]);
}
BEST_TARGET double squares_loop(const float* values, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += double{values[i]} * values[i];
  return sum;
}
BEST_TARGET bool finite_loop(const float* values, std::size_t count) {
  bool finite = true;
  for (std::size_t i = 0; i < count; ++i) finite &= std::isfinite(values[i]);
  return finite;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_of(const std::function<void()>& function, int times) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) {
    function();
    benchmark::ClobberMemory();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / times;
}

// What one row works on: count elements of everything that any kernel wants.
struct Arrays {
  std::vector<float> w, g, m, v;
  std::vector<std::uint16_t> half;
  explicit Arrays(std::size_t count)
      : w(count, 1.0F), g(count), m(count, 0.1F), v(count, 0.2F), half(count, 0x3f80) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& x : g) x = normal(random);
  }
};

struct Row {
  const char* name;
  std::size_t bytes;  // an element, read and written
  std::function<void(const UpdateKernels&, Arrays&)> subject;
  std::function<void(const UpdateKernels&, Arrays&)> loop;
};

void run(benchmark::State& state, const Row& row, reduce::SimdLevel level) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const UpdateKernels& kernels = update_kernels(level);
  Arrays arrays(count);
  // Reads half of the bytes and writes half of them.
  std::vector<char> from(count * row.bytes / 2, 1);
  std::vector<char> to(from.size());
  const int times = std::max(1, (1 << 18) / static_cast<int>(count));
  std::vector<double> subject, loop, copy;
  for (auto _ : state) {
    copy.push_back(seconds_of([&] { std::memcpy(to.data(), from.data(), from.size()); }, times));
    row.loop(kernels, arrays);  // both find the caches as the same arrays leave them
    loop.push_back(seconds_of([&] { row.loop(kernels, arrays); }, times));
    subject.push_back(seconds_of([&] { row.subject(kernels, arrays); }, times));
    state.SetIterationTime(subject.back() * times);
  }
  const double bytes = static_cast<double>(count * row.bytes);
  state.counters["GBps"] = bytes / median(subject) * 1e-9;
  state.counters["loop"] = median(loop) / median(subject);
  state.counters["memcpy"] = median(copy) / median(subject);
}

const AdamWFactors kAdamW{0.5F, 0.9999F, 0.9F, 0.1F, 0.999F, 0.001F, 1e-3F, 0.5F, 1e-8F};
const SgdFactors kSgd{0.5F, 0.01F, 0.9F, 1e-3F, false};

void add_norm(const UpdateKernels& kernels, Arrays& a) {
  ExactSum sum;
  for (std::size_t at = 0; at < a.g.size(); at += kMostSquares) {
    double parts[2];
    if (!kernels.square_sums(a.g.data() + at, kMostSquares, parts)) {
      add_squares(a.g.data() + at, kMostSquares, sum);
      continue;
    }
    for (const double part : parts) sum.add(part);
  }
  benchmark::DoNotOptimize(sum);
}

std::vector<Row> rows() {
  using K = UpdateKernels;
  using A = Arrays;
  return {
      {"adamw", 28,
       [](const K& k, A& a) {
         k.adamw(kAdamW, a.w.data(), a.g.data(), a.m.data(), a.v.data(), a.w.size());
       },
       [](const K&, A& a) {
         adamw_loop(kAdamW, a.w.data(), a.g.data(), a.m.data(), a.v.data(), a.w.size());
       }},
      {"sgd", 20,
       [](const K& k, A& a) { k.sgd(kSgd, a.w.data(), a.g.data(), a.m.data(), a.w.size()); },
       [](const K&, A& a) { sgd_loop(kSgd, a.w.data(), a.g.data(), a.m.data(), a.w.size()); }},
      {"narrow", 6,
       [](const K& k, A& a) { k.narrow(Dtype::bf16, a.w.data(), a.half.data(), a.w.size()); },
       [](const K&, A& a) { narrow_loop(a.w.data(), a.half.data(), a.w.size()); }},
      {"widen", 6,
       [](const K& k, A& a) { k.widen(Dtype::bf16, a.half.data(), a.w.data(), a.w.size()); },
       [](const K&, A& a) { widen_loop(a.half.data(), a.w.data(), a.w.size()); }},
      {"exact_norm", 4, add_norm,
       [](const K&, A& a) { benchmark::DoNotOptimize(squares_loop(a.g.data(), a.g.size())); }},
      {"first_not_finite", 4,
       [](const K& k, A& a) {
         benchmark::DoNotOptimize(k.first_not_finite(a.g.data(), a.g.size()));
       },
       [](const K&, A& a) { benchmark::DoNotOptimize(finite_loop(a.g.data(), a.g.size())); }},
  };
}

void add_rows(reduce::SimdLevel level, const char* word) {
  if (!reduce::can_run(level)) return;
  for (const Row& row : rows())
    benchmark::RegisterBenchmark((std::string(row.name) + "/" + word).c_str(),
                                 [=](benchmark::State& state) { run(state, row, level); })
        ->ArgName("elements")
        ->UseManualTime()
        ->Arg(8 << 10)
        ->Arg(4 << 20);
}

}  // namespace

int main(int argc, char** argv) {
  add_rows(reduce::SimdLevel::avx512, "avx512");
  add_rows(reduce::SimdLevel::avx2, "avx2");
  add_rows(reduce::SimdLevel::plain, "plain");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
