// bench/fold.cpp - how fast is the k-way fold, beside a plain a += b that the compiler vectorised?
//
//   bench_fold --benchmark_filter=sum/f32
//
// Bytes are those of all operands read, so a fold of k arrays of S bytes counts k·S. The plain loop
// counts two. Both write over their first operand. Fast folds are limited by memory: compare within
// one size.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "reduce/kernels.hpp"

namespace {

using namespace tutti;
using namespace tutti::reduce;

void plain_add(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0)) / sizeof(float);
  std::vector<float> a(count, 1.0F);
  const std::vector<float> b(count, 1e-3F);
  for (auto _ : state) {
    for (std::size_t i = 0; i < count; ++i) a[i] += b[i];
    benchmark::DoNotOptimize(a.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * state.range(0));
}

// Every byte 0x3c is a number near one in all the float types, so nothing overflows or is slow.
void fold_k(benchmark::State& state, Level level, Dtype dtype, ReduceOp op) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto k = static_cast<std::size_t>(state.range(1));
  std::vector<std::vector<char>> arrays(k, std::vector<char>(bytes, 0x3c));
  std::vector<Operand> operands;
  for (const auto& array : arrays) operands.push_back({array.data(), true});
  const Folding folding{dtype, op, true, static_cast<int>(k)};
  for (auto _ : state) {
    fold_at(level, folding, arrays[0].data(), operands, bytes / size_of(dtype));
    benchmark::DoNotOptimize(arrays[0].data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(k * bytes));
}

void add_folds(Level level, const char* level_word) {
  if (!can_run(level)) return;
  const std::pair<Dtype, ReduceOp> pairs[] = {
      {Dtype::f32, ReduceOp::sum},    {Dtype::f64, ReduceOp::sum}, {Dtype::bf16, ReduceOp::sum},
      {Dtype::f16, ReduceOp::sum},    {Dtype::f8e4m3, ReduceOp::sum}, {Dtype::i32, ReduceOp::sum},
      {Dtype::f32, ReduceOp::max},    {Dtype::f32, ReduceOp::avg}};
  for (const auto& [dtype, op] : pairs) {
    const std::string name =
        std::string(to_string(op)) + "/" + std::string(to_string(dtype)) + "/" + level_word;
    auto* bench = benchmark::RegisterBenchmark(
        name.c_str(), [=, d = dtype, o = op](benchmark::State& s) { fold_k(s, level, d, o); });
    bench->ArgNames({"bytes", "k"});
    for (const int bytes : {64, 8 << 10, 256 << 10, 16 << 20})
      for (const int k : {2, 4, 8}) bench->Args({bytes, k});
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::RegisterBenchmark("plain_add/f32", plain_add)
      ->ArgName("bytes")->Arg(64)->Arg(8 << 10)->Arg(256 << 10)->Arg(16 << 20);
  add_folds(Level::plain, "plain");
  add_folds(Level::avx2, "avx2");
  add_folds(Level::avx512, "avx512");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
