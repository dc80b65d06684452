#include "tuner/timeline.hpp"

#include <cmath>
#include <map>
#include <queue>
#include <tuple>

#include "core/check.hpp"
#include "schedule/hazards.hpp"
#include "tuner/cost.hpp"

namespace tutti::tuner {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;

// Takes a resource for `seconds` from when it is free, but not before `from`; returns when it
// began.
double take(double& taken_until, double from, double seconds) {
  const double start = std::max(taken_until, from);
  taken_until = start + seconds;
  return start;
}

}  // namespace

struct Timeline::Run {
  std::vector<Rank> ranks;
  std::vector<Rank> hosts;  // their wires
};

Timeline::Timeline(const schedule::Entry& entry, const Situation& situation, int shots,
                   const Machine& machine)
    : situation_(situation), machine_(machine), links_(situation, machine) {
  const auto hosts = ranks_to_walk(situation);
  host_.resize(static_cast<std::size_t>(situation.ranks));
  std::vector<Program> programs;
  for (std::size_t host = 0; host < hosts.size(); ++host)
    for (const Walked& walked : hosts[host]) host_[static_cast<std::size_t>(walked.rank)] = host;
  hosts_ = hosts.size();
  for (int rank = 0; rank < situation.ranks; ++rank) {
    company_.push_back(company_of(situation, rank));
    programs.push_back(entry.build(request_of(situation, rank, shots)));
  }
  read(programs);
}

void Timeline::read(const std::vector<Program>& programs) {
  std::map<std::tuple<int, int, std::uint32_t>, std::uint32_t> sends;  // from, to, step
  for (const Program& program : programs) {
    const auto base = static_cast<std::uint32_t>(events_.size());
    for (const Op& op : program.ops) {
      if (op.kind == OpKind::send)
        sends[{program.rank, op.peer, op.step}] = static_cast<std::uint32_t>(events_.size());
      events_.push_back(event_of(program, op));
      longest_ = std::max(longest_, op.peer == schedule::kLocal ? 0 : events_.back().bytes);
      uses_tcp_ |= events_.back().link == kTcp;
    }
    for (const auto& [earlier, later] : schedule::hazards(program))
      lead_to(base + earlier, base + later);
  }
  std::uint32_t index = 0;
  for (const Program& program : programs) {
    std::map<std::uint32_t, int> arrivals;  // long ones over tcp, by step
    for (std::size_t i = 0; i < program.ops.size(); ++i)
      arrivals[program.ops[i].step] += is_long_arrival(events_[index + i]) ? 1 : 0;
    for (const Op& op : program.ops) {
      Event& event = events_[index];
      if (op.kind == OpKind::recv) {
        event.sent_by = sends.at({op.peer, program.rank, op.step});
        event.collides = is_long_arrival(event) && arrivals[op.step] > 1;
        lead_to(event.sent_by, index);
      }
      ++index;
    }
  }
}

bool Timeline::is_long_arrival(const Event& event) {
  return event.does == Does::receives && event.link == kTcp && event.bytes >= kLongMessageBytes;
}

void Timeline::lead_to(std::uint32_t earlier, std::uint32_t later) {
  events_[earlier].before.push_back(later);
  ++events_[later].waits_for;
}

Timeline::Event Timeline::event_of(const Program& program, const Op& op) const {
  const double chunk = chunk_bytes(program, total_bytes(situation_));
  Event event;
  event.rank = program.rank;
  switch (op.kind) {
    case OpKind::send:
      event.does = Does::sends;
      event.link = links_.kind(program.rank, op.peer);
      event.bytes = op.src.count * chunk;
      event.seconds = links_.bytes_s(event.link, event.bytes);
      break;
    case OpKind::recv: {
      event.does = Does::receives;
      event.link = links_.kind(program.rank, op.peer);
      event.bytes = op.dst.count * chunk;
      // What is received only to be folded is read over a memory link by the fold itself.
      const bool in_place = event.link == kMemory && is_only_folded(situation_, op);
      event.seconds = in_place ? 0 : links_.bytes_s(event.link, event.bytes);
      break;
    }
    case OpKind::copy:
      event.bytes = op.dst.count * chunk;
      event.seconds = links_.copy_s(event.bytes);
      break;
    case OpKind::reduce: {
      event.bytes = op.dst.count * chunk;
      // Folding one operand is a copy.
      const auto operands = static_cast<double>(op.sources.size());
      event.seconds =
          operands < 2 ? links_.copy_s(event.bytes) : (operands - 1) * links_.fold_s(event.bytes);
      break;
    }
  }
  return event;
}

