#include "schedule/measure.hpp"

#include <algorithm>
#include <vector>

#include "schedule/proof/graph.hpp"

namespace tutti::schedule {
namespace {

using proof::Graph;
using proof::OpId;

// What lies behind an op on the longest chain that leads to it.
struct Way {
  std::uint32_t messages = 0;
  std::uint64_t moved = 0;
  std::uint64_t folded = 0;

  // The three are longest chains of their own, not one and the same.
  void at_least(const Way& other) {
    messages = std::max(messages, other.messages);
    moved = std::max(moved, other.moved);
    folded = std::max(folded, other.folded);
  }
};

std::uint64_t folds_in(const Op& op) {
  if (op.kind != OpKind::reduce || op.sources.empty()) return 0;
  return (op.sources.size() - 1) * op.dst.count;
}

class Walk {
 public:
  explicit Walk(const Graph& graph) : graph_(graph), ways_(graph.ops()), waits_(graph.ops(), 0) {}

  // Events in an order in which they can run.
  Way longest() {
    for (OpId id = 0; id < graph_.ops(); ++id)
      waits_[graph_.event(id)] += static_cast<std::uint32_t>(graph_.before(id).size());
    for (OpId id = 0; id < graph_.ops(); ++id)
      if (graph_.event(id) == id && waits_[id] == 0) ready_.push_back(id);
    Way longest;
    for (std::size_t i = 0; i < ready_.size(); ++i) {
      perform(ready_[i]);
      longest.at_least(ways_[ready_[i]]);
    }
    return longest;
  }

 private:
  void perform(OpId event) {
    for (const OpId sender : graph_.senders(event)) {
      Way way = ways_[sender];
      way.messages += 1;
      way.moved += graph_.op(sender).src.count;
      ways_[event].at_least(way);
    }
    ways_[event].folded += folds_in(graph_.op(event));
    for (const OpId sender : graph_.senders(event)) release(sender);
    release(event);
  }
  void release(OpId done) {
    for (const OpId later : graph_.after(done)) {
      ways_[later].at_least(ways_[done]);
      if (--waits_[graph_.event(later)] == 0) ready_.push_back(graph_.event(later));
    }
  }

  const Graph& graph_;
  std::vector<Way> ways_;
  std::vector<std::uint32_t> waits_;
  std::vector<OpId> ready_;
};

struct Load {
  std::uint32_t sent = 0, taken = 0;
  std::uint64_t out = 0, in = 0, folded = 0;
};

std::vector<Load> loads_of(const Graph& graph, int ranks) {
  std::vector<Load> loads(static_cast<std::size_t>(ranks));
  for (OpId id = 0; id < graph.ops(); ++id) {
    Load& taker = loads[static_cast<std::size_t>(graph.rank(id))];
    taker.folded += folds_in(graph.op(id));
    for (const OpId sender : graph.senders(id)) {
      Load& giver = loads[static_cast<std::size_t>(graph.rank(sender))];
      const std::uint64_t chunks = graph.op(sender).src.count;
      ++giver.sent;
      ++taker.taken;
      giver.out += chunks;
      taker.in += chunks;
    }
  }
  return loads;
}

}  // namespace

Result<Measure> measure(std::span<const Program> programs) {
  const auto graph = Graph::of(programs);
  if (!graph.ok()) return graph.status();
  const Way way = Walk(*graph).longest();
  Measure measure{way.messages, 0, way.moved, way.folded, part_count(programs.front())};
  for (const Load& load : loads_of(*graph, static_cast<int>(programs.size()))) {
    measure.messages = std::max({measure.messages, load.sent, load.taken});
    measure.moved = std::max({measure.moved, load.out, load.in});
    measure.folded = std::max(measure.folded, load.folded);
  }
  return measure;
}

}  // namespace tutti::schedule
