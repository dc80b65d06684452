#include "schedule/proof/graph.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/hazards.hpp"
#include "schedule/proof/results.hpp"
#include "schedule/text.hpp"
#include "tutti/shape.hpp"

namespace tutti::schedule::proof {
namespace {

bool exists(const Program& program, const Region& region) {
  const std::uint64_t end = static_cast<std::uint64_t>(region.first) + region.count;
  return region.count > 0 && end <= chunk_count(program, region.space);
}

bool same_extents(const Program& a, const Region& x, const Program& b, const Region& y) {
  if (x.count != y.count) return false;
  for (std::uint32_t c = 0; c < x.count; ++c) {
    if (extent_of(a, x.space, x.first + c) != extent_of(b, y.space, y.first + c)) return false;
  }
  return true;
}

// Or the switch behind the ranks.
bool is_peer(const Program& program, int peer, std::size_t programs) {
  return peer >= 0 && peer < static_cast<int>(programs) && peer != program.rank;
}

// What is wrong with one op, seen alone; empty when nothing is.
std::string fault(const Program& program, const Op& op, std::size_t programs) {
  std::string found;
  each_access(op, [&](const Region& region, bool writes) {
    if (!exists(program, region)) found = "touches chunks that do not exist";
    if (writes && region.space == Space::input) found = "writes the input";
    const bool nothing_to_write =
        shape_of(program.collective).gets_nothing(program.rank, program.size);
    if (writes && region.space == Space::output && nothing_to_write) {
      found = "writes an output that must stay as it is";
    }
  });
  if (!found.empty()) return found;
  switch (op.kind) {
    case OpKind::send:
    case OpKind::recv:
      if (!is_peer(program, op.peer, programs)) return "has no such peer";
      break;
    case OpKind::copy:
      if (!same_extents(program, op.dst, program, op.src)) return "copies between different sizes";
      break;
    case OpKind::reduce:
      if (!has_reduction(program.collective)) return "folds where nothing is to be folded";
      if (op.sources.empty()) return "folds nothing";
      for (const Source& source : op.sources) {
        if (source.peer == kLocal) {
          if (!same_extents(program, op.dst, program, source.region)) {
            return "folds operands of different sizes";
          }
        } else if (!is_peer(program, source.peer, programs)) {
          return "has no such peer";
        }
      }
      break;
  }
  return {};
}

}  // namespace

Graph::Graph(std::span<const Program> programs) : programs_(programs), first_{0} {
  for (const Program& program : programs) {
    rank_of_.insert(rank_of_.end(), program.ops.size(), program.rank);
    first_.push_back(static_cast<OpId>(rank_of_.size()));
  }
}

Result<Graph> Graph::of(std::span<const Program> programs) {
  Graph graph(programs);
  if (Status status = graph.check_regions(); !status.ok()) return status;
  if (Status status = graph.match(); !status.ok()) return status;
  graph.order();
  return graph;
}

std::string Graph::name(OpId id) const {
  return fmt::format("rank {}, op {} '{}'", rank(id), id - first_[rank(id)], print(op(id)));
}

Status Graph::check_regions() const {
  for (OpId id = 0; id < ops(); ++id) {
    if (std::string what = fault(program(id), op(id), programs_.size()); !what.empty()) {
      return wrong(name(id) + " " + what);
    }
  }
  return {};
}

// Sorts what is sent and what is taken by (sender, taker, step): both lists must then be the same.
Status Graph::match() {
  std::vector<Message> sent, taken;
  const auto n = static_cast<std::uint64_t>(programs_.size());
  const auto pair = [n](int from, int to) { return static_cast<std::uint64_t>(from) * n + to; };
  for (OpId id = 0; id < ops(); ++id) {
    const Op& each = op(id);
    first_receipt_.push_back(static_cast<std::uint32_t>(taken.size()));
    const auto take = [&](int peer, std::uint32_t step) {
      const auto receipt = static_cast<std::uint32_t>(taken.size());
      taken.push_back({pair(peer, rank(id)), step, id, receipt, &each.dst});
    };
    if (each.kind == OpKind::recv) take(each.peer, each.step);
    if (each.kind == OpKind::send) {
      sent.push_back({pair(rank(id), each.peer), each.step, id, 0, &each.src});
    }
    for (const Source& source : each.sources) {
      if (each.kind == OpKind::reduce && source.peer != kLocal) take(source.peer, source.step);
    }
  }
  first_receipt_.push_back(static_cast<std::uint32_t>(taken.size()));
  std::sort(sent.begin(), sent.end());
  std::sort(taken.begin(), taken.end());

  taker_.assign(ops(), kNoOp);
  senders_.assign(taken.size(), kNoOp);
  for (std::size_t i = 0; i < std::max(sent.size(), taken.size()); ++i) {
    if (i >= taken.size() || (i < sent.size() && sent[i] < taken[i])) {
      return wrong(name(sent[i].op) + " is taken by nobody");
    }
    if (i >= sent.size() || taken[i] < sent[i]) {
      return wrong(name(taken[i].op) + fmt::format(" waits for a message of rank {} at step {} "
                                                   "that nobody sends",
                                                   taken[i].pair / n, taken[i].step));
    }
    if (i > 0 && (sent[i - 1] <=> sent[i]) == 0) {
      return wrong(name(sent[i].op) + " is the second to the same peer in one step");
    }
    if (Status status = meet(sent[i], taken[i]); !status.ok()) return status;
  }
  return {};
}

Status Graph::meet(const Message& sent, const Message& taken) {
  if (!same_extents(program(sent.op), *sent.region, program(taken.op), *taken.region)) {
    return wrong(name(sent.op) + " and " + name(taken.op) + " do not agree on the size");
  }
  taker_[sent.op] = taken.op;
  senders_[taken.receipt] = sent.op;
  return {};
}

void Graph::order() {
  std::vector<std::pair<OpId, OpId>> edges;
  for (const Program& program : programs_) {
    const OpId base = first_[program.rank];
    for (const auto& [earlier, later] : hazards(program)) {
      edges.emplace_back(base + earlier, base + later);
    }
  }
  // Edges come ordered by the later op, so `before_` is their first halves as they stand.
  first_before_.assign(ops() + 1, 0);
  first_after_.assign(ops() + 1, 0);
  for (const auto& [earlier, later] : edges) {
    ++first_before_[later + 1];
    ++first_after_[earlier + 1];
    before_.push_back(earlier);
  }
  for (OpId id = 0; id < ops(); ++id) {
    first_before_[id + 1] += first_before_[id];
    first_after_[id + 1] += first_after_[id];
  }
  after_.resize(edges.size());
  auto next = first_after_;
  for (const auto& [earlier, later] : edges) after_[next[earlier]++] = later;
}

}  // namespace tutti::schedule::proof
