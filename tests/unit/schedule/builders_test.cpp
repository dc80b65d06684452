// Every builder of the catalog, proved for n = 1 … 64, all roots, in place, not, and mixed, as
// built and after each pass.
#include <gtest/gtest.h>

#include "schedule/passes.hpp"
#include "schedule/verify.hpp"
#include "worlds.hpp"

namespace tutti::schedule {
namespace {

class Builders : public testing::TestWithParam<Entry> {};

std::vector<Program> apply(Program (*pass)(Program), std::vector<Program> programs) {
  for (Program& program : programs) program = pass(std::move(program));
  return programs;
}

void expect_same(const Result<VerifyReport>& before, const Result<VerifyReport>& after,
                 std::string what) {
  ASSERT_TRUE(after.ok()) << what << ": " << after.status().to_string();
  EXPECT_EQ(before->expression, after->expression) << what;
  EXPECT_EQ(before->whole_folds, after->whole_folds) << what;
  EXPECT_EQ(before->rank_ordered, after->rank_ordered) << what;
  EXPECT_EQ(before->tree_ordered, after->tree_ordered) << what;
  EXPECT_EQ(before->messages, after->messages) << what;
}

// Proves the programs as built and after the passes, where those change anything.
VerifyReport prove_passes(const Entry& entry, const Request& request, Mode mode) {
  const std::string what = describe(entry, request, mode);
  const auto built = build_world(entry.algorithm, request, mode);
  if (!built.ok()) {
    ADD_FAILURE() << what << ": " << built.status().to_string();
    return {};
  }
  const auto report = verify(*built);
  if (!report.ok()) {
    ADD_FAILURE() << what << ": " << report.status().to_string();
    return {};
  }
  const auto folded = apply(fuse_folds, *built);
  if (folded != *built) expect_same(report, verify(folded), what + ", folds fused");
  return *report;
}

// Where a mode can make a difference: broadcast and barrier have one only, and of rooted
// collectives only the root has both sides, so that a mix is one of the other two.
bool is_worth_building(Mode mode, const Request& request) {
  const Collective collective = request.collective;
  if (collective == Collective::broadcast || collective == Collective::barrier) {
    return mode == Mode::in_place;
  }
  return mode != Mode::mixed || !has_root(collective) || request.size <= 11;
}

// Calls seen(request, report) for every proof.
template <class Seen>
void prove_all(const Entry& entry, ReductionOrder order, Seen seen) {
  const auto prove = [&](const Request& request) {
    for (Mode mode : kModes) {
      if (testing::Test::HasFailure() || !is_worth_building(mode, request)) continue;
      seen(request, prove_passes(entry, request, mode));
    }
  };
  each_request(entry, 1, most_ranks(), prove, order);
}

TEST_P(Builders, every_size_and_root_is_proved_as_built_and_after_each_pass) {
  const Entry& entry = GetParam();
  bool always_whole = true, always_ordered = true, ever = false;
  prove_all(entry, ReductionOrder::any, [&](const Request&, const VerifyReport& report) {
    always_whole &= report.whole_folds;
    always_ordered &= report.rank_ordered;
    ever = true;
  });
  EXPECT_TRUE(ever);
  // The claim is exact: an entry that says no must have a size at which it is not.
  EXPECT_EQ(always_whole, entry.folds == FoldedFrom::whole);
  EXPECT_EQ(always_ordered, entry.folds != FoldedFrom::anyhow);
}

// A claim to keep tree order is right wherever it is made, and it is made by all whose folds are whole.
TEST_P(Builders, tree_order_is_proved_where_it_is_claimed) {
  const Entry& entry = GetParam();
  if (!has_reduction(entry.collective)) return;
  const bool whole = entry.folds == FoldedFrom::whole;
  bool ever = false;
  const auto look = [&](const Request& request, const VerifyReport& report) {
    if (!entry.keeps_order(request)) return;
    ever = true;
    EXPECT_TRUE(report.tree_ordered) << describe(entry, request, Mode::in_place);
    if (whole) {
      EXPECT_TRUE(report.whole_folds) << describe(entry, request, Mode::in_place);
    }
  };
  if (whole || entry.balanced) prove_all(entry, ReductionOrder::tree, look);
  EXPECT_EQ(ever, whole || entry.balanced != nullptr);
}

std::string name_of(const testing::TestParamInfo<Entry>& info) {
  return std::string(to_string(info.param.collective)) + "_by_" +
         std::string(to_string(info.param.algorithm));
}
INSTANTIATE_TEST_SUITE_P(Catalog, Builders, testing::ValuesIn(catalog()), name_of);

}  // namespace
}  // namespace tutti::schedule
