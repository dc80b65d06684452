// all_reduce by a switch that folds beside a ring and what the tuner takes, interleaved, in one job.
//
// Each of the ranks runs it, TUTTI_SWITCH=1 set, with a `tutti switch` beside them (bench/switch does that for
// hosts that it emulates). Times are the slowest rank's, medians of the rounds. The bound is what bytes alone
// allow: a ring sends 2(n-1)/n of them, a rank with a switch sends them once.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

using Clock = std::chrono::steady_clock;

struct Contestant {
  tutti::Algorithm algorithm;
  std::vector<double> seconds;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double time_once(tutti::Group& group, std::vector<float>& values, tutti::Algorithm algorithm) {
  tutti::CallOptions options;
  options.algorithm = algorithm;
  if (!group.barrier().ok()) std::exit(3);
  const auto start = Clock::now();
  const auto status = group.all_reduce(tutti::Buffer::of(values), tutti::ReduceOp::sum, options);
  if (!status.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", group.rank(), status.to_string().c_str());
    std::exit(3);
  }
  double took = std::chrono::duration<double>(Clock::now() - start).count();
  if (!group.all_reduce(tutti::Buffer{&took, 1, tutti::Dtype::f64}, tutti::ReduceOp::max).ok())
    std::exit(3);
  return took;
}

void compare(tutti::Group& group, std::size_t bytes, int rounds) {
  std::vector<Contestant> all = {{tutti::Algorithm::ring, {}},
                                 {tutti::Algorithm::automatic, {}},
                                 {tutti::Algorithm::in_network, {}}};
  std::vector<float> values(bytes / sizeof(float));
  for (int round = 0; round <= rounds; ++round)
    for (Contestant& each : all) {
      const double took = time_once(group, values, each.algorithm);
      if (round > 0) each.seconds.push_back(took);  // the first warms up
    }
  if (group.rank() != 0) return;
  const double n = group.size();
  const double ring = median(all[0].seconds);
  const double chosen = median(all[1].seconds);
  const double by_switch = median(all[2].seconds);
  const auto choice = group.predict(tutti::Collective::all_reduce, bytes);
  std::printf("%10zu %10.2f %10.2f %10.2f %8.2f %8.2f   %s\n", bytes, ring * 1e3, by_switch * 1e3,
              chosen * 1e3, ring / by_switch, 2 * (n - 1) / n,
              choice.ok() ? std::string(to_string(choice->algorithm)).c_str() : "?");
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 11;
  auto group = tutti::Group::from_environment();
  if (!group.ok()) return std::fprintf(stderr, "%s\n", group.status().to_string().c_str()), 3;
  if ((*group)->rank() == 0)
    std::printf("%10s %10s %10s %10s %8s %8s   %s\n", "bytes", "ring ms", "switch ms", "tuned ms",
                "ratio", "bound", "tuner's choice");
  for (const std::size_t bytes : {64UL << 10, 256UL << 10, 1UL << 20, 4UL << 20, 16UL << 20})
    compare(**group, bytes, rounds);
}
