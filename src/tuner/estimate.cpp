#include "tuner/estimate.hpp"

#include <algorithm>
#include <cmath>

#include "cost/continuation.hpp"
#include "tuner/built_in.hpp"
#include "tuner/host_time.hpp"

namespace tutti::tuner {
namespace {

Nanoseconds rounded(double seconds) {
  return Nanoseconds(static_cast<Nanoseconds::rep>(std::llround(seconds * 1e9)));
}

int largest_company(const CallFacts& facts) {
  int largest = 1;
  for (int rank = 0; rank < facts.ranks; ++rank)
    largest = std::max(largest, company_of(facts, rank));
  return largest;
}

// With more ranks than cores a message also waits until its receiver has its turn.
double turn_s(const Machine& machine, int company) {
  if (machine.crowding(company) <= 1) return 0;
  return std::max(0.0, machine.meet_seconds(company) - machine.meet_seconds(2));
}

// Within a host the cores copy a message in and out again; what is only folded is read where it
// lies. Memory slows down with the whole call, which passes through the caches.
cost::MessageCost within_host(const LinkCost& link, double turn, double total) {
  cost::MessageCost message;
  message.latency_s = link.latency_s + 2 * link.message_s + turn;
  message.overhead_s = link.message_s;
  message.send_byte_s = message.receive_byte_s = link.bytes.share(1, total) + link.byte_s;
  message.folds_read = true;
  return message;
}

cost::MessageCost between_hosts(const LinkCost& link, double turn) {
  cost::MessageCost message;
  message.latency_s = link.latency_s + turn;
  message.overhead_s = message.piece_s = link.message_s;
  message.send_byte_s = message.receive_byte_s = link.byte_s;
  message.way = link.bytes;
  return message;
}

// The first hosts that have so many ranks together.
cost::Site on_fewer_hosts(const cost::Site& whole, int ranks) {
  std::vector<int> company(static_cast<std::size_t>(whole.hosts()));
  for (const int host : whole.host_of) ++company[static_cast<std::size_t>(host)];
  int hosts = 0;
  for (int count = 0; count < ranks; ++hosts) count += company[static_cast<std::size_t>(hosts)];
  cost::Site site = whole;
  site.host_of.clear();
  site.machine_of.clear();
  for (std::size_t rank = 0; rank < whole.host_of.size(); ++rank) {
    if (whole.host_of[rank] >= hosts || site.seats() == ranks) continue;
    site.host_of.push_back(whole.host_of[rank]);
    site.machine_of.push_back(whole.machine_of[rank]);
  }
  return site;
}

}  // namespace

cost::Site site_of(const Machine& machine, const CallFacts& facts) {
  const auto list = [&](std::span<const int> names) {
    return names.empty() ? std::vector<int>(static_cast<std::size_t>(facts.ranks))
                         : cost::dense({names.begin(), names.end()});
  };
  const double total = total_bytes(facts);
  const double turn = turn_s(machine, largest_company(facts));
  cost::Site site;
  site.host_of = list(facts.host_of);
  site.machine_of = facts.machine_of.empty() ? site.host_of : list(facts.machine_of);
  site.cores = machine.cores;
  site.within = within_host(machine.memory, turn, total);
  site.between = between_hosts(machine.tcp, turn);
  site.host_way = 1;
  site.incast = kIncast;
  site.incast_bytes = kLongMessageBytes;
  site.copy_byte_s = machine.copy.share(1, total);
  site.fold_byte_s = machine.fold.share(1, total);
  return site;
}

Nanoseconds estimate(const schedule::Entry& entry, const CallFacts& facts, int shots,
                     const Machine& machine) {
  if (entry.by_switch && facts.switch_cost != nullptr && facts.ranks > 1)
    return rounded(facts.switch_cost->seconds(total_bytes(facts)));
  if (const auto seconds = host_seconds(entry, facts, shots, machine)) return rounded(*seconds);
  const cost::Site whole = site_of(machine, facts);
  const auto with = [&](int ranks) -> Result<cost::Playable> {
    cost::Site site = ranks < facts.ranks ? on_fewer_hosts(whole, ranks) : whole;
    cost::CollectiveJob job{.collective = facts.collective,
                            .algorithm = entry.algorithm,
                            .ranks = ranks,
                            .shots = shots,
                            .order = facts.order,
                            .catalog = facts.catalog};
    if (ranks == facts.ranks) job.walk.assign(facts.walk.begin(), facts.walk.end());
    auto simulation = cost::Simulation::of(site, {job});
    if (!simulation.ok()) return simulation.status();
    return cost::Playable{std::move(site), *std::move(simulation)};
  };
  // Ranks of a single host are continued like hosts of one rank: to play hundreds would take each of them seconds.
  const int hosts = whole.hosts() == 1 ? facts.ranks : whole.hosts();
  const auto time = cost::CollectiveTime::of(facts.ranks, (facts.ranks + hosts - 1) / hosts, with);
  if (!time.ok()) return kUnknownTime;
  return rounded(time->with(total_bytes(facts)).seconds);
}

}  // namespace tutti::tuner
