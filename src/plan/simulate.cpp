#include "plan/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <queue>

#include "core/check.hpp"
#include "plan/in_network.hpp"
#include "plan/network.hpp"
#include "plan/op_graph.hpp"
#include "plan/symmetry.hpp"
#include "schedule/catalog.hpp"

namespace tutti::plan {
namespace {

using schedule::Program;

// A number in 0 … 1 that depends on both arguments alone (splitmix64).
double draw(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15ULL + index + 1;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

// The graph's ops in the order of virtual time.
class Run {
 public:
  Run(const OpGraph& graph, Network& network, const Cluster& cluster,
      const SimulateOptions& options)
      : graph_(graph), network_(network), options_(options) {
    const Processor& processor = cluster.processor;
    if (processor.reduce_bandwidth > 0) fold_s_ = 1 / processor.reduce_bandwidth;
    if (processor.memory_bandwidth > 0) copy_s_ = 2 / processor.memory_bandwidth;
  }

  // When each program's last op ended, and the messages on its longest way.
  struct End {
    double seconds = 0;
    int steps = 0;
  };
  std::vector<End> ends(const std::vector<Job>& jobs) {
    const std::vector<Node>& nodes = graph_.nodes();
    std::vector<End> ends(jobs.size());
    ready_.resize(nodes.size());
    done_.resize(nodes.size());
    arrived_.resize(nodes.size());
    depth_.assign(nodes.size(), 0);
    open_.resize(nodes.size());
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      const double start = jobs[graph_.job_of(nodes[i].rank)].start;
      ready_[i] = {start, start};
      open_[i] = nodes[i].waits;
      if (open_[i] == 0) enqueue(start, i);
    }
    std::size_t count = 0;
    for (; !next_.empty(); ++count) {
      const std::uint32_t i = next_.top().node;
      next_.pop();
      done_[i] = play(i);
      End& end = ends[graph_.job_of(nodes[i].rank)];
      end.seconds = std::max(end.seconds, done_[i].last);
      end.steps = std::max(end.steps, static_cast<int>(depth_[i]));
      release(i);
    }
    // Schedules are proved to be free of deadlocks; others are the caller's.
    all_played_ = count == nodes.size();
    return ends;
  }
  bool all_played() const { return all_played_; }

 private:
  double pieces(const Node& node) const {
    if (options_.segment_bytes <= 0) return 1;
    return std::max(1.0, std::ceil(node.bytes / options_.segment_bytes));
  }

  Flow play(std::uint32_t i) {
    const Node& node = graph_.nodes()[i];
    switch (node.does) {
      case Node::Does::sends: return send(i, node);
      case Node::Does::receives: return receive(i, node);
      case Node::Does::folds: return work(node, ready_[i], node.bytes * node.operands * fold_s_);
      case Node::Does::copies: return work(node, ready_[i], node.bytes * copy_s_);
    }
    return {};
  }

  Flow send(std::uint32_t i, const Node& node) {
    const double k = pieces(node);
    const double handling =
        network_.is_switch(node.seat) ? 0 : network_.overhead(node.seat, node.peer);
    const double start = take(network_.core(node.seat), ready_[i].first, handling * k);
    const Flow begin{start, std::max(ready_[i].last, start + handling * (k - 1))};
    const double slower = options_.jitter > 0 ? 1 + options_.jitter * draw(options_.seed, i) : 1;
    const auto passage = network_.send(node.seat, node.peer, node.bytes, k, begin, slower);
    arrived_[i] = passage.arrived;
    return passage.left;
  }

  Flow receive(std::uint32_t i, const Node& node) {
    const double k = pieces(node);
    const Flow& sent = arrived_[node.match];
    const Flow at{std::max(sent.first, ready_[i].first), std::max(sent.last, ready_[i].last)};
    const double handling =
        network_.is_switch(node.seat) ? 0 : network_.overhead(node.peer, node.seat);
    const double start = take(network_.core(node.seat), at.first, handling * k);
    ++depth_[i];
    return {start + handling, std::max(start + handling * k, at.last + handling)};
  }

  Flow work(const Node& node, Flow ready, double seconds) {
    if (network_.is_switch(node.seat)) return ready;
    const double k = pieces(node);
    const double start = take(network_.core(node.seat), ready.first, seconds);
    return {start + seconds / k, std::max(start + seconds, ready.last + seconds / k)};
  }

  void release(std::uint32_t i) {
    for (const std::uint32_t* later = graph_.begin(i); later != graph_.end(i); ++later) {
      ready_[*later].first = std::max(ready_[*later].first, done_[i].first);
      ready_[*later].last = std::max(ready_[*later].last, done_[i].last);
      waits_no_more(i, *later);
    }
    if (graph_.nodes()[i].does == Node::Does::sends) waits_no_more(i, graph_.nodes()[i].match);
  }

  void waits_no_more(std::uint32_t earlier, std::uint32_t later) {
    depth_[later] = std::max(depth_[later], depth_[earlier]);
    if (--open_[later] > 0) return;
    const Node& node = graph_.nodes()[later];
    const bool comes = node.does == Node::Does::receives;
    enqueue(comes ? std::max(ready_[later].first, arrived_[node.match].first) : ready_[later].first,
            later);
  }

  void enqueue(double time, std::uint32_t node) {
    const Node& op = graph_.nodes()[node];
    next_.push({time, node - graph_.first_node(op.rank),
                static_cast<std::uint32_t>(op.seat) % network_.seats_alike(), node});
  }

  const OpGraph& graph_;
  Network& network_;
  const SimulateOptions& options_;
  double fold_s_ = 0;
  double copy_s_ = 0;
  std::vector<Flow> ready_;    // of what an op waits for, its message aside
  std::vector<Flow> done_;     // for those who wait for it on its own rank
  std::vector<Flow> arrived_;  // of sends
  std::vector<std::uint32_t> depth_;
  std::vector<std::uint32_t> open_;
  // By the time from which they can begin, so that nobody takes a way before an earlier one. Of
  // equal times by their place in their programs, and by their seat under their switch: where ranks
  // are alike, so is their order.
  struct Key {
    double time;
    std::uint32_t place;
    std::uint32_t seat;
    std::uint32_t node;
    auto operator<=>(const Key&) const = default;
  };
  std::priority_queue<Key, std::vector<Key>, std::greater<>> next_;
  bool all_played_ = false;
};

std::vector<int> seats_of(const Job& job) {
  std::vector<int> seats;
  for (int rank = 0; rank < job.ranks; ++rank) seats.push_back(job.first_seat + rank * job.stride);
  return seats;
}

Status check(const Cluster& cluster, const Job& job) {
  const auto refuse = [](std::string what) { return Status(Code::invalid_argument, what); };
  if (job.ranks < 1 || job.stride < 1 || job.first_seat < 0 || job.root < 0 ||
      job.root >= job.ranks || !(job.bytes >= 0) || !(job.start >= 0))
    return refuse("a job's ranks, stride, root, bytes or start make no sense");
  const std::int64_t last = job.first_seat + std::int64_t{job.ranks - 1} * job.stride;
  if (cluster.max_ranks > 0 && last >= cluster.max_ranks)
    return refuse(fmt::format("{} ranks do not fit cluster '{}', which has {}", last + 1,
                              cluster.name, cluster.max_ranks));
  if (last >= (1 << 24)) return refuse(fmt::format("rank {} is more than can be simulated", last));
  return {};
}

Status too_many(std::size_t most) {
  return {Code::unsupported,
          fmt::format("this schedule has more than {} ops, and no symmetry to use", most)};
}

// What is told about a job beside its times.
void note_traffic(const OpGraph& graph, std::uint32_t first_program, int ranks, double weight,
                  Simulated& answer) {
  std::vector<double> sent(static_cast<std::size_t>(ranks), 0);
  double messages = 0;
  for (const Node& node : graph.nodes()) {
    if (node.does != Node::Does::sends || node.rank < first_program) continue;
    if (node.rank >= first_program + sent.size()) break;  // of a switch
    sent[node.rank - first_program] += node.bytes;
    messages += weight;
  }
  for (const double bytes : sent) answer.bytes_per_rank = std::max(answer.bytes_per_rank, bytes);
  answer.messages = static_cast<std::uint64_t>(messages);
}

class Simulation {
 public:
  Simulation(const Cluster& cluster, const std::vector<Job>& jobs, const SimulateOptions& options)
      : cluster_(cluster), jobs_(jobs), options_(options), answers_(jobs.size()) {}

