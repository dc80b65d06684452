// A group that is being made fails with the one that it is made from; one that is made stands alone.
#include "support/transports/engine_of_two.hpp"

namespace tutti::simulation {
namespace {

class BringingUp : public test::EngineOfTwo {
 protected:
  void SetUp() override {
    EngineOfTwo::SetUp();
    if (HasFatalFailure()) return;
    parent_ = open(1);
    child_ = open(2);
  }

  const Status failure_{Code::aborted, "for good reasons"};
  std::shared_ptr<engine::Channel> parent_, child_;
};

TEST_F(BringingUp, ends_with_the_parent) {
  parent_->bring_up(child_);
  parent_->fail(failure_, true);
  EXPECT_EQ(child_->health().message(), failure_.message());
}

TEST_F(BringingUp, fails_at_once_under_a_failed_parent) {
  parent_->fail(failure_, true);
  parent_->bring_up(child_);
  EXPECT_EQ(child_->health().message(), failure_.message());
}

TEST_F(BringingUp, is_over_once_let_go) {
  parent_->bring_up(child_);
  parent_->let_go(*child_);
  parent_->fail(failure_, true);
  EXPECT_TRUE(child_->health().ok());
}

}  // namespace
}  // namespace tutti::simulation
