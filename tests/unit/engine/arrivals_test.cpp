// When a rank tells whom that it has begun a collective by message: of every system call that this takes.
#include "engine/arrivals.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/compile.hpp"
#include "schedule/catalog.hpp"

namespace tutti::engine {
namespace {

using transport::Header;
using transport::MessageKind;

constexpr int kRanks = 4;
constexpr Nanoseconds kNow = std::chrono::seconds(7);

class CountingLink final : public transport::Link {
 public:
  explicit CountingLink(bool shares_memory) : shares_memory_(shares_memory) {}
  std::string_view name() const override { return "counting"; }
  bool shares_memory() const override { return shares_memory_; }
  std::size_t eager_bytes() const override { return 64 * 1024; }
  transport::Sent send(const Header& header, const void*, std::size_t bytes,
                       std::uint64_t) override {
    arrivals += header.kind == MessageKind::arrive ? 1 : 0;
    return {true, false, bytes};
  }
  void release(std::uint64_t) override {}
  bool poll(transport::MessageSink&) override { return false; }
  void forget(std::uint32_t) override {}

  int arrivals = 0;

 private:
  bool shares_memory_;
};

// What Members asks of an endpoint: links.
class Links final : public transport::Endpoint {
 public:
  explicit Links(bool share_memory) {
    for (int rank = 1; rank < kRanks; ++rank)
      links_.push_back(std::make_unique<CountingLink>(share_memory));
  }
  int rank() const override { return 0; }
  int size() const override { return kRanks; }
  CountingLink* link(int peer) override {
    return peer == 0 ? nullptr : links_[static_cast<std::size_t>(peer - 1)].get();
  }
  bool poll(transport::MessageSink&) override { return false; }
  void sleep(Nanoseconds, bool, const std::function<bool()>&) override {}
  void wake() override {}
  Result<transport::MemoryRegion> allocate_region(std::uint64_t, std::size_t,
                                                  const std::vector<int>&) override {
    return Status(Code::unsupported, "no memory here");
  }
  bool region_has_come(int, std::uint64_t) const override { return false; }
  void free_region(std::uint64_t) override {}
  std::string whereabouts(int) const override { return "here"; }

 private:
  std::vector<std::unique_ptr<CountingLink>> links_;
};

// Rank 0 of 4 has begun an all_reduce by recursive doubling: data for rank 1, then for rank 2, none for 3.
struct Begun {
  explicit Begun(std::size_t bytes, bool share_memory = false)
      : links(share_memory), members(options(), links), arrivals(members), memory(bytes) {
    schedule::Request request;
    request.collective = Collective::all_reduce;
    request.size = kRanks;
    compiled = compile(*schedule::build(Algorithm::recursive_doubling, request));
    launch.collective = Collective::all_reduce;
    launch.input = launch.output = {{memory.data(), bytes}};
    arrivals.begin_by_message(launch, 1, {compiled.peers, compiled.sends_to}, kNow);
  }
  static ChannelOptions options() {
    ChannelOptions options;
    options.members = {0, 1, 2, 3};
    options.host_of = {0, 1, 2, 3};
    return options;
  }
  std::vector<int> told() {
    return {links.link(1)->arrivals, links.link(2)->arrivals, links.link(3)->arrivals};
  }

  Links links;
  Members members;
  Arrivals arrivals;
  std::vector<std::byte> memory;
  Compiled compiled;
  Launch launch;
};

using Told = std::vector<int>;

TEST(Arrivals, those_who_are_sent_little_are_told_with_it) {
  Begun small(64);
  EXPECT_EQ(small.told(), Told({0, 0, 0}));
  small.arrivals.announce_to(1);
  EXPECT_EQ(small.told(), Told({1, 0, 0}));
  small.arrivals.announce_to(1);  // more data
  small.arrivals.announce_to(2);
  EXPECT_EQ(small.told(), Told({1, 1, 0}));
  EXPECT_EQ(small.arrivals.next_announcement(), Nanoseconds::max());
}

TEST(Arrivals, whoever_would_wait_for_an_invitation_is_told_at_once) {
  EXPECT_EQ(Begun(std::size_t{1} << 20).told(), Told({1, 1, 0}));
  EXPECT_EQ(Begun(64, true).told(), Told({1, 1, 0}));
}

TEST(Arrivals, nobody_stays_untold_for_long) {
  Begun small(64);
  small.arrivals.announce_to(1);
  const Nanoseconds due = small.arrivals.next_announcement();
  EXPECT_LE(due, kNow + std::chrono::milliseconds(10));
  small.arrivals.announce_late(kNow);
  EXPECT_EQ(small.told(), Told({1, 0, 0}));
  small.arrivals.announce_late(due);
  small.arrivals.announce_to(2);
  EXPECT_EQ(small.told(), Told({1, 1, 0}));
}

}  // namespace
}  // namespace tutti::engine