  Result<std::vector<Simulated>> run() {
    for (const Job& job : jobs_)
      if (Status status = check(cluster_, job); !status.ok()) return status;
    int modulus = 0;
    for (std::uint32_t index = 0; index < jobs_.size(); ++index) {
      auto used = add(index);
      if (!used.ok()) return used.status();
      modulus = *used;
    }
    if (Status status = graph_.match(modulus); !status.ok()) return status;
    return played(modulus);
  }

 private:
  // Returns the modulus of its symmetry, 0 for none.
  Result<int> add(std::uint32_t index) {
    const Job& job = jobs_[index];
    const std::vector<int> seats = seats_of(job);
    std::vector<int> host_of;
    for (const int seat : seats) host_of.push_back(seat / cluster_.ranks_per_host);
    schedule::Request request;
    request.collective = job.collective;
    request.size = job.ranks;
    request.root = job.root;
    request.shots = job.shots;
    request.host_of = host_of;
    if (job.algorithm == Algorithm::automatic) return add_in_network(index, seats);
    // Says what is wrong with a request, too.
    if (auto first = schedule::build(job.algorithm, request); !first.ok()) return first.status();
    const schedule::Entry& entry = *schedule::find(job.collective, job.algorithm);
    const bool alone = jobs_.size() == 1 && options_.use_symmetry && options_.jitter == 0;
    const int modulus = alone ? find_modulus(cluster_, entry, request, seats) : 0;
    const int ranks = modulus > 0 ? modulus : job.ranks;
    const std::uint32_t first_program = graph_.programs();
    for (request.rank = 0; request.rank < ranks; ++request.rank) {
      graph_.add(sorted_receives(entry.build(request)), seats, job.bytes, index);
      if (graph_.nodes().size() > options_.most_ops) return too_many(options_.most_ops);
    }
    note_traffic(graph_, first_program, ranks, static_cast<double>(job.ranks) / ranks,
                 answers_[index]);
    answers_[index].simulated_ranks = ranks;
    if (modulus > 0) standing_ = standing_for(cluster_, seats, modulus);
    last_seat_ = std::max(last_seat_, seats.back());
    return modulus;
  }

