#include "plan/op_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "schedule/hazards.hpp"
#include "tuner/walk.hpp"

namespace tutti::plan {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;
using schedule::Region;

constexpr std::uint32_t kNone = ~0U;

// What happened to the chunks of one space so far, by runs that share their story.
class History {
 public:
  // Calls wait(op) for everything that an access has to wait for, and notes it.
  template <class Wait>
  void read(const Region& region, std::uint32_t op, Wait wait) {
    each_run(region, [&](Story& story) {
      if (story.writer != kNone) wait(story.writer);
      if (story.readers.empty() || story.readers.back() != op) story.readers.push_back(op);
    });
  }
  template <class Wait>
  void write(const Region& region, std::uint32_t op, Wait wait) {
    each_run(region, [&](Story& story) {
      // With readers in between the last write is behind them anyhow.
      if (story.readers.empty() && story.writer != kNone) wait(story.writer);
      for (const std::uint32_t reader : story.readers) wait(reader);
    });
    const auto first = runs_.find(region.first);
    first->second = {region.first + region.count, op, {}};
    runs_.erase(std::next(first), runs_.lower_bound(region.first + region.count));
  }

 private:
  struct Story {
    std::uint32_t end;
    std::uint32_t writer;
    std::vector<std::uint32_t> readers;  // since then
  };

  // Cuts the run that `at` lies in, so that one begins there.
  void cut(std::uint32_t at) {
    auto after = runs_.upper_bound(at);
    if (after == runs_.begin()) return;
    auto run = std::prev(after);
    if (run->first == at || run->second.end <= at) return;
    Story rest = run->second;
    run->second.end = at;
    runs_.emplace_hint(after, at, std::move(rest));
  }

  template <class Visit>
  void each_run(const Region& region, Visit visit) {
    const std::uint32_t end = region.first + region.count;
    cut(region.first);
    cut(end);
    std::uint32_t at = region.first;
    auto run = runs_.lower_bound(at);
    while (at < end) {
      if (run == runs_.end() || run->first > at) {
        const std::uint32_t until = run == runs_.end() ? end : std::min(end, run->first);
        run = runs_.emplace_hint(run, at, Story{until, kNone, {}});
      }
      visit(run->second);
      at = run->second.end;
      ++run;
    }
  }

  std::map<std::uint32_t, Story> runs_;
};

// Calls edge(earlier, later) for ops of one program.
template <class Edge>
void each_hazard(const Program& program, Edge edge) {
  if (program.in_place) {  // chunks of two spaces may be the same memory
    for (const auto& [earlier, later] : schedule::hazards(program)) edge(earlier, later);
    return;
  }
  History spaces[3];
  for (std::uint32_t i = 0; i < program.ops.size(); ++i)
    schedule::each_access(program.ops[i], [&](const Region& region, bool writes) {
      if (region.count == 0) return;
      History& history = spaces[static_cast<std::size_t>(region.space)];
      std::uint32_t last = kNone;
      const auto wait = [&](std::uint32_t earlier) {
        if (earlier != i && earlier != last) edge(earlier, i);
        last = earlier;
      };
      writes ? history.write(region, i, wait) : history.read(region, i, wait);
    });
}

}  // namespace

std::uint32_t OpGraph::add_node(const Node& node) {
  nodes_.push_back(node);
  return static_cast<std::uint32_t>(nodes_.size() - 1);
}

void OpGraph::add_edge(std::uint32_t earlier, std::uint32_t later) {
  edges_.emplace_back(earlier, later);
  ++nodes_[later].waits;
}

// A fold that takes messages itself, as fused programs have it, is receives and then a fold.
void OpGraph::add_messages(const Program& program, const Op& op, Node node,
                           std::vector<std::uint32_t>& own) {
  node.does = Node::Does::receives;
  node.waits = 1;
  for (const auto& source : op.sources) {
    if (source.peer == schedule::kLocal) continue;
    node.peer = source.peer;
    own.push_back(add_node(node));
    receives_.push_back({jobs_.back(), source.step, source.peer, program.rank, 0, own.back()});
  }
}

