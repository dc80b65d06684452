// A group that is being made fails with the one that it is made from; one that is made stands alone.
#include <gtest/gtest.h>

#include "engine/engine.hpp"
#include "support/transports/inproc_endpoints.hpp"

namespace tutti::simulation {
namespace {

class BringingUp : public testing::Test {
 protected:
  void SetUp() override {
    Config config;
    config.progress_thread = false;
    auto endpoints = transport::make_inproc_endpoints(2, config);
    ASSERT_TRUE(endpoints.ok()) << endpoints.status().to_string();
    peer_ = std::move((*endpoints)[1]);
    engine::EngineOptions options;
    options.endpoint = std::move((*endpoints)[0]);
    options.config = config;
    engine_ = engine::Engine::create(std::move(options));
    parent_ = open(1);
    child_ = open(2);
  }

  std::shared_ptr<engine::Channel> open(std::uint32_t id) {
    engine::ChannelOptions options;
    options.id = id;
    options.members = {0, 1};
    options.host_of = {0, 0};
    return engine_->open_channel(std::move(options));
  }

  const Status failure_{Code::aborted, "for good reasons"};
  std::unique_ptr<transport::Endpoint> peer_;
  std::shared_ptr<engine::Engine> engine_;
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
