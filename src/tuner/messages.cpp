#include "tuner/messages.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tuner/cost.hpp"
#include "tuner/walk.hpp"

namespace tutti::tuner {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;

// Steps that a builder keeps for the ranks beyond a power of two.
constexpr std::size_t kUnusedSteps = 2;

// What may keep a rank or a host busy, over all steps, beside the fill of the pipeline.
struct Busy {
  double in = 0;
  double out = 0;
  double core = 0;

  double most() const { return std::max({in, out, core}); }
};

}  // namespace

bool StepLoad::idle() const {
  return in.messages[kMemory] + in.messages[kTcp] + out.messages[kMemory] + out.messages[kTcp] ==
             0 &&
         local_s == 0;
}

Messages::Messages(const schedule::Entry& entry, const Situation& situation, int shots,
                   const Machine& machine)
    : situation_(situation), machine_(machine), links_(situation, machine) {
  const auto hosts = ranks_to_walk(situation);
  hosts_ = hosts.size();
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    for (const Walked& walked : hosts[host]) {
      const int company = company_of(situation, walked.rank);
      Rank rank{host, walked.weight, company, machine.crowding(company), {}};
      read(entry.build(request_of(situation, walked.rank, shots)), rank);
      steps_ = std::max(steps_, rank.steps.size());
      ranks_.push_back(std::move(rank));
    }
  }
}

// ---- reading the programs

void Messages::read(const Program& program, Rank& rank) {
  chunk_ = chunk_bytes(program, total_bytes(situation_));
  for (const Op& op : program.ops) {
    if (rank.steps.size() <= op.step) rank.steps.resize(op.step + 1);
    read(op, program.rank, rank.steps[op.step]);
  }
}

void Messages::read(const Op& op, int self, StepLoad& load) {
  switch (op.kind) {
    case OpKind::send: return add_out(load, links_.kind(self, op.peer), op.src.count * chunk_);
    case OpKind::recv: {
      // What is received only to be folded is read over a memory link by the fold itself.
      const LinkKind link = links_.kind(self, op.peer);
      const bool in_place = link == kMemory && is_only_folded(situation_, op);
      return add_in(load, link, in_place ? 0 : op.dst.count * chunk_);
    }
    case OpKind::copy: load.local_s += links_.copy_s(op.dst.count * chunk_); return;
    case OpKind::reduce: return read_fold(op, self, load);
  }
}

void Messages::read_fold(const Op& op, int self, StepLoad& load) {
  const double bytes = op.dst.count * chunk_;
  for (const auto& source : op.sources)
    if (source.peer != schedule::kLocal) add_in(load, links_.kind(self, source.peer), 0);
  // Folding one operand is a copy.
  const double folds = std::max<double>(1, static_cast<double>(op.sources.size()) - 1);
  load.local_s += folds * links_.fold_s(bytes);
}

void Messages::add_in(StepLoad& load, LinkKind kind, double bytes) {
  ++load.in.messages[kind];
  load.in.bytes_s[kind] += links_.bytes_s(kind, bytes);
  load.largest = std::max(load.largest, bytes);
  load.core_s += links_.core_s(kind, bytes);
  if (kind == kTcp) uses_tcp_ = true;
  if (kind == kTcp && bytes >= kLongMessageBytes) load.has_long_tcp = true;
}

void Messages::add_out(StepLoad& load, LinkKind kind, double bytes) {
  ++load.out.messages[kind];
  load.out.bytes_s[kind] += links_.bytes_s(kind, bytes);
  load.largest = std::max(load.largest, bytes);
  load.core_s += links_.core_s(kind, bytes);
  if (kind == kTcp) uses_tcp_ = true;
}

// ---- costing

double Messages::latency(const StepLoad& load, int company) const {
  double longest = 0;
  for (const LinkKind kind : {kMemory, kTcp})
    if (load.in.messages[kind] + load.out.messages[kind] > 0)
      longest = std::max(longest, links_.latency_s(kind, company));
  return longest;
}

