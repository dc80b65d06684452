// bench/fold.cpp - how fast are the folds and copies, beside the plainest loops that do the same?
//
//   bench_fold --benchmark_filter=fold_to      or: small, fold/sum/f32/avx512, copy
//
// Every row times its subject and its yardstick in turn, on the same memory, with the same number
// of threads (each pinned to a core, with buffers of its own), and prints their ratio, by medians:
//
//   share 1.00   as fast as the yardstick; 0.90 takes 1/0.90 of its time. Noise of the machine
//                meets both alike, so compare shares rather than times.
//
// row      subject                                 yardstick
// fold     k operands into the first               a += b over the same arrays in pairs: reads as
//                                                  much, and writes k/2 arrays where a fold writes
//                                                  one. Memory is bound by reading: long rows
//                                                  should come near 1
// fold_to  n operands, result into all of them     the same as one loop over pointers
// fresh    2 operands into n other places, by      the same by ordinary stores: above 1,
//          streaming stores                        streaming pays
// copy     by streaming stores                     memcpy: above 1, streaming pays
// small    one element, 2 operands                 nothing: look at the time
#include <benchmark/benchmark.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "reduce/kernels.hpp"

namespace {

using namespace tutti;
using namespace tutti::reduce;

// Page-aligned and touched. Every byte 0x3c is a number near one in all the float types, so nothing
// overflows or is slow.
class Buffers {
 public:
  Buffers(std::size_t count, std::size_t bytes) : bytes_(bytes) {
    for (std::size_t i = 0; i < count; ++i) {
      void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (at == MAP_FAILED) std::abort();
      std::memset(at, 0x3c, bytes);
      data_.push_back(at);
    }
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() {
    for (void* at : data_) munmap(at, bytes_);
  }
  void* operator[](std::size_t i) const { return data_[i]; }
  float* floats(std::size_t i) const { return static_cast<float*>(data_[i]); }
  std::span<void* const> places(std::size_t from, std::size_t count) const {
    return std::span<void* const>(data_).subspan(from, count);
  }
  std::vector<Operand> operands(std::size_t count) const {
    std::vector<Operand> list;
    for (std::size_t i = 0; i < count; ++i) list.push_back({data_[i], true});
    return list;
  }

 private:
  std::size_t bytes_;
  std::vector<void*> data_;
};

#if defined(__x86_64__)
#define BEST_TARGET [[gnu::target_clones("avx512f", "avx2", "default"), gnu::optimize("O3")]]
#else
#define BEST_TARGET
#endif

BEST_TARGET void add(float* __restrict a, const float* __restrict b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) a[i] += b[i];
}

// The in-place all_reduce of n arrays as one loop over lines.
using Line = float __attribute__((vector_size(64), aligned(4), may_alias));
BEST_TARGET void add_into_all(void* const* arrays, std::size_t n, std::size_t count) {
  for (std::size_t i = 0; i < count / 16; ++i) {
    Line sum = static_cast<const Line*>(arrays[0])[i];
    for (std::size_t j = 1; j < n; ++j) sum += static_cast<const Line*>(arrays[j])[i];
    for (std::size_t j = 0; j < n; ++j) static_cast<Line*>(arrays[j])[i] = sum;
  }
}
BEST_TARGET void add_into_both(float* a, float* b, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 16) {
    const Line sum = *reinterpret_cast<Line*>(a + i) + *reinterpret_cast<Line*>(b + i);
    *reinterpret_cast<Line*>(a + i) = sum;
    *reinterpret_cast<Line*>(b + i) = sum;
  }
}

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  sched_setaffinity(0, sizeof set, &set);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

template <class F>
double seconds_of(F&& function, int times) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) {
    function();
    benchmark::ClobberMemory();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / times;
}

template <class Yardstick, class Subject>
void race(benchmark::State& state, Yardstick&& yardstick, Subject&& subject) {
  static std::barrier two(2);  // so that both threads race in the same thing
  const auto meet = [&] {
    if (state.threads() == 2) two.arrive_and_wait();
  };
  pin_to(state.thread_index());
  const int times = static_cast<int>(std::max<std::int64_t>(1, (1 << 20) / state.range(0)));
  std::vector<double> theirs;
  std::vector<double> ours;
  for (auto _ : state) {
    meet();
    yardstick();  // whatever ran before, both find the memory as a yardstick leaves it
    theirs.push_back(seconds_of(yardstick, times));
    meet();
    ours.push_back(seconds_of(subject, times));
    state.SetIterationTime(ours.back());
  }
  using Counter = benchmark::Counter;
  state.counters["us"] = Counter(1e6 * median(ours), Counter::kAvgThreads);
  state.counters["share"] = Counter(median(theirs) / median(ours), Counter::kAvgThreads);
}

