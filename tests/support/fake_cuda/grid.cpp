// run_grid: the threads of a launch as threads of this process.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "support/fake_cuda/kernels.hpp"

namespace tutti::cuda {
namespace {

// One block: its shared memory, and where its threads wait for each other.
class Block : public kernels::Crew {
 public:
  explicit Block(int threads) : threads_(threads) {}
  void sync() override { any(false); }
  // A round's answer stays until the next round is complete, for which every thread has to be back.
  bool any(bool here) override {
    std::unique_lock lock(mutex_);
    votes_ = votes_ || here;
    if (++arrived_ == threads_) {
      answer_ = std::exchange(votes_, false);
      arrived_ = 0;
      ++round_;
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&, round = round_] { return round_ != round; });
    }
    return answer_;
  }

 private:
  const int threads_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int arrived_ = 0;
  unsigned round_ = 0;
  bool votes_ = false;
  bool answer_ = false;
};

}  // namespace

void run_grid(const std::function<void(const kernels::Worker&)>& body, GridSize size) {
  for (int first = 0; first < size.blocks; first += size.at_once) {
    std::deque<Block> blocks;
    std::vector<std::thread> threads;
    const int end = std::min(first + size.at_once, size.blocks);
    for (int b = first; b < end; ++b) {
      Block& block = blocks.emplace_back(size.threads);
      for (int t = 0; t < size.threads; ++t)
        threads.emplace_back([&body, &block, &size, b, t] {
          body({t, size.threads, b, size.blocks, &block});
        });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

void run_grid(KernelBody kernel, const Phase& phase, GridSize size) {
  std::vector<kernels::Shared> shared(static_cast<std::size_t>(size.blocks));
  run_grid(
      [&](const kernels::Worker& worker) {
        kernel(phase, shared[static_cast<std::size_t>(worker.block)], worker);
      },
      size);
}

}  // namespace tutti::cuda
