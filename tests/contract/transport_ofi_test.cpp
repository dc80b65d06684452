// What ofi promises besides: nobody's bytes but the peer's, and no copies of symmetric memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/transport_pair.hpp"
#include "core/auth.hpp"
#include "transport/ofi/ofi_link.hpp"
#include "transport/transport.hpp"

namespace tutti::test {
namespace {

using testing::HasSubstr;

constexpr const char* kProvider = "tcp;ofi_rxm";

class OverFabric : public testing::Test {
 protected:
  std::unique_ptr<Ranks> made_;
  void SetUp() override {
    if (const auto all = ofi::providers(kProvider); !all.ok())
      GTEST_SKIP() << all.status().message();
    made_ = std::make_unique<Ranks>(
        2, "ofi", [](int, OpeningOptions& options) { options.config.ofi_provider = kProvider; });
    made_->leave_together = true;
    ASSERT_TRUE(made_->ok());
  }
  Ranks& ranks() { return *made_; }
  ofi::FabricPort& fabric_of(int rank) {
    return dynamic_cast<ofi::OfiLink&>(ranks().link(rank, 1 - rank)).fabric();
  }
};

// An endpoint of the same fabric whose owner does not know the job's secret.
class Stranger {
 public:
  explicit Stranger(const std::string& victim) {
    const auto infos = ofi::survey(kProvider);
    rail_ = *ofi::Rail::open(**ofi::libfabric(), *infos->front());
    peer_ = *rail_->add_peer(victim);
  }
  // Until the fabric has taken it, while `ranks` are polled: the connection needs both sides.
  void send(std::string bytes, Ranks& ranks) {
    auto memory = rail_->enrol(bytes.data(), bytes.size(), 1);
    ASSERT_TRUE(memory.ok());
    fi_context2 context{};
    Status why;
    bool taken = false;
    bool out = false;
    ASSERT_TRUE(ranks.poll_until([&] {
      if (!taken)
        taken = rail_->send(peer_, bytes.data(), bytes.size(), memory->descriptor(), context,
                            why) == ofi::Posted::yes;
      fi_cq_data_entry entry{};
      ofi::Rail::Failed failed;
      out |= rail_->read({&entry, 1}, failed) == 1 || !failed.why.ok();
      return taken && out;
    }));
  }