  Result<int> add_in_network(std::uint32_t index, std::vector<int> seats) {
    const Job& job = jobs_[index];
    if (!cluster_.in_network_reduction || job.collective != Collective::all_reduce)
      return Status(Code::invalid_argument,
                    fmt::format("the switches of cluster '{}' do not fold {}", cluster_.name,
                                to_string(job.collective)));
    if (jobs_.size() > 1)
      return Status(Code::unsupported, "schedules of folding switches are simulated alone");
    last_seat_ = seats.back();
    const SwitchTree tree(cluster_, seats);
    for (int i = 0; i < tree.switches(); ++i) seats.push_back(last_seat_ + 1 + i);
    for (int rank = 0; rank < job.ranks + tree.switches(); ++rank)
      graph_.add(tree.program(rank), seats, job.bytes, index);
    note_traffic(graph_, 0, job.ranks, 1, answers_[index]);
    answers_[index].simulated_ranks = job.ranks;
    return 0;
  }

  Result<std::vector<Simulated>> played(int modulus) {
    Network network =
        modulus > 0 ? Network(cluster_, standing_) : Network(cluster_, last_seat_ + 1);
    Run run(graph_, network, cluster_, options_);
    const auto ends = run.ends(jobs_);
    if (!run.all_played())
      return Status(Code::corrupt, "the programs wait for each other for ever");
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      answers_[i].seconds = std::max(0.0, ends[i].seconds - jobs_[i].start);
      answers_[i].steps = ends[i].steps;
    }
    return answers_;
  }

  const Cluster& cluster_;
  const std::vector<Job>& jobs_;
  const SimulateOptions& options_;
  OpGraph graph_;
  std::vector<Simulated> answers_;
  Standing standing_;
  int last_seat_ = 0;
};

}  // namespace

Result<std::vector<Simulated>> simulate(const Cluster& cluster, const std::vector<Job>& jobs,
                                        const SimulateOptions& options) {
  return Simulation(cluster, jobs, options).run();
}

Result<Simulated> simulate_programs(const Cluster& cluster, const std::vector<Program>& programs,
                                    double bytes, const SimulateOptions& options) {
  Job job;
  job.ranks = static_cast<int>(programs.size());
  if (Status status = check(cluster, job); !status.ok()) return status;
  const std::vector<int> seats = seats_of(job);
  OpGraph graph;
  for (const Program& program : programs) graph.add(program, seats, bytes, 0);
  if (Status status = graph.match(0); !status.ok()) return status;
  Network network(cluster, job.ranks);
  Run run(graph, network, cluster, options);
  const auto ends = run.ends({job});
  if (!run.all_played()) return Status(Code::corrupt, "the programs wait for each other for ever");
  Simulated answer{ends[0].seconds, 0, ends[0].steps, 0, job.ranks};
  note_traffic(graph, 0, job.ranks, 1, answer);
  return answer;
}

}  // namespace tutti::plan
