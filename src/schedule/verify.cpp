#include "schedule/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "schedule/hazards.hpp"
#include "schedule/proof/expressions.hpp"
#include "schedule/proof/graph.hpp"
#include "schedule/proof/results.hpp"
#include "tutti/shape.hpp"

namespace tutti::schedule {
namespace {

using proof::Expressions;
using proof::Graph;
using proof::kUndefined;
using proof::OpId;
using proof::Value;
using proof::wrong;

// The memory of all ranks, holding expressions.
class MessageMemory {
 public:
  MessageMemory(std::span<const Program> programs, Expressions& expressions) : programs_(programs) {
    std::size_t total = 0;
    for (const Program& program : programs) {
      places_.emplace_back(program);
      first_.push_back(total);
      total += places_.back().count();
    }
    values_.assign(total, kUndefined);
    for (const Program& program : programs) fill(program, expressions);
  }
  Value& at(int rank, Space space, std::uint32_t chunk) {
    return values_[first_[rank] + places_[rank].index(space, chunk)];
  }

 private:
  void fill(const Program& program, Expressions& expressions) {
    for (const Space space : {Space::input, Space::output}) {
      if (!is_given(program, space)) continue;
      for (std::uint32_t c = 0; c < chunk_count(program, space); ++c)
        at(program.rank, space, c) = expressions.leaf(program.rank, extent_of(program, space, c));
    }
  }

  std::span<const Program> programs_;
  std::vector<Places> places_;
  std::vector<std::size_t> first_;
  std::vector<Value> values_;
};

class MessageProof {
 public:
  MessageProof(std::span<const Program> programs, const Graph& graph)
      : programs_(programs),
        graph_(graph),
        n_(static_cast<int>(programs.size())),
        expressions_(n_),
        memory_(programs, expressions_),
        depth_(graph.ops(), 0) {}

  Result<VerifyReport> run() {
    for (auto check : {&MessageProof::check_connected, &MessageProof::execute,
                       &MessageProof::check_results, &MessageProof::check_barrier}) {
      if (Status status = (this->*check)(); !status.ok()) return status;
    }
    report_.messages = graph_.messages();
    for (std::uint32_t depth : depth_) report_.steps = std::max(report_.steps, depth);
    return report_;
  }

 private:
  Status check_connected();
  Status execute();
  Status check_results();
  Status check_barrier();

  Status perform(OpId event);
  Status perform_reduce(OpId event, std::uint32_t chunk);
  Status stuck(const std::vector<std::uint32_t>& waits) const;

