// A group that has failed is reported once, and before its owner is rid of it: a process that ends on the
// error takes the thread that writes with it.
#include <atomic>
#include <thread>

#include "support/transports/engine_of_two.hpp"

namespace tutti::engine {
namespace {

using namespace std::chrono_literals;

struct SlowReports final : FailureSink {
  void on_failure(const Channel&, const Status&) override { heard = true; }
  void report_failure(const Channel&, const Status&) override {
    std::this_thread::sleep_for(100ms);
    ++written;
  }
  void on_activity(const Activity&) override {}

  std::atomic<bool> heard = false;
  std::atomic<int> written = 0;
};

class FailureReport : public test::EngineOfTwo {
 protected:
  void SetUp() override {
    failures_ = reports_;
    EngineOfTwo::SetUp();
    if (HasFatalFailure()) return;
    channel_ = open(1);
  }

  std::shared_ptr<SlowReports> reports_ = std::make_shared<SlowReports>();
  std::shared_ptr<Channel> channel_;
  const Status lost_{Code::peer_lost, "rank 1 is gone", {0, 1, 0}};
  const Status destroyed_{Code::aborted, "the group was destroyed"};
};

TEST_F(FailureReport, is_made_at_the_end_where_nobody_has_stepped_since) {
  channel_->fail(lost_, false);
  channel_->end(destroyed_);
  EXPECT_EQ(reports_->written, 1);
  engine_->step();
  EXPECT_EQ(reports_->written, 1) << "once";
  EXPECT_EQ(channel_->health().code(), Code::peer_lost);
}

TEST_F(FailureReport, is_waited_for_when_another_thread_makes_it) {
  channel_->fail(lost_, false);
  std::thread other([&] { engine_->step(); });
  while (!reports_->heard) std::this_thread::yield();
  channel_->end(destroyed_);
  EXPECT_EQ(reports_->written, 1);
  other.join();
}

TEST_F(FailureReport, is_none_of_a_group_that_was_well) {
  channel_->end(destroyed_);
  engine_->step();
  EXPECT_FALSE(reports_->heard);
  EXPECT_EQ(reports_->written, 0);
}

}  // namespace
}  // namespace tutti::engine
