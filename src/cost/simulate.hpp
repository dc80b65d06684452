// cost/simulate.hpp - what collectives take on a site: their schedules, op by op, in virtual time.
//
//   auto ring = Simulation::of(site, {{.algorithm = Algorithm::ring, .ranks = 1024}});
//   ring->run(site, 1e6).seconds       as often as is wanted, with any number of bytes
//
// The schedules are those of the catalog: what is simulated is what runs. Ranks whose programs are
// alike are simulated once (docs/algorithms/simulator.md), which is exact.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/event_loop.hpp"
#include "schedule/catalog.hpp"
#include "tutti/types.hpp"

namespace tutti::cost {

// One collective. Ranks of its group sit `stride` seats apart, from seat `first_seat` on.
struct CollectiveJob {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  int ranks = 1;
  double bytes = 0;  // the whole array
  int root = 0;
  int shots = 2;  // of direct all_reduce
  ReductionOrder order = ReductionOrder::any;
  double start = 0;  // s
  int first_seat = 0;
  int stride = 1;
  std::vector<int> walk{};  // schedule::Request::walk; empty: as the site's hosts are
  const schedule::Catalog* catalog = &schedule::Catalog::built_in();
};

struct SimulateOptions {
  PlayOptions play;
  bool use_symmetry = true;
  std::size_t most_ops = 12'000'000;  // about 150 bytes each
};

struct Simulated {
  double seconds = 0;         // from the job's start to its last op's end
  double bytes_per_rank = 0;  // that the busiest rank sends
  int steps = 0;              // messages one after another on the longest way
  std::uint64_t messages = 0;
  int simulated_ranks = 0;  // fewer than there are where ranks are alike
};

// Schedules that are read, and can be run.
class Simulation {
 public:
  // Code::invalid_argument where a job's algorithm does not exist; Code::unsupported where it has
  // more ops than `most_ops`.
  static Result<Simulation> of(const Site& site, std::vector<CollectiveJob> jobs,
                               const SimulateOptions& options = {});
  // Any programs, one per rank in order. Switches come last, on seats beyond the site's.
  // Code::corrupt where they do not fit together.
  static Result<Simulation> of_programs(const Site& site,
                                        const std::vector<schedule::Program>& programs,
                                        const std::vector<int>& seats, double bytes,
                                        const SimulateOptions& options = {});

  // One answer per job; jobs share the site's wires and cores. The seats must be those that it was
  // made for, their costs may be others. Code::corrupt where programs wait for each other for ever.
  Result<std::vector<Simulated>> run(const Site& site) const;
  // The first job's, with so many bytes.
  Simulated run(const Site& site, double bytes) const;

  std::size_t ops() const { return graph_.nodes().size(); }

 private:
  Status add(const Site& site, std::uint32_t index);
  void note_traffic(std::uint32_t first_program, int ranks, double weight, std::uint32_t index);

  std::vector<CollectiveJob> jobs_;
  SimulateOptions options_;
  OpGraph graph_;
  Standing standing_;
  int modulus_ = 0;
  std::vector<Simulated>
      about_;  // what does not depend on bytes or costs; bytes_per_rank as a share
};

// Reads and runs them.
Result<std::vector<Simulated>> simulate(const Site& site, const std::vector<CollectiveJob>& jobs,
                                        const SimulateOptions& options = {});

}  // namespace tutti::cost
