// Whose word the links of a group go by, and that the store does not carry what it need not.
#include "group/link_secret.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "core/auth.hpp"
#include "core/sockets.hpp"

namespace tutti::group {
namespace {

using testing::HasSubstr;

const std::string kLaunched(32, 'l');
const std::string kGiven(32, 'g');

// As torch's: whoever reaches it can read it.
class OpenStore final : public Store {
 public:
  Status set(const std::string&, const std::string&) override { return {}; }
  Result<std::string> get(const std::string&, std::chrono::milliseconds) override {
    return unused();
  }
  Status wait(const std::string&, std::chrono::milliseconds) override { return unused(); }
  Result<std::int64_t> add(const std::string&, std::int64_t) override { return unused(); }
  Result<std::string> compare_set(const std::string&, const std::string&,
                                  const std::string&) override {
    return unused();
  }
  Result<bool> remove(const std::string&) override { return unused(); }

 private:
  static Status unused() { return {Code::unsupported, "not asked"}; }
};

class LinkSecretTest : public testing::Test {
 protected:
  Result<LinkSecret> find(const Store& store, const std::string& variable = "",
                          const std::string& value = "") {
    return LinkSecret::find(
        store, options_,
        [&](const std::string& name) {
          return name == variable ? std::optional(value) : std::nullopt;
        },
        log_);
  }
  void open_log(const std::string& path) {
    Config config;
    config.debug = "WARN";
    config.debug_file = path;
    log_ = *Log::open(config);
  }

  GroupOptions options_ = [] {
    GroupOptions options;
    options.rank = 0;
    options.size = 2;
    return options;
  }();
  Log log_;
  OpenStore open_;
};

TEST_F(LinkSecretTest, the_launchers_secret_does_not_go_through_an_open_store) {
  const Descriptor descriptor(*make_secret_descriptor(kLaunched));
  const auto secret = find(open_, "TUTTI_SECRET_FD", std::to_string(descriptor.get()));
  ASSERT_TRUE(secret.ok()) << secret.status().to_string();
  EXPECT_EQ(secret->word(), "given");
  const auto key = secret->key("given", options_, "epoch 01");
  ASSERT_TRUE(key.ok());
  EXPECT_NE(key->text(), secret->key("given", options_, "epoch 02")->text());
  options_.name = "another group";
  EXPECT_NE(key->text(), secret->key("given", options_, "epoch 01")->text());
}

TEST_F(LinkSecretTest, what_the_program_gives_comes_first_and_must_not_be_short) {
  const Descriptor descriptor(*make_secret_descriptor(kLaunched));
  const auto key = [&] {
    const auto secret = find(open_, "TUTTI_SECRET_FD", std::to_string(descriptor.get()));
    return secret->key("given", options_, "e")->text();
  };
  const std::string launched = key();
  options_.secret = kGiven;
  EXPECT_NE(key(), launched);
  options_.secret = "short";
  EXPECT_EQ(find(open_).status().code(), Code::invalid_argument);
}

TEST_F(LinkSecretTest, a_store_that_asks_for_a_secret_lends_it_through_prefixes_too) {
  auto server = StoreServer::listen("127.0.0.1:0", kGiven);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  auto store = connect_store((*server)->address(), kGiven, std::chrono::seconds(20));
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  EXPECT_EQ(find(*make_prefix_store("a/", *store))->word(), "given");
  // In memory nobody else can look: rank 0's own goes through it.
  EXPECT_EQ(find(*make_memory_store())->word().size(), kSecretBytes);
}

TEST_F(LinkSecretTest, an_open_store_without_a_secret_is_said_once_and_loudly) {
  const std::string path = testing::TempDir() + "open_store_" + std::to_string(::getpid());
  open_log(path);
  for (int time = 0; time < 2; ++time) EXPECT_EQ(find(open_)->word().size(), kSecretBytes);
  std::ifstream file(path);
  const std::string said(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(said, HasSubstr("ANYONE WHO REACHES ITS STORE CAN JOIN"));
  EXPECT_EQ(said.find('\n'), said.size() - 1) << said;
  std::remove(path.c_str());
}

// As behind a program that closes what it does not know.
TEST_F(LinkSecretTest, a_descriptor_that_is_gone_does_not_open_the_group_to_everybody) {
  const auto secret = find(open_, "TUTTI_SECRET_FD", "999");
  ASSERT_EQ(secret.status().code(), Code::io);
  EXPECT_THAT(secret.status().message(), HasSubstr("pass it on, or set TUTTI_SECRET_FILE"));
}

TEST_F(LinkSecretTest, a_rank_never_takes_from_the_store_what_it_has_itself) {
  options_.secret = kGiven;
  const auto mine = find(open_);
  const auto refused = mine->key(std::string(kSecretBytes, 'x'), options_, "e");
  EXPECT_EQ(refused.status().code(), Code::mismatch);
  options_.secret.clear();
  EXPECT_EQ(find(open_)->key("given", options_, "e").status().code(), Code::mismatch);
}

}  // namespace
}  // namespace tutti::group