  std::span<const Program> programs_;
  const Graph& graph_;
  const int n_;
  Expressions expressions_;
  MessageMemory memory_;
  std::vector<std::uint32_t> depth_;  // messages on the longest way to each op
  std::vector<OpId> order_;           // events as they ran
  std::vector<Value> operands_;
  VerifyReport report_;
};

// Calls that do not fit are noticed by the messages between ranks: nobody may stand apart.
Status MessageProof::check_connected() {
  std::vector<int> parent(static_cast<std::size_t>(n_));
  std::iota(parent.begin(), parent.end(), 0);
  const auto find = [&](int x) {
    while (parent[x] != x) x = parent[x] = parent[parent[x]];
    return x;
  };
  for (OpId id = 0; id < graph_.ops(); ++id) {
    for (OpId sender : graph_.senders(id)) {
      parent[find(graph_.rank(sender))] = find(graph_.rank(id));
    }
  }
  for (int r = 1; r < n_; ++r) {
    if (find(r) != find(0)) {
      return wrong(fmt::format("no chain of messages joins rank {} to rank 0", r));
    }
  }
  return {};
}

// Runs every event as soon as nothing that it depends on is outstanding. Ops without hazards
// between them may overtake each other, as they may in the engine.
Status MessageProof::execute() {
  std::vector<std::uint32_t> waits(graph_.ops(), 0);
  for (OpId id = 0; id < graph_.ops(); ++id) {
    waits[graph_.event(id)] += static_cast<std::uint32_t>(graph_.before(id).size());
  }
  std::uint32_t events = 0;
  for (OpId id = 0; id < graph_.ops(); ++id) {
    if (graph_.event(id) != id) continue;
    ++events;
    if (waits[id] == 0) order_.push_back(id);
  }
  const auto release = [&](OpId done) {
    for (OpId later : graph_.after(done)) {
      depth_[later] = std::max(depth_[later], depth_[done]);
      if (--waits[graph_.event(later)] == 0) order_.push_back(graph_.event(later));
    }
  };
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const OpId event = order_[i];
    if (Status status = perform(event); !status.ok()) return status;
    for (OpId sender : graph_.senders(event)) {
      depth_[event] = std::max(depth_[event], depth_[sender] + 1);
      release(sender);
    }
    release(event);
  }
  return order_.size() == events ? Status() : stuck(waits);
}

Status MessageProof::stuck(const std::vector<std::uint32_t>& waits) const {
  for (OpId id = 0; id < graph_.ops(); ++id) {
    if (graph_.event(id) == id && waits[id] > 0) {
      return wrong("deadlock: " + graph_.name(id) + " and others wait for each other");
    }
  }
  return wrong("deadlock");
}

Status MessageProof::perform(OpId event) {
  const Op& op = graph_.op(event);
  const int rank = graph_.rank(event);
  const bool empty = !shape_of(programs_[0].collective).has_data();  // zero bytes: no values
  for (std::uint32_t c = 0; c < op.dst.count && !empty; ++c) {
    if (op.kind == OpKind::reduce) {
      if (Status status = perform_reduce(event, c); !status.ok()) return status;
      continue;
    }
    if (extent_of(programs_[static_cast<std::size_t>(rank)], op.dst.space, op.dst.first + c) ==
        kNoBytes)
      continue;
    const OpId from = op.kind == OpKind::recv ? graph_.senders(event)[0] : event;
    const Region& src = graph_.op(from).src;
    const Value value = memory_.at(graph_.rank(from), src.space, src.first + c);
    if (value == kUndefined) {
      return wrong(graph_.name(from) +
                   fmt::format(" reads chunk {} before it was written", src.first + c));
    }
    memory_.at(rank, op.dst.space, op.dst.first + c) = value;
  }
  return {};
}

Status MessageProof::perform_reduce(OpId event, std::uint32_t chunk) {
  const Op& op = graph_.op(event);
  const int rank = graph_.rank(event);
  auto message = graph_.senders(event).begin();
  operands_.clear();
  for (const Source& source : op.sources) {
    const bool local = source.peer == kLocal;
    const OpId from = local ? event : *message++;
    const Region& region = local ? source.region : graph_.op(from).src;
    const Value value = memory_.at(graph_.rank(from), region.space, region.first + chunk);
    const char* fault = nullptr;
    if (value == kUndefined) {
      fault = "folds an operand before it was written";
    } else if (source.raw && !expressions_.is_leaf(value)) {
      fault = "takes a partial fold for a raw input";
    } else if (!source.raw && expressions_.is_leaf(value)) {
      fault = "takes a raw input for a partial fold";
    } else if (expressions_.is_finished(value)) {
      fault = "folds what was finished already";
    }
    if (fault) return wrong(fmt::format("{} {} (chunk {})", graph_.name(event), fault, chunk));
    operands_.push_back(value);
  }
  int twice = -1;
  const Value value = expressions_.fold(operands_, {op.finish, op.balanced}, twice);
  if (twice >= 0) {
    return wrong(graph_.name(event) + fmt::format(" counts rank {} twice", twice));
  }
  memory_.at(rank, op.dst.space, op.dst.first + chunk) = value;
  return {};
}

Status MessageProof::check_results() {
  const auto value_of = [&](int rank, std::uint32_t chunk) {
    return memory_.at(rank, Space::output, chunk);
  };
  return proof::check_results(programs_, expressions_, value_of, report_);
}

// A barrier holds when every rank's program can end only after every rank has begun: each op knows
// of the ranks that its causes know of. A send knows nothing of its taker, who may come later.
Status MessageProof::check_barrier() {
  if (shape_of(programs_[0].collective).has_data()) return {};
  const auto words = (static_cast<std::size_t>(n_) + 63) / 64;
  std::vector<std::uint64_t> known(graph_.ops() * words, 0);
  std::vector<std::uint64_t> total(static_cast<std::size_t>(n_) * words, 0);
  const auto learn = [&](std::uint64_t* into, const std::uint64_t* from) {
    for (std::size_t w = 0; w < words; ++w) into[w] |= from[w];
  };
  const auto conclude = [&](OpId id) {
    std::uint64_t* mine = &known[id * words];
    const auto rank = static_cast<std::size_t>(graph_.rank(id));
    mine[rank / 64] |= 1ull << (rank % 64);
    for (OpId cause : graph_.before(id)) learn(mine, &known[cause * words]);
    for (OpId sender : graph_.senders(id)) learn(mine, &known[sender * words]);
    learn(&total[rank * words], mine);
  };
  for (OpId event : order_) {
    for (OpId sender : graph_.senders(event)) conclude(sender);
    conclude(event);
  }
  for (int r = 0; r < n_ && n_ > 1; ++r) {
    for (int other = 0; other < n_; ++other) {
      const auto bit = static_cast<std::size_t>(other);
      if (!(total[r * words + bit / 64] >> (bit % 64) & 1)) {
        return wrong(fmt::format("rank {} may leave the barrier before rank {} comes", r, other));
      }
    }
  }
  return {};
}

}  // namespace

Result<VerifyReport> verify(std::span<const Program> programs) {
  if (Status status = proof::check_headers(programs); !status.ok()) return status;
  Result<Graph> graph = Graph::of(programs);
  if (!graph.ok()) return graph.status();
  return MessageProof(programs, *graph).run();
}

}  // namespace tutti::schedule
