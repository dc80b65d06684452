#include "plan/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plan/in_network.hpp"

namespace tutti::plan {
namespace {

using cost::MessageCost;
using cost::Site;

// Fast wires want long pieces: one that is handled as long as it travels is too short.
constexpr double kPiecePerHandling = 8;

MessageCost message_of(const Wire& wire) {
  MessageCost message;
  message.latency_s = wire.latency;
  message.overhead_s = wire.overhead;
  if (wire.bandwidth > 0) message.way = *cost::Curve::from_knots({{1, 1 / wire.bandwidth}});
  message.segment_bytes =
      std::max(cost::kSegmentBytes, kPiecePerHandling * wire.overhead * wire.bandwidth);
  return message;
}

std::int64_t last_seat(const CollectiveJob& job) {
  return job.first_seat + std::int64_t{job.ranks - 1} * job.stride;
}

Status check(const Cluster& cluster, const CollectiveJob& job) {
  const auto refuse = [](std::string what) {
    return Status(Code::invalid_argument, std::move(what));
  };
  if (job.ranks < 1 || job.stride < 1 || job.first_seat < 0 || job.root < 0 ||
      job.root >= job.ranks || !(job.bytes >= 0) || !(job.start >= 0))
    return refuse("a job's ranks, stride, root, bytes or start make no sense");
  const std::int64_t last = last_seat(job);
  if (cluster.max_ranks > 0 && last >= cluster.max_ranks)
    return refuse(fmt::format("{} ranks do not fit cluster '{}', which has {}", last + 1,
                              cluster.name, cluster.max_ranks));
  if (last >= (1 << 24)) return refuse(fmt::format("rank {} is more than can be simulated", last));
  return {};
}

Result<cost::Simulation> folding_switches(const Cluster& cluster, const Site& site,
                                          const CollectiveJob& job,
                                          const SimulateOptions& options) {
  if (job.collective != Collective::all_reduce)
    return Status(Code::invalid_argument, fmt::format("the switches of cluster '{}' do not fold {}",
                                                      cluster.name, to_string(job.collective)));
  std::vector<int> seats;
  for (int rank = 0; rank < job.ranks; ++rank) seats.push_back(job.first_seat + rank * job.stride);
  const SwitchTree tree(cluster, seats);
  for (int i = 0; i < tree.switches(); ++i) seats.push_back(site.seats() + i);
  std::vector<schedule::Program> programs;
  for (int rank = 0; rank < job.ranks + tree.switches(); ++rank)
    programs.push_back(tree.program(rank));
  return cost::Simulation::of_programs(site, programs, seats, job.bytes, options);
}

}  // namespace

Site site_of(const Cluster& cluster, int seats) {
  Site site;
  for (int seat = 0; seat < seats; ++seat) site.host_of.push_back(seat / cluster.ranks_per_host);
  site.torus = cluster.fabric == Fabric::torus_2d;
  site.within = message_of(cluster.within);
  site.between = message_of(cluster.between);
  const double host_bandwidth = cluster.host_bandwidth > 0
                                    ? cluster.host_bandwidth
                                    : cluster.between.bandwidth * cluster.ranks_per_host;
  if (cluster.host_bandwidth > 0) site.host_way = cluster.between.bandwidth / host_bandwidth;
  if (cluster.fabric == Fabric::fat_tree && cluster.oversubscription > 1) {
    for (int host = 0; host < site.hosts(); ++host)
      site.leaf_of.push_back(host / cluster.hosts_per_switch);
    site.leaf_way = cluster.between.bandwidth * cluster.oversubscription /
                    (cluster.hosts_per_switch * host_bandwidth);
  }
  const Processor& processor = cluster.processor;
  if (processor.reduce_bandwidth > 0) site.fold_byte_s = 1 / processor.reduce_bandwidth;
  if (processor.memory_bandwidth > 0) site.copy_byte_s = 2 / processor.memory_bandwidth;
  return site;
}

Result<cost::Playable> playable(const Cluster& cluster, const CollectiveJob& job,
                                const SimulateOptions& options) {
  if (Status status = check(cluster, job); !status.ok()) return status;
  Site site = site_of(cluster, static_cast<int>(last_seat(job)) + 1);
  // Where nothing is said of the cluster's own, it is one switch with a link for all (tutti switch).
  auto made = job.algorithm == Algorithm::in_network && cluster.in_network_reduction
                  ? folding_switches(cluster, site, job, options)
                  : cost::Simulation::of(site, {job}, options);
  if (!made.ok()) return made.status();
  return cost::Playable{std::move(site), *std::move(made)};
}

Result<std::vector<Simulated>> simulate(const Cluster& cluster,
                                        const std::vector<CollectiveJob>& jobs,
                                        const SimulateOptions& options) {
  if (jobs.size() == 1) {
    const auto made = playable(cluster, jobs[0], options);
    if (!made.ok()) return made.status();
    return made->simulation.run(made->site);
  }
  std::int64_t last = 0;
  for (const CollectiveJob& job : jobs) {
    if (Status status = check(cluster, job); !status.ok()) return status;
    if (job.algorithm == Algorithm::in_network && cluster.in_network_reduction)
      return Status(Code::unsupported, "schedules of folding switches are simulated alone");
    last = std::max(last, last_seat(job));
  }
  return cost::simulate(site_of(cluster, static_cast<int>(last) + 1), jobs, options);
}

}  // namespace tutti::plan