 private:
  std::unique_ptr<ofi::Rail> rail_;
  fi_addr_t peer_ = 0;
};

// Of a frame as rank 1's: all but the seal is right.
std::string forged(const std::string& payload) {
  ofi::FrameHeader frame;
  frame.header = header_of(MessageKind::eager, 666);
  frame.header.bytes = payload.size();
  frame.sender = 1;
  frame.payload_bytes = static_cast<std::uint32_t>(payload.size());
  const std::string guess = random_bytes(sizeof(SipKey));
  SipKey key;
  std::memcpy(&key, guess.data(), sizeof key);
  frame.close(key, payload.data());
  return std::string(reinterpret_cast<const char*>(&frame), sizeof frame) + payload;
}

TEST_F(OverFabric, frames_of_strangers_are_as_if_they_had_not_come) {
  Stranger stranger(fabric_of(0).addresses()->front());
  stranger.send("not a frame", ranks());
  stranger.send(forged("believe me"), ranks());
  stranger.send(forged(std::string(20'000, 'x')), ranks());  // longer than any of ours
  for (std::uint64_t i = 0; i < 100; ++i)
    ASSERT_TRUE(ranks().link(1, 0).send(header_of(MessageKind::eager, i), "abc", 3, 0).accepted);
  ASSERT_TRUE(ranks().poll_until([&] { return ranks().note(0).messages.size() == 100; }));
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(ranks().note(0).messages[i].header.sequence, i);
  EXPECT_TRUE(ranks().note(0).downs.empty());
}

TEST_F(OverFabric, symmetric_memory_is_lent_and_filled_in_place_and_may_go_at_any_time) {
  constexpr std::size_t kBytes = 1 << 20;
  auto from = ranks().endpoints[0]->allocate_region(5, kBytes, {1});
  auto to = ranks().endpoints[1]->allocate_region(5, kBytes, {0});
  ASSERT_TRUE(from.ok() && to.ok());
  for (std::uint64_t round = 1; round <= 3; ++round) {
    const std::string text = pattern(kBytes, static_cast<unsigned>(round));
    text.copy(reinterpret_cast<char*>(from->data), kBytes);
    ranks().note(1).places[round] = to->data;
    std::size_t offset = 0;
    std::size_t loans = 0;
    ranks().note(0).sent.clear();
    ASSERT_TRUE(ranks().poll_until([&] {
      Header header = header_of(MessageKind::data, round);
      header.offset = offset;
      const Sent sent =
          ranks().link(0, 1).send(header, from->data + offset, kBytes - offset, offset);
      offset += sent.accepted ? sent.bytes : 0;
      EXPECT_EQ(sent.lent, sent.accepted);
      loans += sent.lent;
      return offset == kBytes;
    }));
    ASSERT_TRUE(ranks().poll_until([&] { return ranks().note(0).sent.size() == loans; }));
    ASSERT_TRUE(ranks().poll_until([&] {
      return !ranks().note(1).messages.empty() && ranks().note(1).messages.size() == round * loans;
    }));
    EXPECT_TRUE(ranks().note(1).messages.back().placed);
    EXPECT_EQ(std::memcmp(to->data, text.data(), kBytes), 0);
  }
  // What is on its way when a region goes, or becomes private, does not end the link.
  (void)ranks().link(0, 1).send(header_of(MessageKind::data, 3), from->data, kBytes, 9);
  ranks().link(0, 1).forget(1);
  ranks().endpoints[0]->free_region(5);
  EXPECT_TRUE(ranks().endpoints[1]->unshare_region(5));
  ASSERT_TRUE(ranks().link(0, 1).send(header_of(MessageKind::eager, 7, 2), "abc", 3, 0).accepted);
  ASSERT_TRUE(
      ranks().poll_until([&] { return ranks().note(1).messages.back().header.sequence == 7; }));
  EXPECT_TRUE(ranks().note(0).downs.empty() && ranks().note(1).downs.empty());
}

TEST_F(OverFabric, queues_without_a_descriptor_are_asked_for_what_has_come) {
  EXPECT_EQ(fabric_of(0).descriptors().size(), 1u);
  made_ = std::make_unique<Ranks>(2, "ofi", [](int, OpeningOptions& options) {
    options.config.ofi_provider = kProvider;
    options.config.busy_poll = 50;
  });
  made_->leave_together = true;
  ASSERT_TRUE(made_->ok());
  EXPECT_TRUE(fabric_of(0).descriptors().empty());
  EXPECT_LE(fabric_of(0).longest_nap(false), 50us);
  ASSERT_TRUE(ranks().link(1, 0).send(header_of(MessageKind::eager, 1), "abc", 3, 0).accepted);
  ASSERT_TRUE(ranks().poll_until([&] { return !ranks().note(0).messages.empty(); }));
}

TEST(OfiTransport, is_not_used_unless_asked_for_where_fabrics_are_software) {
  if (ofi::has_fabric_hardware()) GTEST_SKIP() << "there is a fabric here";
  Config config;
  EXPECT_EQ(ofi_transport().viable(config).status().code(), Code::unsupported);
  config.ofi_provider = "no such thing";
  EXPECT_THAT(ofi_transport().viable(config).status().message(), HasSubstr("'no such thing'"));
  config.tls = true;
  EXPECT_THAT(ofi_transport().viable(config).status().message(), HasSubstr("TUTTI_TLS"));
}

// What a machine with fabrics would do: hardware before software, all of its domains.
TEST(ChooseProvider, takes_the_first_and_its_rails) {
  const std::vector<ofi::Provider> all = {
      {"verbs;ofi_rxm", {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4"}, true},
      {"tcp;ofi_rxm", {"lo", "eth0", "eth1"}, false}};
  Config config;
  const auto domains = [&] { return ofi::choose_provider(config, all)->domains; };
  EXPECT_EQ(ofi::choose_provider(config, all)->name, "verbs;ofi_rxm");
  EXPECT_EQ(domains().size(), 4u);
  config.ofi_domains = {"mlx5_3", "mlx5_1"};
  EXPECT_EQ(domains(), config.ofi_domains);
  config.ofi_domains = {"mlx5_9"};
  EXPECT_THAT(ofi::choose_provider(config, all).status().message(), HasSubstr("'mlx5_9'"));
  config.ofi_domains.clear();
  config.ofi_provider = "tcp;ofi_rxm";
  EXPECT_EQ(domains(), std::vector<std::string>{"eth0"});
  config.interface = "eth1";
  EXPECT_EQ(domains(), std::vector<std::string>{"eth1"});
}

}  // namespace
}  // namespace tutti::test
