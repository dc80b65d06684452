// Every collective once around: each is run at a few sizes, every element of every result is
// checked, and rank 0 prints a table in the manner of nccl-tests, with the algorithm that was
// chosen. Ends with an error if a single element was wrong.
//
//   tutti run -n 4 build/bin/examples/tour
#include <chrono>
#include <cstring>
#include <functional>
#include <sstream>

#include "example.hpp"

using namespace example;
using tutti::Buffer;
using tutti::Collective;
using tutti::ConstBuffer;
using tutti::Group;
using tutti::ReduceOp;

namespace {

constexpr int kRoot = 0;

// Small whole numbers, so that sums are exact in any order.
float value(int rank, std::size_t i) { return static_cast<float>((rank * 7 + i) % 13); }

// Sum of the first `ranks` ranks' values.
float sum(int ranks, std::size_t i) {
  float total = 0;
  for (int r = 0; r < ranks; ++r) total += value(r, i);
  return total;
}

// What one rank expects, given its rank, the group's size and the length of one part.
struct Place {
  int rank;
  int ranks;
  std::size_t part;
};

struct Stop {
  Collective collective;
  bool whole_input, whole_output;  // one part for each rank, rather than one part in all
  std::function<tutti::Status(Group&, ConstBuffer, Buffer)> run;
  std::function<float(Place, std::size_t i)> expected;
  double bus_factor;  // bus bandwidth over S / t
};

std::vector<Stop> stops(int ranks) {
  const double share = (ranks - 1.0) / ranks;
  const auto zero_unless = [](bool here, float wanted) { return here ? wanted : 0.0f; };
  return {
      {Collective::broadcast, false, false,
       [](Group& g, ConstBuffer in, Buffer out) {
         if (g.rank() == kRoot) std::memcpy(out.data, in.data, in.bytes());
         return g.broadcast(out, kRoot);
       },
       [](Place, std::size_t i) { return value(kRoot, i); }, 1},
      {Collective::reduce, false, false,
       [](Group& g, ConstBuffer in, Buffer out) { return g.reduce(in, out, ReduceOp::sum, kRoot); },
       [=](Place p, std::size_t i) { return zero_unless(p.rank == kRoot, sum(p.ranks, i)); }, 1},
      {Collective::all_reduce, false, false,
       [](Group& g, ConstBuffer in, Buffer out) { return g.all_reduce(in, out, ReduceOp::sum); },
       [](Place p, std::size_t i) { return sum(p.ranks, i); }, 2 * share},
      {Collective::gather, false, true,
       [](Group& g, ConstBuffer in, Buffer out) { return g.gather(in, out, kRoot); },
       [=](Place p, std::size_t i) {
         return zero_unless(p.rank == kRoot, value(static_cast<int>(i / p.part), i % p.part));
       },
       share},
      {Collective::all_gather, false, true,
       [](Group& g, ConstBuffer in, Buffer out) { return g.all_gather(in, out); },
       [](Place p, std::size_t i) { return value(static_cast<int>(i / p.part), i % p.part); },
       share},
      {Collective::scatter, true, false,
       [](Group& g, ConstBuffer in, Buffer out) { return g.scatter(in, out, kRoot); },
       [](Place p, std::size_t i) { return value(kRoot, p.rank * p.part + i); }, share},
      {Collective::reduce_scatter, true, false,
       [](Group& g, ConstBuffer in, Buffer out) {
         return g.reduce_scatter(in, out, ReduceOp::sum);
       },
       [](Place p, std::size_t i) { return sum(p.ranks, p.rank * p.part + i); }, share},
      {Collective::all_to_all, true, true,
       [](Group& g, ConstBuffer in, Buffer out) { return g.all_to_all(in, out); },
       [](Place p, std::size_t i) {
         return value(static_cast<int>(i / p.part), p.rank * p.part + i % p.part);
       },
       share},
      {Collective::scan, false, false,
       [](Group& g, ConstBuffer in, Buffer out) { return g.scan(in, out, ReduceOp::sum); },
       [](Place p, std::size_t i) { return sum(p.rank + 1, i); }, 1},
      {Collective::exclusive_scan, false, false,
       [](Group& g, ConstBuffer in, Buffer out) {
         return g.exclusive_scan(in, out, ReduceOp::sum);
       },
       [](Place p, std::size_t i) { return sum(p.rank, i); }, 1},
      {Collective::barrier, false, false, [](Group& g, ConstBuffer, Buffer) { return g.barrier(); },
       nullptr, 0},
  };
}

struct Measured {
  double time_s;       // of the slowest rank, mean over the rounds
  std::int64_t wrong;  // elements, over all ranks
};

// Runs one stop on arrays of `count` elements in all.
Measured visit(Group& group, const Stop& stop, std::size_t count, int rounds) {
  const int ranks = group.size();
  const bool cut = stop.whole_input || stop.whole_output;
  const Place place{group.rank(), ranks, cut ? count / ranks : count};
  std::vector<float> input(stop.whole_input ? place.part * ranks : place.part);
  std::vector<float> output(stop.whole_output ? place.part * ranks : place.part, 0.0f);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = value(place.rank, i);

  const auto once = [&] { check(stop.run(group, ConstBuffer::of(input), Buffer::of(output))); };
  once();  // the first call pays for what later ones find ready
  std::int64_t wrong = 0;
  for (std::size_t i = 0; stop.expected && i < output.size(); ++i)
    wrong += output[i] != stop.expected(place, i) ? 1 : 0;

  check(group.barrier());
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < rounds; ++round) once();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;

