// What does one event of a trace cost, and one of the flight recorder? bench_trace_event
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "trace/recorder.hpp"
#include "trace/tracer.hpp"

namespace {

// A trace in a folder of its own, which goes with it.
struct Traced {
  Traced() {
    char name[] = "/tmp/tutti-trace-event-XXXXXX";
    folder = ::mkdtemp(name);
    auto opened = tutti::trace::Tracer::open({folder, 0, 1, "bench"});
    if (opened.ok()) tracer = *std::move(opened);
  }
  ~Traced() {
    tracer.reset();
    std::filesystem::remove_all(folder);
  }
  std::string folder;
  std::unique_ptr<tutti::trace::Tracer> tracer;
};

void wait_entry(benchmark::State& state) {
  Traced traced;
  for (auto _ : state) traced.tracer->wait(1, 2, 3, 4);
}
BENCHMARK(wait_entry)->Iterations(200'000);

void named_collective(benchmark::State& state) {
  Traced traced;
  for (auto _ : state) traced.tracer->collective(tutti::trace::TraceEntry(), "bucket 12");
}
BENCHMARK(named_collective)->Iterations(200'000);

void span_with_its_clock(benchmark::State& state) {
  Traced traced;
  for (auto _ : state) tutti::trace::Span span(traced.tracer.get(), "forward");
}
BENCHMARK(span_with_its_clock)->Iterations(200'000);

void span_without_a_trace(benchmark::State& state) {
  for (auto _ : state) {
    tutti::trace::Sink* none = nullptr;
    benchmark::DoNotOptimize(none);
    tutti::trace::Span span(none, "forward");
  }
}
BENCHMARK(span_without_a_trace);

// As every collective that is over at once.
void recorder_span(benchmark::State& state) {
  tutti::trace::Recorder recorder(4096, tutti::steady_clock());
  tutti::trace::Tickets tickets;
  const tutti::trace::Record record;
  for (auto _ : state) recorder.note_span(tickets, record, 1, 2);
}
BENCHMARK(recorder_span);

// As every other one, when it begins and when it ends.
void recorder_note(benchmark::State& state) {
  tutti::trace::Recorder recorder(4096, tutti::steady_clock());
  tutti::trace::Tickets tickets;
  const tutti::trace::Record record;
  for (auto _ : state) recorder.note(tickets, record);
}
BENCHMARK(recorder_note);

}  // namespace

BENCHMARK_MAIN();
