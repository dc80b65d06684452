// bench/overlap_replay.hpp - the collectives of a training step again, back to back and without the
// compute beside them.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "bench/protocol.hpp"
#include "tutti/train.hpp"

namespace tutti::bench {

// A bench has nobody to hand an error to.
[[noreturn]] inline void fail(int code, const std::string& what) {
  std::fprintf(stderr, "bench_overlap_tutti: %s\n", what.c_str());
  std::_Exit(code);
}
inline void check(const Status& status) {
  if (!status.ok()) fail(1, status.to_string());
}
template <class T>
T checked(Result<T> result) {
  check(result.status());
  return std::move(*result);
}

inline double slowest(Group& group, double value) {
  check(group.all_reduce(Buffer::of(&value, 1), ReduceOp::max));
  return value;
}

class Replay {
 public:
  Replay(Group& group, std::vector<train::CollectiveTimes> collectives)
      : group_(checked(group.duplicate({"replay", ReductionOrder::rank}))) {
    for (const train::CollectiveTimes& one : collectives) {
      calls_.push_back(one);
      memory_.push_back(checked(group_->allocate(one.bytes)));
    }
  }
  // Of those of this kind, all at once in their order.
  double seconds(Collective kind, int repeats) {
    std::vector<double> times;
    for (int i = 0; i <= repeats; ++i) {
      check(group_->barrier());
      const double begin = now_us();
      std::vector<Work> works;
      for (std::size_t c = 0; c < calls_.size(); ++c)
        if (calls_[c].collective == kind) works.push_back(start(c));
      for (Work& work : works) check(work.wait());
      if (i > 0) times.push_back((now_us() - begin) * 1e-6);  // the first meets cold memory
    }
    return slowest(*group_, median_of(times));
  }
  // The last one of this kind alone.
  double last_seconds(Collective kind, int repeats) {
    std::vector<train::CollectiveTimes> all = calls_;
    std::size_t last = calls_.size();
    for (std::size_t c = 0; c < calls_.size(); ++c)
      if (calls_[c].collective == kind) last = c;
    for (std::size_t c = 0; c < calls_.size(); ++c)
      if (c != last) calls_[c].collective = Collective::barrier;
    const double time = seconds(kind, repeats);
    calls_ = all;
    return time;
  }

 private:
  Work start(std::size_t c) {
    Buffer whole{memory_[c].data, calls_[c].bytes / 4, Dtype::f32};
    Buffer part = whole;
    part.count = whole.count / static_cast<std::size_t>(group_->size());
    part.data =
        static_cast<float*>(whole.data) + part.count * static_cast<std::size_t>(group_->rank());
    if (calls_[c].collective == Collective::reduce_scatter)
      return group_->reduce_scatter_async(whole, part, ReduceOp::sum);
    if (calls_[c].collective == Collective::all_gather)
      return group_->all_gather_async(part, whole);
    return group_->all_reduce_async(whole, ReduceOp::sum);
  }

  std::shared_ptr<Group> group_;
  std::vector<train::CollectiveTimes> calls_;
  std::vector<SymmetricMemory> memory_;
};

}  // namespace tutti::bench