void OpGraph::add(const Program& program, const std::vector<int>& seats, double bytes,
                  std::uint32_t job) {
  const auto rank = static_cast<std::uint32_t>(jobs_.size());
  jobs_.push_back(job);
  starts_.push_back(static_cast<std::uint32_t>(nodes_.size()));
  const double chunk = tuner::chunk_bytes(program, bytes);
  const auto size = static_cast<std::int32_t>(program.size);
  const auto seat = [&](int r) { return seats[static_cast<std::size_t>(r)]; };
  const auto distance = [&](int from, int to) { return ((to - from) % size + size) % size; };
  std::vector<std::uint32_t> node_of;  // of each op
  for (const Op& op : program.ops) {
    Node node;
    node.rank = rank;
    node.seat = seat(program.rank);
    std::vector<std::uint32_t> messages;
    switch (op.kind) {
      case OpKind::send:
        node.does = Node::Does::sends;
        node.peer = seat(op.peer);
        node.bytes = op.src.count * chunk;
        sends_.push_back({job, op.step, program.rank, op.peer, distance(program.rank, op.peer),
                          static_cast<std::uint32_t>(nodes_.size())});
        break;
      case OpKind::recv:
        node.does = Node::Does::receives;
        node.peer = seat(op.peer);
        node.bytes = op.dst.count * chunk;
        node.waits = 1;
        receives_.push_back({job, op.step, op.peer, program.rank, distance(op.peer, program.rank),
                             static_cast<std::uint32_t>(nodes_.size())});
        break;
      case OpKind::copy:
        node.does = Node::Does::copies;
        node.bytes = op.dst.count * chunk;
        break;
      case OpKind::reduce: {
        node.bytes = op.dst.count * chunk;
        add_messages(program, op, node, messages);
        // Folding one operand is a copy.
        node.does = op.sources.size() > 1 ? Node::Does::folds : Node::Does::copies;
        node.operands = static_cast<float>(op.sources.size()) - 1;
        break;
      }
    }
    node_of.push_back(add_node(node));
    for (const std::uint32_t message : messages) {
      Node& receive = nodes_[message];
      receives_[receives_.size() - (node_of.back() - message)].distance =
          distance(receive.peer, program.rank);
      receive.peer = seat(receive.peer);
      add_edge(message, node_of.back());
    }
  }
  each_hazard(program, [&](std::uint32_t earlier, std::uint32_t later) {
    add_edge(node_of[earlier], node_of[later]);
  });
}

Status OpGraph::match(int modulus) {
  if (modulus > 0)
    for (auto* messages : {&sends_, &receives_})
      for (Message& message : *messages) {
        message.from %= modulus;
        message.to %= modulus;
      }
  const auto by_key = [](const Message& a, const Message& b) { return a.key() < b.key(); };
  std::sort(sends_.begin(), sends_.end(), by_key);
  std::sort(receives_.begin(), receives_.end(), by_key);
  const auto same_pair = [](const Message& a, const Message& b) {
    return std::tie(a.job, a.step, a.from, a.to) == std::tie(b.job, b.step, b.from, b.to);
  };
  const auto refuse = [](const Message& message) {
    return Status(Code::corrupt,
                  fmt::format("the message of step {} from rank {} to rank {} has no "
                              "other end that is certain",
                              message.step, message.from, message.to));
  };
  for (std::size_t i = 0; i < std::max(sends_.size(), receives_.size()); ++i) {
    if (i >= sends_.size()) return refuse(receives_[i]);
    if (i >= receives_.size()) return refuse(sends_[i]);
    const Message& send = sends_[i];
    const Message& receive = receives_[i];
    if (!same_pair(send, receive)) return refuse(send);
    const bool is_one_of_many = (i > 0 && same_pair(send, sends_[i - 1])) ||
                                (i + 1 < sends_.size() && same_pair(send, sends_[i + 1]));
    if (is_one_of_many && send.distance != receive.distance) return refuse(send);
    nodes_[send.node].match = receive.node;
    nodes_[receive.node].match = send.node;
  }
  std::vector<Message>().swap(sends_);
  std::vector<Message>().swap(receives_);
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

}  // namespace tutti::plan