double Messages::longest_message() const {
  double longest = 0;
  for (const Rank& rank : ranks_)
    for (const StepLoad& load : rank.steps) longest = std::max(longest, load.largest);
  return longest;
}

// Where not everybody was walked, a step in which nobody did anything is somebody else's turn, and
// takes as long as the others on average; but builders leave a number or two unused as well.
double Messages::sum_of_turns(const std::vector<double>& steps) const {
  const auto idle = static_cast<std::size_t>(std::count(steps.begin(), steps.end(), 0.0));
  const double sum = std::accumulate(steps.begin(), steps.end(), 0.0);
  const bool are_turns = situation_.ranks > kWholeRanks && idle > kUnusedSteps;
  if (!are_turns || idle == steps.size()) return sum;
  return sum / static_cast<double>(steps.size() - idle) * static_cast<double>(steps.size());
}

Messages::StepCost Messages::cost(const StepLoad& load, double crowding, std::size_t segment_bytes,
                                  const StreamGain& streams) const {
  StepCost cost;
  cost.segments = std::max(1.0, std::ceil(load.largest / static_cast<double>(segment_bytes)));
  // Streams help where there are segments to deal out among them.
  const double gain = cost.segments >= streams.streams ? streams.gain : 1;
  cost.wire_in = load.in.bytes_s[kTcp] / gain;
  cost.wire_out = load.out.bytes_s[kTcp] / gain;
  const double tcp_message = machine_.tcp.message_s * crowding * cost.segments;
  const double collisions = load.has_long_tcp && load.in.messages[kTcp] > 1 ? kIncast : 1;
  cost.in = (cost.wire_in + load.in.messages[kTcp] * tcp_message) * collisions;
  cost.out = cost.wire_out + load.out.messages[kTcp] * tcp_message;
  cost.handling =
      (load.in.messages[kTcp] + load.out.messages[kTcp]) * tcp_message + load.core_s * crowding;
  const double memory_messages =
      (load.in.messages[kMemory] + load.out.messages[kMemory]) * cost.segments;
  cost.core = crowding * (load.local_s + load.in.bytes_s[kMemory] + load.out.bytes_s[kMemory] +
                          memory_messages * machine_.memory.message_s);
  return cost;
}

double Messages::seconds(std::size_t segment_bytes, const StreamGain& streams) const {
  std::vector<double> fill(steps_, 0.0);
  std::vector<std::vector<Wire>> wires(hosts_, std::vector<Wire>(steps_));
  std::vector<Busy> shared(hosts_);
  double busiest = 0;
  for (const Rank& rank : ranks_) {
    Busy busy;
    for (std::size_t step = 0; step < rank.steps.size(); ++step) {
      const StepLoad& load = rank.steps[step];
      if (load.idle()) continue;
      const StepCost now = cost(load, rank.crowding, segment_bytes, streams);
      const double first = 1 / now.segments;
      const double rest = 1 - first;
      fill[step] = std::max(
          fill[step], latency(load, rank.company) + (std::max(now.in, now.out) + now.core) * first);
      busy.in += now.in * rest;
      busy.out += now.out * rest;
      busy.core += (now.core + now.handling) * rest;
      wires[rank.host][step].in += rank.weight * now.wire_in * first;
      wires[rank.host][step].out += rank.weight * now.wire_out * first;
      shared[rank.host].in += rank.weight * now.wire_in * rest;
      shared[rank.host].out += rank.weight * now.wire_out * rest;
    }
    busiest = std::max(busiest, busy.most());
  }
  for (std::size_t host = 0; host < wires.size(); ++host) {
    busiest = std::max(busiest, shared[host].most());
    for (std::size_t step = 0; step < steps_; ++step) {
      const double wire = std::max(wires[host][step].in, wires[host][step].out);
      if (wire > 0) fill[step] = std::max(fill[step], machine_.tcp.latency_s + wire);
    }
  }
  return sum_of_turns(fill) + busiest;
}

}  // namespace tutti::tuner
