// A long run must not grow.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "support/worlds.hpp"
#include "train/toy_run.hpp"

namespace tutti::test {
namespace {

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

TEST(Memory, of_a_rank_does_not_grow_from_step_100_to_step_1000) {
  const int steps = reduced() ? 200 : 1000;
  run(World{.kind = WorldKind::shm, .size = 2, .limit = std::chrono::seconds(240)},
      [steps](Context& here) {
        ToyRun toy;
        toy.options = five_modes()[4].options;
        toy.options.bucket_bytes = 2000;
        toy.asynchronous_log = true;
        toy.steps = steps;
        double early = 0;
        toy.look = [&](int step, train::DataParallel& layer, const train::StepReport&) {
          (void)layer.take_times();
          if (step == 100) early = resident_mib();
        };
        const auto outcome = train_toy(here.group, toy);
        ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
        // A sanitizer keeps what is freed for a while.
        if (!reduced()) {
          EXPECT_LT(resident_mib(), 1.01 * early + 0.1);
        }
      });
}

}  // namespace
}  // namespace tutti::test
