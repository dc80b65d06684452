// Sends of a row of exchanges keep step with what comes: of every schedule, for every rank.
#include <gtest/gtest.h>

#include <map>
#include <tuple>
#include <vector>

#include "engine/compile.hpp"
#include "schedule/catalog.hpp"
#include "schedule/passes.hpp"

namespace tutti::engine {
namespace {

using schedule::kLocal;
using schedule::Op;
using schedule::OpKind;

// All ranks' ops, and which must come before which.
class Order {
 public:
  explicit Order(const std::vector<Compiled>& ranks) : ranks_(ranks) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      first_.push_back(after_.size());
      const auto& ops = ranks[r].program.ops;
      for (std::size_t i = 0; i < ops.size(); ++i)
        if (ops[i].kind == OpKind::send) sends_[{r, ops[i].peer, ops[i].step}] = after_.size() + i;
      after_.resize(after_.size() + ops.size());
    }
    waits_.resize(after_.size());
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (std::size_t i = 0; i < ranks[r].program.ops.size(); ++i) add(r, i);
  }

  // Everything gets its turn.
  bool has_no_circle() {
    std::vector<std::size_t> ready;
    for (std::size_t node = 0; node < waits_.size(); ++node)
      if (waits_[node] == 0) ready.push_back(node);
    std::size_t done = 0;
    for (; !ready.empty(); ++done) {
      const std::size_t node = ready.back();
      ready.pop_back();
      for (const std::size_t next : after_[node])
        if (--waits_[next] == 0) ready.push_back(next);
    }
    return done == waits_.size();
  }
  int steps_kept() const { return steps_kept_; }

 private:
  void add(std::size_t rank, std::size_t index) {
    const Compiled& mine = ranks_[rank];
    const Op& op = mine.program.ops[index];
    const std::size_t node = first_[rank] + index;
    for (const ChunkHazard& hazard : mine.hazards[index]) put(first_[rank] + hazard.earlier, node);
    if (op.kind == OpKind::recv) put(send_of(op.peer, rank, op.step), node);
    for (const schedule::Source& source : op.sources)
      if (source.peer != kLocal) put(send_of(source.peer, rank, source.step), node);
    if (const auto& before = mine.exchange_before[index]) {
      const Stream& stream = mine.streams[*before];
      put(send_of(stream.peer, rank, stream.step), node);
      ++steps_kept_;
    }
  }
  std::size_t send_of(int from, std::size_t to, std::uint32_t step) const {
    return sends_.at({static_cast<std::size_t>(from), static_cast<int>(to), step});
  }
  void put(std::size_t before, std::size_t after) {
    after_[before].push_back(after);
    ++waits_[after];
  }

  const std::vector<Compiled>& ranks_;
  std::vector<std::size_t> first_;
  std::vector<std::vector<std::size_t>> after_;
  std::vector<std::size_t> waits_;
  std::map<std::tuple<std::size_t, int, std::uint32_t>, std::size_t> sends_;
  int steps_kept_ = 0;
};

std::vector<Compiled> compile_all(std::vector<schedule::Program> programs) {
  std::vector<Compiled> compiled;
  for (schedule::Program& program : programs)
    compiled.push_back(compile(fuse_folds(std::move(program))));
  return compiled;
}

TEST(Exchanges, keeping_step_closes_no_circle) {
  int checked = 0;
  for (const schedule::Entry& entry : schedule::catalog())
    for (const int n : {2, 3, 4, 5, 7, 8, 12, 16})
      for (const auto order : {ReductionOrder::any, ReductionOrder::rank, ReductionOrder::tree})
        for (const bool in_place : {false, true}) {
          std::vector<int> hosts;
          for (int r = 0; r < n; ++r) hosts.push_back(r * 2 / n);
          schedule::Request request;
          request.collective = entry.collective;
          request.size = n;
          request.in_place = in_place;
          request.order = order;
          request.host_of = hosts;
          auto programs = schedule::build_all(entry.algorithm, request);
          if (!programs.ok()) continue;
          const auto compiled = compile_all(*std::move(programs));
          EXPECT_TRUE(Order(compiled).has_no_circle())
              << to_string(entry.collective) << " by " << to_string(entry.algorithm) << ", " << n
              << " ranks, order " << static_cast<int>(order) << (in_place ? ", in place" : "");
          ++checked;
        }
  EXPECT_GT(checked, 500);
}

int steps_kept(Collective collective, Algorithm algorithm, int n) {
  schedule::Request request;
  request.collective = collective;
  request.size = n;
  auto programs = schedule::build_all(algorithm, request);
  return programs.ok() ? Order(compile_all(*std::move(programs))).steps_kept() : -1;
}

TEST(Exchanges, those_in_pairs_keep_step_and_those_at_once_do_not) {
  EXPECT_EQ(steps_kept(Collective::reduce_scatter, Algorithm::pairwise, 4), 4 * 2);
  EXPECT_EQ(steps_kept(Collective::all_to_all, Algorithm::pairwise, 5), 5 * 3);
  EXPECT_EQ(steps_kept(Collective::reduce_scatter, Algorithm::direct, 4), 0);
}

}  // namespace
}  // namespace tutti::engine