Timeline::Flow Timeline::send(const Event& event, Flow ready, double k, double gain,
                              Run& run) const {
  const auto self = static_cast<std::size_t>(event.rank);
  Rank& rank = run.ranks[self];
  const double crowding = machine_.crowding(company_[self]);
  const double handling = links_.message_s(event.link) * k * crowding;
  const double moving = links_.core_s(event.link, event.bytes) * crowding;
  if (event.link == kMemory) {
    const double all = event.seconds * crowding + handling;
    const double start = take(rank.core, ready.first, all);
    return {start + all / k, std::max(start + all, ready.last + all / k)};
  }
  const double wire = event.seconds / gain;
  const double all = wire + handling;
  const double start = take(rank.out, ready.first, all);
  const double core = take(rank.core, ready.first, handling + moving) + handling + moving;
  const double shared = take(run.hosts[host_[self]].out, ready.first, wire);
  return {std::max(start + all / k, shared + wire / k),
          std::max({start + all, shared + wire, core, ready.last + all / k})};
}

Timeline::Flow Timeline::receive(const Event& event, Flow ready, Flow sent, double k, double gain,
                                 Run& run) const {
  const auto self = static_cast<std::size_t>(event.rank);
  Rank& rank = run.ranks[self];
  const double crowding = machine_.crowding(company_[self]);
  const double handling = links_.message_s(event.link) * k * crowding;
  const double moving = links_.core_s(event.link, event.bytes) * crowding;
  const double latency = links_.latency_s(event.link, company_[self]);
  const double there = std::max(sent.first + latency, ready.first);
  const double end = std::max(sent.last + latency, ready.last);
  if (event.link == kMemory) {
    const double all = event.seconds * crowding + handling;
    const double start = take(rank.core, there, all);
    return {start + all / k, std::max(start + all, end + all / k)};
  }
  // The bytes come in while they go out at the other end: only what queues up here takes longer.
  const double wire = event.seconds / gain * (event.collides ? kIncast : 1);
  const double all = std::max(wire, handling);
  const double start = take(rank.in, there - all / k, all);
  const double core = take(rank.core, there - all / k, handling + moving) + handling + moving;
  const double shared = take(run.hosts[host_[self]].in, there - wire / k, wire);
  return {std::max({there, start + all / k, shared + wire / k}),
          std::max({end, start + all, shared + wire, core})};
}

Timeline::Flow Timeline::work(const Event& event, Flow ready, double k, Run& run) const {
  const auto index = static_cast<std::size_t>(event.rank);
  const double all = event.seconds * machine_.crowding(company_[index]);
  const double start = take(run.ranks[index].core, ready.first, all);
  return {start + all / k, std::max(start + all, ready.last + all / k)};
}

double Timeline::seconds(std::size_t segment_bytes, const StreamGain& streams) const {
  Run run{std::vector<Rank>(host_.size()), std::vector<Rank>(hosts_)};
  std::vector<Flow> ready(events_.size());  // of what an event waits for, its message aside
  std::vector<Flow> flows(events_.size());
  std::vector<std::uint32_t> open;
  // By the time from which they can begin, so that nobody takes a resource before an earlier one.
  using Key = std::pair<double, std::uint32_t>;
  std::priority_queue<Key, std::vector<Key>, std::greater<>> next;
  for (std::uint32_t i = 0; i < events_.size(); ++i) {
    open.push_back(events_[i].waits_for);
    if (open.back() == 0) next.emplace(0, i);
  }
  double end = 0;
  std::size_t done = 0;
  for (; !next.empty(); ++done) {
    const std::uint32_t i = next.top().second;
    next.pop();
    const Event& event = events_[i];
    const double k = std::max(1.0, std::ceil(event.bytes / static_cast<double>(segment_bytes)));
    // Streams help where there are segments to deal out among them.
    const double gain = k >= streams.streams ? streams.gain : 1;
    switch (event.does) {
      case Does::sends: flows[i] = send(event, ready[i], k, gain, run); break;
      case Does::receives:
        flows[i] = receive(event, ready[i], flows[event.sent_by], k, gain, run);
        break;
      case Does::works: flows[i] = work(event, ready[i], k, run); break;
    }
    end = std::max(end, flows[i].last);
    for (const std::uint32_t later : event.before) {
      if (events_[later].sent_by != i) {
        ready[later].first = std::max(ready[later].first, flows[i].first);
        ready[later].last = std::max(ready[later].last, flows[i].last);
      }
      if (--open[later] > 0) continue;
      const bool comes = events_[later].does == Does::receives;
      next.emplace(comes ? std::max(ready[later].first, flows[events_[later].sent_by].first)
                         : ready[later].first,
                   later);
    }
  }
  // Schedules are proved to be free of deadlocks.
  TUTTI_CHECK(done == events_.size());
  return end;
}

}  // namespace tutti::tuner
