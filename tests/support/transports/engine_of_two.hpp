// support/transports/engine_of_two.hpp - rank 0's engine, with rank 1's end of the link in the test's hands.
#pragma once

#include <gtest/gtest.h>

#include "engine/engine.hpp"
#include "support/transports/inproc_endpoints.hpp"

namespace tutti::test {

class EngineOfTwo : public testing::Test {
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
    options.failures = failures_;
    engine_ = engine::Engine::create(std::move(options));
  }

  // A group of both.
  std::shared_ptr<engine::Channel> open(std::uint32_t id) {
    engine::ChannelOptions options;
    options.id = id;
    options.members = {0, 1};
    options.host_of = {0, 0};
    return engine_->open_channel(std::move(options));
  }

  std::shared_ptr<engine::FailureSink> failures_;  // to be set before SetUp; null: nobody is told
  std::unique_ptr<transport::Endpoint> peer_;
  std::shared_ptr<engine::Engine> engine_;
};

}  // namespace tutti::test
