// Weights that are handed over: whole versions only, whoever is killed, in every kind of world.
#include "tutti/train/hand_over.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "hand_over/invitation.hpp"
#include "hand_over/weight_layout.hpp"
#include "support/device_group.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using train::NamedTensor;
using train::WeightReceiver;
using train::WeightSender;

constexpr int kTrainer = 0;
constexpr int kVictim = 1;

// Tensors in which every element says the version.
class Weights {
 public:
  explicit Weights(std::size_t count = 300'007)
      : large_(count), small_(17), half_(1001), bytes_(3) {}
  std::vector<NamedTensor> filled(std::uint64_t version) {
    std::fill(large_.begin(), large_.end(), static_cast<float>(version));
    std::fill(small_.begin(), small_.end(), static_cast<float>(version));
    std::fill(half_.begin(), half_.end(), static_cast<std::uint16_t>(version));
    std::fill(bytes_.begin(), bytes_.end(), static_cast<std::int64_t>(version));
    const auto count = static_cast<std::int64_t>(large_.size());
    return {{"large", {count}, ConstBuffer::of(large_)},
            {"small", {17, 1}, ConstBuffer::of(small_)},
            {"half", {7, 143}, ConstBuffer(half_.data(), half_.size(), Dtype::bf16)},
            {"empty", {0, 5}, ConstBuffer::of(static_cast<const float*>(nullptr), 0)},
            {"longs", {3}, ConstBuffer::of(bytes_)}};
  }

 private:
  std::vector<float> large_, small_;
  std::vector<std::uint16_t> half_;
  std::vector<std::int64_t> bytes_;
};

template <class T>
std::size_t other_than(const NamedTensor& tensor, T value) {
  const T* values = static_cast<const T*>(tensor.values.data);
  const auto same = std::count(values, values + tensor.values.count, value);
  return tensor.values.count - static_cast<std::size_t>(same);
}

// All of what is shown is of one version.
void expect_whole(const WeightReceiver& receiver) {
  const std::uint64_t version = receiver.version();
  ASSERT_EQ(receiver.weights().size(), 5u);
  EXPECT_EQ(receiver.weights()[2].name, "half");
  EXPECT_EQ(receiver.weights()[2].shape, (std::vector<std::int64_t>{7, 143}));
  EXPECT_EQ(other_than(receiver.weights()[0], static_cast<float>(version)), 0u);
  EXPECT_EQ(other_than(receiver.weights()[1], static_cast<float>(version)), 0u);
  EXPECT_EQ(other_than(receiver.weights()[2], static_cast<std::uint16_t>(version)), 0u);
  EXPECT_EQ(other_than(receiver.weights()[4], static_cast<std::int64_t>(version)), 0u);
}

std::vector<int> everybody_else(const Context& here) {
  std::vector<int> receivers;
  for (int rank = 1; rank < here.size; ++rank) receivers.push_back(rank);
  return receivers;
}

// Rounds go by what the world's groups go by.
Config config_of(const Context& here) {
  Config config;
  config.timeout = std::chrono::seconds(40);
  config.debug = "off";
  config.transport = here.world.kind == WorldKind::threads ? "inproc" : to_string(here.world.kind);
  if (here.world.tune) here.world.tune(config);
  return config;
}

std::unique_ptr<WeightSender> sender_of(Context& here, std::size_t bucket_bytes = 100'000) {
  auto sender = WeightSender::create(*here.group, kTrainer, everybody_else(here),
                                     {.bucket_bytes = bucket_bytes, .config = config_of(here)});
  EXPECT_TRUE(sender.ok()) << sender.status().to_string();
  return sender.ok() ? *std::move(sender) : nullptr;
}

std::unique_ptr<WeightReceiver> receiver_of(Context& here) {
  auto receiver = WeightReceiver::create(*here.group, kTrainer, everybody_else(here),
                                         {.config = config_of(here)});
  EXPECT_TRUE(receiver.ok()) << receiver.status().to_string();
  return receiver.ok() ? *std::move(receiver) : nullptr;
}

// Polls until that version is there, or the trainer is lost; every version seen must be whole.
Status follow(WeightReceiver& receiver, std::uint64_t until) {
  while (receiver.version() < until) {
    const std::uint64_t before = receiver.version();
    const auto newer = receiver.poll();
    if (!newer.ok()) return newer.status();
    EXPECT_EQ(*newer, receiver.version() > before);
    if (receiver.version() > 0) expect_whole(receiver);
    if (testing::Test::HasFailure()) return {Code::internal, "a version was not whole"};
    if (!*newer) std::this_thread::yield();
  }
  return {};
}

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

// All but one of them, who is counted when it cannot come any more.
void meet_others(Context& here, const std::string& where) {
  ASSERT_TRUE(here.store->add(where, 1).ok());
  const std::int64_t all = where == "stopped" ? here.size : here.size - 1;
  while (*here.store->add(where, 0) < all) std::this_thread::sleep_for(1ms);
}

class HandOver : public WorldTest {
 protected:
  void SetUp() override {
    // Receivers look at works and do not wait for them, which is when mirrors are brought back.
    if (wants_device()) GTEST_SKIP() << "cannot be mirrored; hand_over_gpu_test.cpp is about GPUs";
    WorldTest::SetUp();
  }
};

TEST_P(HandOver, every_receiver_sees_only_whole_versions_while_the_trainer_races) {
  in_world([](Context& here) {
    constexpr std::uint64_t kVersions = 40;
    if (here.rank == kTrainer) {
      auto sender = sender_of(here);
      Weights weights;
      for (std::uint64_t version = 1; version <= kVersions; ++version) {
        const Status status = sender->send(version, weights.filled(version));
        ASSERT_TRUE(status.ok()) << status.to_string();
        // What was lent to send() is the caller's again at once.
        (void)weights.filled(9999);
      }
      ASSERT_TRUE(sender->flush().ok());
      EXPECT_TRUE(sender->lost().empty());
      meet(here);
    } else {
      auto receiver = receiver_of(here);
      EXPECT_EQ(receiver->version(), 0u);
      EXPECT_TRUE(receiver->weights().empty());
      const Status status = follow(*receiver, kVersions);
      EXPECT_TRUE(status.ok()) << status.to_string();
      meet(here);
    }
  });
}

TEST_P(HandOver, a_new_layout_is_told_and_bucket_sizes_do_not_matter) {
  in_world([](Context& here) {
    for (std::size_t bucket_bytes : {std::size_t{1000}, std::size_t{1} << 24}) {
      if (here.rank == kTrainer) {
        auto sender = sender_of(here, bucket_bytes);
        Weights few(10), many(20'000);
        ASSERT_TRUE(sender->send(3, few.filled(3)).ok());
        ASSERT_TRUE(sender->send(5, many.filled(5)).ok());
        ASSERT_TRUE(sender->send(8, many.filled(8)).ok());
        ASSERT_TRUE(sender->send(9, {}).ok());
        ASSERT_TRUE(sender->send(11, few.filled(11)).ok());
        ASSERT_TRUE(sender->flush().ok());
        EXPECT_TRUE(sender->lost().empty());
        meet(here, "end" + std::to_string(bucket_bytes));
      } else {
        auto receiver = receiver_of(here);
        for (std::uint64_t version : {3, 5, 8, 9, 11}) {
          const Status status = receiver->wait_for(version, 30s);
          ASSERT_TRUE(status.ok()) << status.to_string();
          ASSERT_GE(receiver->version(), version);  // on a busy machine it may have come too late
          if (receiver->version() != version) continue;
          if (version == 9) {
            EXPECT_TRUE(receiver->weights().empty());
            continue;
          }
          expect_whole(*receiver);
          EXPECT_EQ(receiver->weights()[0].values.count,
                    version == 3 || version == 11 ? 10u : 20'000u);
        }
        meet(here, "end" + std::to_string(bucket_bytes));
      }
    }
  });
}

TEST_P(HandOver, a_receiver_that_does_not_look_skips_versions_and_holds_up_nobody) {
  in_world([](Context& here) {
    if (here.rank == kTrainer) {
      auto sender = sender_of(here);
      Weights weights(1000);
      for (std::uint64_t version = 1; version <= 5; ++version) {
        ASSERT_TRUE(sender->send(version, weights.filled(version)).ok());
        ASSERT_TRUE(sender->flush().ok());
      }
      EXPECT_TRUE(sender->lost().empty());
      for (const train::AttachedReceiver& each : sender->receivers()) {
        EXPECT_EQ(each.version, 5u);
        EXPECT_THAT(each.where, HasSubstr("pid "));
      }
      EXPECT_EQ(sender->receivers().size(), 2u);
      meet(here, "all sent");
      meet(here);
    } else {
      auto receiver = receiver_of(here);
      if (here.rank == 2) {
        EXPECT_TRUE(follow(*receiver, 5).ok());
      }
      meet(here, "all sent");
      EXPECT_TRUE(receiver->wait_for(5, 30s).ok());
      EXPECT_EQ(receiver->version(), 5u);
      expect_whole(*receiver);
      meet(here);
    }
  });
}

TEST_P(HandOver, waiting_for_a_version_that_does_not_come_ends_in_time_and_harms_nothing) {
  in_world([](Context& here) {
    if (here.rank == kTrainer) {
      auto sender = sender_of(here);
      meet(here, "nothing came");
      Weights weights;
      ASSERT_TRUE(sender->send(1, weights.filled(1)).ok());
      ASSERT_TRUE(sender->flush().ok());
      meet(here);
    } else {
      auto receiver = receiver_of(here);
      const auto newer = receiver->poll();
      EXPECT_TRUE(newer.ok() && !*newer);
      const Status status = receiver->wait_for(1, 20ms);
      EXPECT_EQ(status.code(), Code::timed_out) << status.to_string();
      meet(here, "nothing came");
      EXPECT_TRUE(receiver->wait_for(1, 30s).ok());
      expect_whole(*receiver);
      meet(here);
    }
  });
}

TEST_P(HandOver, a_trainer_that_ends_leaves_its_last_version) {
  in_world([](Context& here) {
    if (here.rank == kTrainer) {
      auto sender = sender_of(here);
      Weights weights;
      ASSERT_TRUE(sender->send(6, weights.filled(6)).ok());
      sender.reset();  // what is on its way gets there
      meet(here);
    } else {
      auto receiver = receiver_of(here);
      EXPECT_TRUE(receiver->wait_for(6, 30s).ok());
      const Status status = receiver->wait_for(7, 30s);
      EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
      EXPECT_EQ(receiver->version(), 6u);
      expect_whole(*receiver);
      meet(here);
    }
  });
}

// A trainer, message by message.
TEST_P(HandOver, a_version_is_shown_only_when_the_trainer_has_confirmed_it) {
  in_world([](Context& here) {
    using namespace hand_over;
    if (here.rank == 2) {
      for (const char* where : {"sent3", "looked3", "sent5", "looked5", "meeting"})
        meet(here, where);
    } else if (here.rank == kTrainer) {
      const auto config = config_for_rounds({});
      auto door = Entrance::open("", "", *config, true);
      ASSERT_TRUE(door.ok()) << door.status().to_string();
      ASSERT_TRUE(invite(*here.group, 1, **door).ok());
      std::vector<Word> words;
      while (words.empty()) words = *(*door)->hear();
      const Place place{1, kTrainer, 2};
      ASSERT_TRUE(*(*door)->is_coming(words[0].ticket));
      ASSERT_TRUE((*door)->give_place(words[0].ticket, {1, 1, 2}).ok());
      auto group = join_round((*door)->store(), place, here.group->name() + "/weights", *config);
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      const auto say = [&](const void* data, std::size_t bytes, Tag tag) {
        EXPECT_TRUE((*group)->send({data, bytes, Dtype::u8}, 1, tag).ok());
      };
      const std::vector<float> values(100, 3.0F);
      const std::vector<NamedTensor> weights = {{"a", {100}, ConstBuffer::of(values)}};
      const auto layout = layout_of(weights);
      Announcement announcement;
      announcement.layout_hash = layout->hash;
      announcement.layout_bytes = layout->text.size();
      announcement.bytes = layout->bytes;
      announcement.bucket_bytes = 1000;
      announcement.buckets = 1;
      for (const std::uint64_t version : {3, 5}) {
        announcement.version = version;
        say(&announcement, sizeof announcement, kAnnouncement);
        if (version == 3) say(layout->text.data(), layout->text.size(), kLayout);
        announcement.layout_bytes = 0;
        say(values.data(), layout->bytes, kBucket);
        meet(here, "sent" + std::to_string(version));
        meet(here, "looked" + std::to_string(version));
        const std::uint64_t end = version == 3 ? 3 : 4;
        say(&end, sizeof end, kEnd);
      }
      meet(here);
    } else {
      const int receivers[] = {1};
      auto receiver = WeightReceiver::create(*here.group, kTrainer, receivers);
      ASSERT_TRUE(receiver.ok()) << receiver.status().to_string();
      for (const std::uint64_t version : {3, 5}) {
        // The buckets have to be taken for the trainer to come so far.
        const auto newer = (*receiver)->wait_for(version, 50ms);
        EXPECT_EQ(newer.code(), Code::timed_out) << newer.to_string();
        meet(here, "sent" + std::to_string(version));
        EXPECT_EQ((*receiver)->wait_for(version, 20ms).code(), Code::timed_out);
        meet(here, "looked" + std::to_string(version));
        const Status status = (*receiver)->wait_for(version, 30s);
        EXPECT_EQ(status.code(), version == 3 ? Code::ok : Code::corrupt) << status.to_string();
        EXPECT_EQ((*receiver)->version(), 3u);
      }
      meet(here);
    }
  });
}

TEST_P(HandOver, wrong_arguments_are_named) {
  in_world([](Context& here) {
    const int missing[] = {here.size};
    const int twice[] = {1, 1};
    if (here.rank == kTrainer) {
      EXPECT_THAT(WeightSender::create(*here.group, 0, missing).status().message(),
                  HasSubstr("receiver " + std::to_string(here.size)));
      EXPECT_THAT(WeightSender::create(*here.group, 0, twice).status().message(),
                  HasSubstr("twice"));
      EXPECT_EQ(WeightSender::create(*here.group, 1, twice).status().code(),
                Code::invalid_argument);
      auto sender = sender_of(here);
      Weights weights;
      auto tensors = weights.filled(1);
      EXPECT_EQ(sender->send(0, tensors).code(), Code::invalid_argument);
      EXPECT_TRUE(sender->send(4, tensors).ok());
      EXPECT_THAT(sender->send(4, tensors).message(), HasSubstr("not newer than 4"));
      tensors[1].shape = {16};
      EXPECT_THAT(sender->send(5, tensors).message(), HasSubstr("'small'"));
      tensors[1].shape = {17};
      tensors[1].name = "large";
      EXPECT_THAT(sender->send(5, tensors).message(), HasSubstr("twice"));
      ASSERT_TRUE(sender->flush().ok());
      meet(here);
    } else {
      EXPECT_EQ(WeightReceiver::create(*here.group, 0, missing).status().code(),
                Code::invalid_argument);
      EXPECT_EQ(
          WeightReceiver::create(*here.group, here.rank, everybody_else(here)).status().code(),
          Code::invalid_argument);
      auto receiver = receiver_of(here);
      EXPECT_TRUE(receiver->wait_for(4, 30s).ok());
      meet(here);
    }
  });
}

// A file with a secret of its own for each text.
std::string secret_file(const std::string& text) {
  const std::string path = testing::TempDir() + "secret." + text + "." + std::to_string(getpid()) +
                           "." + std::to_string(gettid());
  const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  const std::string secret = text + " secret of at least sixteen bytes";
  EXPECT_EQ(write(file, secret.data(), secret.size()), static_cast<ssize_t>(secret.size()));
  close(file);
  return path;
}

std::unique_ptr<WeightReceiver> attached(Context& here, const std::string& address) {
  const std::string secret = secret_file("right");
  auto receiver = WeightReceiver::attach(address, secret, {.config = config_of(here)});
  EXPECT_TRUE(receiver.ok()) << receiver.status().to_string();
  unlink(secret.c_str());
  return receiver.ok() ? *std::move(receiver) : nullptr;
}

TEST_P(HandOver, receivers_of_other_jobs_come_and_go_while_versions_are_sent) {
  in_world([](Context& here) {
    if (here.rank == kTrainer) {
      const std::string secret = secret_file("right");
      auto made = WeightSender::listen(
          {.address = "127.0.0.1:0", .secret_file = secret, .config = config_of(here)});
      unlink(secret.c_str());
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      WeightSender& sender = **made;
      ASSERT_TRUE(here.store->set("address", sender.address()).ok());
      Weights weights(1000);
      ASSERT_TRUE(sender.send(1, weights.filled(1)).ok());
      ASSERT_TRUE(sender.flush().ok());  // with nobody there
      for (std::uint64_t version = 2; version <= 4; ++version) {
        meet(here, "before" + std::to_string(version));
        ASSERT_TRUE(sender.send(version, weights.filled(version)).ok());
        meet(here, "have" + std::to_string(version));
      }
      EXPECT_TRUE(sender.lost().empty()) << sender.lost()[0].second.to_string();
      EXPECT_EQ(sender.receivers().size(), 2u);
      made->reset();
      meet(here);
    } else {
      const std::string address = *here.store->get("address", 30s);
      const std::string wrong = secret_file("wrong");
      EXPECT_FALSE(WeightReceiver::attach(address, wrong, {.patience = 1s}).ok());
      unlink(wrong.c_str());
      auto receiver = attached(here, address);
      EXPECT_TRUE(receiver->wait_for(1, 30s).ok());  // which was sent before it came
      for (std::uint64_t version = 2; version <= 4; ++version) {
        meet(here, "before" + std::to_string(version));
        if (version == 3 && here.rank == 1) receiver.reset();
        if (version == 3 && here.rank == 1) receiver = attached(here, address);
        EXPECT_TRUE(receiver->wait_for(version, 30s).ok());
        expect_whole(*receiver);
        meet(here, "have" + std::to_string(version));
      }
      EXPECT_EQ(receiver->wait_for(5, 30s).code(), Code::peer_lost);
      EXPECT_EQ(receiver->version(), 4u);
      expect_whole(*receiver);
      meet(here);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(World, HandOver,
                         testing::Values(World{.kind = WorldKind::threads, .size = 3},
                                         World{.kind = WorldKind::shm, .size = 3},
                                         World{.kind = WorldKind::tcp, .size = 3}),
                         name_of);

// ---- ranks that are killed

class HandOverLoss : public HandOver {
 protected:
  static World doomed_world(int rank) {
    World world = GetParam();
    world.doomed = {rank};
    return world;
  }
};

TEST_P(HandOverLoss, a_killed_receiver_is_dropped_and_named_and_the_others_get_every_version) {
  run(doomed_world(kVictim), [](Context& here) {
    constexpr std::uint64_t kVersions = 30;
    if (here.rank == kTrainer) {
      auto sender = sender_of(here);
      Weights weights;
      for (std::uint64_t version = 1; version <= kVersions; ++version)
        ASSERT_TRUE(sender->send(version, weights.filled(version)).ok());
      ASSERT_TRUE(sender->flush().ok());
      ASSERT_EQ(sender->lost().size(), 1u);
      EXPECT_EQ(sender->lost()[0].first, kVictim);
      EXPECT_EQ(sender->lost()[0].second.code(), Code::peer_lost)
          << sender->lost()[0].second.to_string();
      EXPECT_THAT(sender->lost()[0].second.message(), HasSubstr("rank 1"));
      ASSERT_TRUE(here.store->set("all sent", "").ok());
    } else {
      auto receiver = receiver_of(here);
      if (here.rank == kVictim) {
        EXPECT_TRUE(follow(*receiver, 5).ok());
        (void)receiver->poll();  // the next one is on its way, perhaps
        die();
      }
      const Status status = follow(*receiver, kVersions);
      EXPECT_TRUE(status.ok()) << status.to_string();
      ASSERT_TRUE(here.store->wait("all sent", 30s).ok());
    }
  });
}

TEST_P(HandOverLoss, a_killed_trainer_leaves_every_receiver_with_its_last_whole_version) {
  run(doomed_world(kTrainer), [](Context& here) {
    if (here.rank == kTrainer) {
      auto sender = sender_of(here);
      Weights weights(2'000'003);
      std::uint64_t version = 1;
      for (; version <= 5; ++version)
        ASSERT_TRUE(sender->send(version, weights.filled(version)).ok());
      ASSERT_TRUE(sender->send(version, weights.filled(version)).ok());
      die();  // with 8 MB under way
    } else {
      auto receiver = receiver_of(here);
      const Status status = follow(*receiver, 1000);
      EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
      EXPECT_GE(receiver->version(), 5u) << "it was sent whole before the sixth began";
      expect_whole(*receiver);
      // And so it stays.
      EXPECT_FALSE(receiver->poll().ok());
      expect_whole(*receiver);
      EXPECT_EQ(receiver->wait_for(1000, 1s).code(), Code::peer_lost);
    }
  });
}

TEST_P(HandOverLoss, a_receiver_that_is_stopped_is_dropped_within_the_timeout) {
  World world = doomed_world(2);
  world.tune = [](Config& config) {
    config.timeout = std::chrono::seconds(3);
    config.dead_after = std::chrono::seconds(0);
  };
  run(world, [](Context& here) {
    if (here.rank == kTrainer) {
      auto sender = sender_of(here);
      ASSERT_TRUE(sender);
      Weights weights;
      ASSERT_TRUE(sender->send(1, weights.filled(1)).ok());
      meet_others(here, "stopped");
      const auto begin = std::chrono::steady_clock::now();
      for (std::uint64_t version = 2; version <= 4; ++version)
        ASSERT_TRUE(sender->send(version, weights.filled(version)).ok());
      ASSERT_TRUE(sender->flush().ok());
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
      ASSERT_EQ(sender->lost().size(), 1u);
      EXPECT_EQ(sender->lost()[0].first, 2);
      EXPECT_EQ(sender->lost()[0].second.code(), Code::timed_out)
          << sender->lost()[0].second.to_string();
      meet_others(here, "end");
    } else {
      auto receiver = receiver_of(here);
      EXPECT_TRUE(receiver->wait_for(1, 30s).ok());
      if (here.rank == 2) {
        EXPECT_TRUE(here.store->add("stopped", 1).ok());
        kill(getpid(), SIGSTOP);
      }
      meet_others(here, "stopped");
      const Status status = receiver->wait_for(4, 30s);
      EXPECT_TRUE(status.ok()) << status.to_string();
      expect_whole(*receiver);
      meet_others(here, "end");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(World, HandOverLoss,
                         testing::Values(World{.kind = WorldKind::shm, .size = 4},
                                         World{.kind = WorldKind::tcp, .size = 4}),
                         name_of);

// What has left this process by TCP so far.
std::uint64_t bytes_sent_by_tcp() {
  std::uint64_t bytes = 0;
  for (int file = 0; file < 1024; ++file) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (getsockopt(file, IPPROTO_TCP, TCP_INFO, &info, &length) == 0) bytes += info.tcpi_bytes_sent;
  }
  return bytes;
}

TEST(HandOverBytes, the_trainer_sends_a_version_once_however_many_receivers_there_are) {
  run(World{.kind = WorldKind::tcp, .size = 4}, [](Context& here) {
    if (here.rank == kTrainer) {
      auto sender = sender_of(here, 1 << 20);
      ASSERT_TRUE(sender);
      Weights weights(2'000'003);
      ASSERT_TRUE(sender->send(1, weights.filled(1)).ok());
      ASSERT_TRUE(sender->flush().ok());
      const std::uint64_t before = bytes_sent_by_tcp();
      ASSERT_TRUE(sender->send(2, weights.filled(2)).ok());
      ASSERT_TRUE(sender->flush().ok());
      const auto sent = static_cast<double>(bytes_sent_by_tcp() - before);
      EXPECT_GE(sent / (4 * 2'000'003), 1.0);
      EXPECT_LT(sent / (4 * 2'000'003), 1.2);
      meet(here);
    } else {
      auto receiver = receiver_of(here);
      EXPECT_TRUE(receiver->wait_for(2, 30s).ok());
      expect_whole(*receiver);
      meet(here);
    }
  });
}

}  // namespace
}  // namespace tutti::test
