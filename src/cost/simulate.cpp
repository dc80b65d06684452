#include "cost/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.hpp"
#include "cost/symmetry.hpp"
#include "topology/topology.hpp"

namespace tutti::cost {
namespace {

using schedule::Program;

std::vector<int> seats_of(const CollectiveJob& job) {
  std::vector<int> seats;
  for (int rank = 0; rank < job.ranks; ++rank) seats.push_back(job.first_seat + rank * job.stride);
  return seats;
}

// A switch that folds has its seat beyond the last.
void seat_switch(const Site& site, std::vector<int>& seats) { seats.push_back(site.seats()); }

Status too_many(std::size_t most) {
  return {Code::unsupported,
          fmt::format("this schedule has more than {} ops, and no symmetry to use", most)};
}

}  // namespace

// What is told about a job beside its times. Switches come behind its ranks.
void Simulation::note_traffic(std::uint32_t first_program, int ranks, double weight,
                              std::uint32_t index) {
  Simulated& about = about_[index];
  std::vector<double> sent(static_cast<std::size_t>(ranks), 0);
  double messages = 0;
  for (const Node& node : graph_.nodes()) {
    const std::uint32_t rank = node.rank - first_program;  // wraps for those before
    if (node.does != Node::Does::sends || rank >= sent.size()) continue;
    sent[rank] += node.share;
    messages += weight;
  }
  about.bytes_per_rank = *std::max_element(sent.begin(), sent.end());
  about.messages = static_cast<std::uint64_t>(messages);
  about.simulated_ranks = ranks;
}

Status Simulation::add(const Site& site, std::uint32_t index) {
  const CollectiveJob& job = jobs_[index];
  std::vector<int> seats = seats_of(job);
  std::vector<int> host_of;
  for (const int seat : seats) host_of.push_back(site.host(seat));
  schedule::Request request;
  request.collective = job.collective;
  request.size = job.ranks;
  request.root = job.root;
  request.shots = job.shots;
  request.order = job.order;
  request.host_of = host_of;
  const std::vector<int> walk = job.walk.empty() ? topology::walk_of(host_of) : job.walk;
  request.walk = walk;
  // Says what is wrong with a request, too.
  if (auto first = job.catalog->build(job.algorithm, request); !first.ok()) return first.status();
  const schedule::Entry& entry = *job.catalog->find(job.collective, job.algorithm);
  const int switches = entry.programs_of(job.ranks) - job.ranks;
  const bool alone =
      jobs_.size() == 1 && switches == 0 && options_.use_symmetry && options_.play.jitter == 0;
  modulus_ = alone ? find_modulus(site, entry, request, seats) : 0;
  const int ranks = modulus_ > 0 ? modulus_ : job.ranks;
  if (switches > 0) seat_switch(site, seats);
  const std::uint32_t first_program = graph_.programs();
  for (request.rank = 0; request.rank < ranks + switches; ++request.rank) {
    graph_.add(sorted_receives(entry.build(request)), site, seats, index);
    if (graph_.nodes().size() > options_.most_ops) return too_many(options_.most_ops);
  }
  note_traffic(first_program, ranks, static_cast<double>(job.ranks) / ranks, index);
  if (modulus_ > 0) standing_ = standing_for(site, seats, modulus_);
  return {};
}

Result<Simulation> Simulation::of(const Site& site, std::vector<CollectiveJob> jobs,
                                  const SimulateOptions& options) {
  Simulation made;
  made.jobs_ = std::move(jobs);
  made.options_ = options;
  made.about_.resize(made.jobs_.size());
  for (std::uint32_t index = 0; index < made.jobs_.size(); ++index)
    if (Status status = made.add(site, index); !status.ok()) return status;
  if (made.modulus_ == 0) made.standing_ = Standing::everybody(site);
  if (Status status = made.graph_.finish(site, made.modulus_); !status.ok()) return status;
  return made;
}

Result<Simulation> Simulation::of_programs(const Site& site, const std::vector<Program>& programs,
                                           const std::vector<int>& seats, double bytes,
                                           const SimulateOptions& options) {
  Simulation made;
  made.jobs_ = {{.ranks = static_cast<int>(programs.size()), .bytes = bytes}};
  made.options_ = options;
  made.about_.resize(1);
  made.standing_ = Standing::everybody(site);
  for (const Program& program : programs) made.graph_.add(program, site, seats, 0);
  made.note_traffic(0,
                    static_cast<int>(std::count_if(seats.begin(), seats.end(),
                                                   [&](int s) { return !site.is_switch(s); })),
                    1, 0);
  if (Status status = made.graph_.finish(site, 0); !status.ok()) return status;
  return made;
}

Result<std::vector<Simulated>> Simulation::run(const Site& site) const {
  std::vector<JobSize> sizes;
  for (const CollectiveJob& job : jobs_) sizes.push_back({job.bytes, job.start});
  const auto ends = play(graph_, site, standing_, sizes, options_.play);
  if (ends.empty()) return Status(Code::corrupt, "the programs wait for each other for ever");
  std::vector<Simulated> answers = about_;
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    answers[i].seconds = std::max(0.0, ends[i].seconds - sizes[i].start_s);
    answers[i].steps = ends[i].steps;
    answers[i].bytes_per_rank *= sizes[i].bytes;
  }
  return answers;
}

Simulated Simulation::run(const Site& site, double bytes) const {
  const auto ends = play(graph_, site, standing_, {{bytes, 0}}, options_.play);
  // Schedules of the catalog are proved to be free of deadlocks.
  TUTTI_CHECK(ends.size() == 1);
  Simulated answer = about_.front();
  answer.seconds = ends[0].seconds;
  answer.steps = ends[0].steps;
  answer.bytes_per_rank *= bytes;
  return answer;
}

Result<std::vector<Simulated>> simulate(const Site& site, const std::vector<CollectiveJob>& jobs,
                                        const SimulateOptions& options) {
  auto made = Simulation::of(site, jobs, options);
  if (!made.ok()) return made.status();
  return made->run(site);
}

}  // namespace tutti::cost
