// One of many ranks: joins, does one all_reduce, and says what that took. With "wait" it stays until one of the
// others is gone; "threads N" has N of them in this process.
#include <dirent.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// All that this process has open, but for the folder that is read here.
int open_descriptors() {
  DIR* folder = ::opendir("/proc/self/fd");
  int count = -3;  // itself, "." and ".."
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

long resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmRSS:", 0) == 0) return std::atol(line.c_str() + 6);
  return -1;
}

int fail(const tutti::Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 3;
}

// All of them as threads of this process.
int run_threads(int ranks) {
  const auto begin = Clock::now();
  auto store = tutti::make_memory_store();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      tutti::GroupOptions options;
      options.rank = rank;
      options.size = ranks;
      tutti::Config config;
      config.transport = "inproc";
      config.tuning = "fixed";
      options.config = config;
      auto group = tutti::Group::create(store, options);
      if (!group.ok()) return (void)fail(group.status());
      std::vector<double> sum{double(rank)};
      const auto status = (*group)->all_reduce(tutti::Buffer::of(sum), tutti::ReduceOp::sum);
      if (!status.ok()) return (void)fail(status);
      right += sum[0] == double(ranks) * (ranks - 1) / 2;
      if (rank == 0)
        std::printf("%d threads joined and reduced in %.2f s, %d descriptors, %ld MiB\n", ranks,
                    seconds_since(begin), open_descriptors(), resident_kib() >> 10);
      if (const auto left = (*group)->barrier(); !left.ok()) fail(left);
    });
  for (std::thread& thread : threads) thread.join();
  std::printf("%d of %d right, %.2f s\n", right.load(), ranks, seconds_since(begin));
  return right == ranks ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  if (count == 3 && std::string(words[1]) == "threads") return run_threads(std::atoi(words[2]));
  const auto begin = Clock::now();
  auto group = tutti::Group::from_environment();
  if (!group.ok()) return fail(group.status());
  const double joined = seconds_since(begin);
  std::vector<double> sum{double((*group)->rank())};
  if (auto status = (*group)->all_reduce(tutti::Buffer::of(sum), tutti::ReduceOp::sum);
      !status.ok())
    return fail(status);
  const double reduced = seconds_since(begin);
  const double n = (*group)->size();
  const bool is_right = sum[0] == n * (n - 1) / 2;
  std::printf("rank %d pid %d joined %.2f reduced %.2f descriptors %d kib %ld %s\n",
              (*group)->rank(), static_cast<int>(::getpid()), joined, reduced, open_descriptors(),
              resident_kib(), is_right ? "right" : "WRONG");
  std::fflush(stdout);
  if (count > 1) {
    char nothing = 0;
    const auto got = (*group)->recv(tutti::Buffer::of(&nothing, 1), tutti::kAnySource);
    return fail(got.status());
  }
  if (auto status = (*group)->barrier(); !status.ok()) return fail(status);
  return is_right ? 0 : 1;
}
