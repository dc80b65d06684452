#include "cost/op_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "schedule/hazards.hpp"

namespace tutti::cost {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;

int distance(const Program& program, int from, int to) {
  return ((to - from) % program.size + program.size) % program.size;
}

// Seats this far from each other have like ways: those of a host, or of a leaf with short uplinks.
std::uint32_t seats_alike(const Site& site) {
  std::uint32_t count = 0;
  for (int seat = 0; seat < site.seats(); ++seat)
    count += site.leaf_of.empty() ? site.are_together(0, seat) : !site.climbs(0, seat);
  return std::max(1U, count);
}

constexpr int kRankBits = 24;
constexpr std::uint64_t kRankMask = (std::uint64_t{1} << kRankBits) - 1;
std::uint64_t pair_of(std::uint64_t job, int from, int to) {
  return (job << kRankBits | static_cast<std::uint64_t>(from)) << kRankBits |
         static_cast<std::uint64_t>(to);
}
int from_of(std::uint64_t pair) { return static_cast<int>(pair >> kRankBits & kRankMask); }
int to_of(std::uint64_t pair) { return static_cast<int>(pair & kRankMask); }

}  // namespace

double chunk_bytes(const Program& program, double total) {
  const auto parts = static_cast<double>(schedule::part_count(program));
  return parts > 0 ? total / parts : 0;
}

std::uint32_t OpGraph::add_node(const Node& node) {
  nodes_.push_back(node);
  return static_cast<std::uint32_t>(nodes_.size() - 1);
}

void OpGraph::lead_to(std::uint32_t earlier, std::uint32_t later) {
  edges_.emplace_back(earlier, later);
  ++nodes_[later].waits;
}

// Of the node that comes next.
void OpGraph::add_message(std::vector<Message>& list, const Program& program, int from, int to,
                          std::uint32_t step) {
  list.push_back({pair_of(jobs_.back(), from, to), step, distance(program, from, to),
                  static_cast<std::uint32_t>(nodes_.size())});
}

// A fold that takes messages itself, as fused programs have it, is receives and then a fold.
void OpGraph::add_taken(const Program& program, const Op& op, const std::vector<int>& seats,
                        Node node) {
  node.does = Node::Does::receives;
  node.only_folded = true;
  node.waits = 1;
  for (const auto& source : op.sources) {
    if (source.peer == schedule::kLocal) continue;
    node.peer = seats[static_cast<std::size_t>(source.peer)];
    add_message(receives_, program, source.peer, program.rank, source.step);
    add_node(node);
  }
}

void OpGraph::add(const Program& program, const Site& site, const std::vector<int>& seats,
                  std::uint32_t job) {
  begin_rank(seats[static_cast<std::size_t>(program.rank)], job);
  const double chunk = chunk_bytes(program, 1);
  const bool folds = has_reduction(program.collective);
  std::vector<std::uint32_t> node_of;  // of each op
  node_of.reserve(program.ops.size());
  for (const Op& op : program.ops) {
    Node node;
    node.rank = programs() - 1;
    node.seat = seats[static_cast<std::size_t>(program.rank)];
    if (op.peer != schedule::kLocal) node.peer = seats[static_cast<std::size_t>(op.peer)];
    auto first_taken = static_cast<std::uint32_t>(nodes_.size());
    switch (op.kind) {
      case OpKind::send:
        node.does = Node::Does::sends;
        node.share = op.src.count * chunk;
        add_message(sends_, program, program.rank, op.peer, op.step);
        break;
      case OpKind::recv:
        node.does = Node::Does::receives;
        node.share = op.dst.count * chunk;
        node.only_folded = folds && op.dst.space == schedule::Space::scratch;
        node.waits = 1;
        add_message(receives_, program, op.peer, program.rank, op.step);
        break;
      case OpKind::copy: node.share = op.dst.count * chunk; break;
      case OpKind::reduce:
        node.share = op.dst.count * chunk;
        add_taken(program, op, seats, node);
        // Folding one operand is a copy.
        node.does = op.sources.size() > 1 ? Node::Does::folds : Node::Does::copies;
        node.operands = static_cast<float>(op.sources.size()) - 1;
        break;
    }
    node_of.push_back(add_node(node));
    for (; first_taken < node_of.back(); ++first_taken) lead_to(first_taken, node_of.back());
  }
  for (const auto& [earlier, later] : schedule::hazards(program))
    lead_to(node_of[earlier], node_of[later]);
  note_company(program, site, node_of);
}

