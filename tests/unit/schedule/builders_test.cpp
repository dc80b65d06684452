// Every builder of the catalog, proved for n = 1 … 64, all roots, in place, not, and mixed, as built
// and after each pass.
#include <gtest/gtest.h>

#include <chrono>

#include "schedule/passes.hpp"
#include "schedule/verify.hpp"
#include "worlds.hpp"

namespace tutti::schedule {
namespace {

constexpr int kMost = 64;

class Builders : public testing::TestWithParam<Entry> {};

std::vector<Program> apply(Program (*pass)(Program), std::vector<Program> programs) {
  for (Program& program : programs) program = pass(std::move(program));
  return programs;
}

// Proves the programs as built and after the passes; returns what was found first.
Report prove(const Entry& entry, const Request& request, Mode mode) {
  const std::string what = describe(entry, request, mode);
  auto programs = build_world(entry.algorithm, request, mode);
  if (!programs.ok()) {
    ADD_FAILURE() << what << ": " << programs.status().to_string();
    return {};
  }
  const auto as_built = verify(*programs);
  const auto folded = apply(fuse_folds, *programs);
  const auto put = apply(fuse_puts, folded);
  const auto after_folds = verify(folded);
  const auto after_puts = verify(put);
  EXPECT_TRUE(as_built.ok()) << what << ": " << as_built.status().to_string();
  EXPECT_TRUE(after_folds.ok()) << what << ", folds fused: " << after_folds.status().to_string();
  EXPECT_TRUE(after_puts.ok()) << what << ", puts fused: " << after_puts.status().to_string();
  if (!as_built.ok() || !after_folds.ok() || !after_puts.ok()) return {};
  EXPECT_EQ(as_built->expression, after_puts->expression) << what;
  EXPECT_EQ(as_built->rank_ordered, after_puts->rank_ordered) << what;
  EXPECT_EQ(as_built->messages, after_puts->messages) << what;
  return *as_built;
}

TEST_P(Builders, every_size_and_root_is_proved_as_built_and_after_each_pass) {
  const Entry& entry = GetParam();
  bool always_ordered = true, ever = false;
  each_request(entry, 1, kMost, [&](const Request& request) {
    for (Mode mode : kModes) {
      if (HasFailure()) return;
      const Report report = prove(entry, request, mode);
      always_ordered &= report.rank_ordered;
      ever = true;
    }
  });
  EXPECT_TRUE(ever);
  // The claim is exact: an entry that says no must have a size at which it is not.
  EXPECT_EQ(always_ordered, entry.rank_ordered);
}

std::string name_of(const testing::TestParamInfo<Entry>& info) {
  return std::string(to_string(info.param.collective)) + "_by_" +
         std::string(to_string(info.param.algorithm));
}
INSTANTIATE_TEST_SUITE_P(Catalog, Builders, testing::ValuesIn(catalog()), name_of);

}  // namespace
}  // namespace tutti::schedule