void fold_k(benchmark::State& state, SimdLevel level, Dtype dtype, ReduceOp op) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto k = static_cast<std::size_t>(state.range(1));
  const Buffers buffers(k, bytes);
  const auto operands = buffers.operands(k);
  const Folding folding{dtype, op, true, static_cast<int>(k)};
  race(
      state,
      [&] {  // over all the arrays, in pairs: what is in which cache is the same for both
        for (std::size_t i = 0; i + 1 < k; i += 2)
          add(buffers.floats(i), buffers.floats(i + 1), bytes / sizeof(float));
      },
      [&] { fold_at(level, folding, buffers[0], operands, bytes / size_of(dtype)); });
}

void fold_to_all(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto n = static_cast<std::size_t>(state.range(1));
  const Buffers buffers(n, bytes);
  const auto operands = buffers.operands(n);
  const std::size_t count = bytes / sizeof(float);
  race(
      state,
      [&] {
        if (n == 2)
          add_into_both(buffers.floats(0), buffers.floats(1), count);
        else
          add_into_all(buffers.places(0, n).data(), n, count);
      },
      [&] {
        fold_to({Dtype::f32, ReduceOp::sum}, buffers.places(0, n), operands, count);
      });
}

void fold_to_fresh(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto n = static_cast<std::size_t>(state.range(1));
  const Buffers buffers(2 + n, bytes);
  const auto operands = buffers.operands(2);
  const auto by = [&](Stores stores) {
    fold_to({Dtype::f32, ReduceOp::sum}, buffers.places(2, n), operands, bytes / sizeof(float),
            stores);
  };
  race(
      state, [&] { by(Stores::cached); }, [&] { by(Stores::streaming); });
}

void copy_streaming(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const Buffers buffers(2, bytes);
  race(
      state, [&] { std::memcpy(buffers[0], buffers[1], bytes); },
      [&] { copy(buffers[0], buffers[1], bytes, Stores::streaming); });
}

void small(benchmark::State& state, Dtype dtype, ReduceOp op, std::size_t places) {
  alignas(64) char data[2][64] = {};
  const Operand operands[] = {{data[0], true}, {data[1], true}};
  void* const destinations[] = {data[0], data[1]};
  const Folding folding{dtype, op, true, 2};
  for (auto _ : state) {
    if (places == 1)
      fold(folding, data[0], operands, 1);
    else
      fold_to(folding, destinations, operands, 1);
    benchmark::ClobberMemory();
  }
}

constexpr std::int64_t kKi = 1 << 10;
constexpr std::int64_t kMi = 1 << 20;

void add_folds(SimdLevel level, const char* level_word) {
  if (!can_run(level)) return;
  const std::pair<Dtype, ReduceOp> pairs[] = {
      {Dtype::f32, ReduceOp::sum}, {Dtype::f64, ReduceOp::sum},    {Dtype::bf16, ReduceOp::sum},
      {Dtype::f16, ReduceOp::sum}, {Dtype::f8e4m3, ReduceOp::sum}, {Dtype::i32, ReduceOp::sum},
      {Dtype::f32, ReduceOp::max}, {Dtype::f32, ReduceOp::avg}};
  for (const auto& [dtype, op] : pairs) {
    const std::string name = "fold/" + std::string(to_string(op)) + "/" +
                             std::string(to_string(dtype)) + "/" + level_word;
    auto* bench = benchmark::RegisterBenchmark(
        name.c_str(), [=, d = dtype, o = op](benchmark::State& s) { fold_k(s, level, d, o); });
    bench->ArgNames({"bytes", "k"})->UseManualTime();
    bench->ArgsProduct({{8 * kKi, 256 * kKi, 64 * kMi}, {2, 4, 8, 16}});
  }
}

void add_races() {
  for (const int threads : {1, 2}) {
    const auto row = [&](const char* name, void (*function)(benchmark::State&)) {
      return benchmark::RegisterBenchmark(name, function)->Threads(threads)->UseManualTime();
    };
    const std::vector<std::int64_t> sizes = {64 * kKi, 256 * kKi, kMi,     4 * kMi,
                                             16 * kMi, 32 * kMi,  64 * kMi};
    row("fold_to", fold_to_all)->ArgNames({"bytes", "n"})->ArgsProduct({sizes, {2, 4, 8, 16}});
    row("fresh", fold_to_fresh)->ArgNames({"bytes", "n"})->ArgsProduct({sizes, {1, 2, 8}});
    row("copy", copy_streaming)->ArgName("bytes")->ArgsProduct({sizes});
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::RegisterBenchmark("small/sum/f32", small, Dtype::f32, ReduceOp::sum, 1);
  benchmark::RegisterBenchmark("small/sum/f32/to_both", small, Dtype::f32, ReduceOp::sum, 2);
  benchmark::RegisterBenchmark("small/avg/f64", small, Dtype::f64, ReduceOp::avg, 1);
  benchmark::RegisterBenchmark("small/sum/bf16", small, Dtype::bf16, ReduceOp::sum, 1);
  add_races();
  add_folds(SimdLevel::avx512, "avx512");
  add_folds(SimdLevel::avx2, "avx2");
  add_folds(SimdLevel::plain, "plain");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