void OpGraph::note_company(const Program& program, const Site& site,
                           const std::vector<std::uint32_t>& node_of) {
  std::vector<std::uint32_t> comers;  // from other hosts, by step
  const auto comes = [&](std::size_t i) {
    const Node& node = nodes_[node_of[i]];
    return node.does == Node::Does::receives && !site.are_together(node.seat, node.peer);
  };
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (!comes(i)) continue;
    const std::uint32_t step = program.ops[i].step;
    if (comers.size() <= step) comers.resize(step + 1);
    ++comers[step];
  }
  for (std::size_t i = 0; i < program.ops.size(); ++i)
    if (comes(i)) nodes_[node_of[i]].has_company = comers[program.ops[i].step] > 1;
}

void OpGraph::begin_rank(int seat, std::uint32_t job) {
  jobs_.push_back(job);
  starts_.push_back(static_cast<std::uint32_t>(nodes_.size()));
  seat_ = seat;
}

std::uint32_t OpGraph::work(Node::Does does, double share, int operands) {
  Node node;
  node.does = does;
  node.rank = programs() - 1;
  node.seat = seat_;
  node.share = share;
  node.operands = static_cast<float>(operands);
  return add_node(node);
}

Status OpGraph::match(int modulus) {
  if (modulus > 0)
    for (auto* messages : {&sends_, &receives_})
      for (Message& message : *messages)
        message.pair = pair_of(message.pair >> 2 * kRankBits, from_of(message.pair) % modulus,
                               to_of(message.pair) % modulus);
  const auto by_key = [](const Message& a, const Message& b) {
    return std::tie(a.pair, a.step, a.distance) < std::tie(b.pair, b.step, b.distance);
  };
  std::sort(sends_.begin(), sends_.end(), by_key);
  std::sort(receives_.begin(), receives_.end(), by_key);
  const auto are_alike = [](const Message& a, const Message& b) {
    return a.pair == b.pair && a.step == b.step;
  };
  const auto refuse = [](const Message& message) {
    return Status(Code::corrupt,
                  fmt::format("the message of step {} from rank {} to rank {} has no other end "
                              "that is certain",
                              message.step, from_of(message.pair), to_of(message.pair)));
  };
  for (std::size_t i = 0; i < std::max(sends_.size(), receives_.size()); ++i) {
    if (i >= sends_.size()) return refuse(receives_[i]);
    if (i >= receives_.size()) return refuse(sends_[i]);
    const Message& send = sends_[i];
    const Message& receive = receives_[i];
    if (!are_alike(send, receive)) return refuse(send);
    const bool is_one_of_many = (i > 0 && are_alike(send, sends_[i - 1])) ||
                                (i + 1 < sends_.size() && are_alike(send, sends_[i + 1]));
    if (is_one_of_many && send.distance != receive.distance) return refuse(send);
    nodes_[send.node].match = receive.node;
    nodes_[receive.node].match = send.node;
  }
  std::vector<Message>().swap(sends_);
  std::vector<Message>().swap(receives_);
  return {};
}

// By their place in their programs, and by their seat under their switch: where ranks are alike, so
// is their order.
void OpGraph::number(const Site& site) {
  const std::uint32_t alike = seats_alike(site);
  const auto key = [&](std::uint32_t i) {
    const Node& node = nodes_[i];
    return std::tuple(i - starts_[node.rank], static_cast<std::uint32_t>(node.seat) % alike, i);
  };
  std::vector<std::uint32_t> order(nodes_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
  std::vector<std::uint32_t> number(nodes_.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) number[order[i]] = i;
  std::vector<Node> nodes;
  nodes.reserve(nodes_.size());
  for (const std::uint32_t i : order) {
    nodes.push_back(nodes_[i]);
    nodes.back().match = number[nodes.back().match];
  }
  nodes_ = std::move(nodes);
  for (auto& [earlier, later] : edges_) {
    earlier = number[earlier];
    later = number[later];
  }
}

Status OpGraph::finish(const Site& site, int modulus) {
  if (Status status = match(modulus); !status.ok()) return status;
  if (!nodes_.empty()) number(site);
  link_edges();
  return {};
}

// From a list of pairs to lists by the earlier one.
void OpGraph::link_edges() {
  first_.assign(nodes_.size() + 1, 0);
  for (const auto& [earlier, later] : edges_) ++first_[earlier + 1];
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  after_.resize(edges_.size());
  std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
  for (const auto& [earlier, later] : edges_) after_[next[earlier]++] = later;
  std::vector<std::pair<std::uint32_t, std::uint32_t>>().swap(edges_);
}

}  // namespace tutti::cost