  double time_s = took.count() / rounds;
  check(group.all_reduce(Buffer::of(&time_s, 1), ReduceOp::max));
  check(group.all_reduce(Buffer::of(&wrong, 1), ReduceOp::sum));
  return {time_s, wrong};
}

void print_row(Group& group, const Stop& stop, std::size_t count, const Measured& measured) {
  const double bytes = static_cast<double>(count * sizeof(float));
  const double algbw = bytes / measured.time_s / 1e9;
  const bool reduces = tutti::has_reduction(stop.collective);
  const auto prediction = value_of(group.predict(stop.collective, count * sizeof(float)));
  say("%-15s %10.0f %9zu  %-5s %-5s %10.1f %8.2f %8.2f %6lld  %s",
      std::string(to_string(stop.collective)).c_str(), bytes, count, "f32", reduces ? "sum" : "-",
      measured.time_s * 1e6, algbw, algbw * stop.bus_factor, static_cast<long long>(measured.wrong),
      std::string(to_string(prediction.algorithm)).c_str());
}

}  // namespace

int main() {
  auto group = join();
  const bool speaks = group->rank() == 0;
  if (speaks) {
    std::istringstream description(group->describe());
    for (std::string line; std::getline(description, line);) say("## %s", line.c_str());
    say("%-15s %10s %9s  %-5s %-5s %10s %8s %8s %6s  %s", "# collective", "size (B)", "count",
        "type", "redop", "time (us)", "algbw", "busbw", "wrong", "algorithm");
  }
  const std::size_t ranks = static_cast<std::size_t>(group->size());
  std::int64_t wrong = 0;
  for (const Stop& stop : stops(group->size())) {
    for (std::size_t target : {std::size_t{64}, std::size_t{16} << 10, std::size_t{1} << 20}) {
      // A whole number of parts; a barrier has no size.
      const bool sized = stop.expected != nullptr;
      const std::size_t count = sized ? target / sizeof(float) / ranks * ranks : 0;
      const auto measured = visit(*group, stop, count, target < 1 << 20 ? 100 : 20);
      if (speaks) print_row(*group, stop, count, measured);
      wrong += measured.wrong;
      if (!sized) break;
    }
  }
  if (speaks)
    say("# %lld elements wrong; algbw and busbw in GB/s (1e9 bytes)",
        static_cast<long long>(wrong));
  return wrong == 0 ? 0 : 1;
}
