// Every algorithm of the catalog, as it is and after every pass, run by plans over awkward links.
#include <gtest/gtest.h>

#include "schedule/passes.hpp"
#include "unit/engine/message_world.hpp"

namespace tutti::engine {
namespace {

using schedule::Entry;
using testing::MessageWorld;

enum class Passes { none, folds, staged };

std::int64_t value(std::size_t rank, std::size_t i) {
  return static_cast<std::int64_t>(rank * 100003 + i * 17 % 1009);
}

// all_reduce, the collective with every kind of op, for `n` ranks and `count` elements.
struct AllReduce {
  AllReduce(const Entry& entry, int n, std::size_t count, bool in_place, Passes passes) {
    const std::vector<int> hosts = host_of(n);
    std::vector<Compiled> programs;
    std::vector<Launch> launches(static_cast<std::size_t>(n));
    input.resize(static_cast<std::size_t>(n));
    output.assign(static_cast<std::size_t>(n), std::vector<std::int64_t>(count, -1));
    for (int r = 0; r < n; ++r) {
      schedule::Request request;
      request.collective = Collective::all_reduce;
      request.size = n;
      request.rank = r;
      request.in_place = in_place;
      request.host_of = hosts;
      schedule::Program program = entry.build(request);
      if (passes != Passes::none) program = fuse_folds(std::move(program));
      if (passes == Passes::staged) program = stage(std::move(program));
      programs.push_back(compile(std::move(program)));
      const auto at = static_cast<std::size_t>(r);
      for (std::size_t i = 0; i < count; ++i) input[at].push_back(value(at, i));
      if (in_place) output[at] = input[at];
      auto& from = in_place ? output[at] : input[at];
      launches[at].collective = Collective::all_reduce;
      launches[at].dtype = Dtype::i64;
      launches[at].in_place = in_place;
      launches[at].input = {{reinterpret_cast<std::byte*>(from.data()), count * 8}};
      launches[at].output = {{reinterpret_cast<std::byte*>(output[at].data()), count * 8}};
    }
    if (entry.programs_of(n) > n) {
      schedule::Request request;
      request.collective = Collective::all_reduce;
      request.size = request.rank = n;
      schedule::Program program = entry.build(request);
      if (passes != Passes::none) program = fuse_folds(std::move(program));
      programs.push_back(compile(std::move(program)));
      launches.push_back(launches[0]);
      launches.back().input = {{nullptr, count * 8}};
      launches.back().output.clear();
    }
    MessageWorld world(std::move(programs), std::move(launches), 7);
    finished = world.run();
    placed = world.placed();
    message = world.status().to_string();
    right = true;
    for (const auto& result : output)
      for (std::size_t i = 0; i < count; ++i) {
        std::int64_t sum = 0;
        for (int r = 0; r < n; ++r) sum += value(static_cast<std::size_t>(r), i);
        right &= result[i] == sum;
      }
  }

  static std::vector<int> host_of(int n) {
    std::vector<int> hosts;
    for (int r = 0; r < n; ++r) hosts.push_back(r * 2 / n);
    return hosts;
  }

  std::vector<std::vector<std::int64_t>> input;
  std::vector<std::vector<std::int64_t>> output;
  bool finished = false;
  bool right = false;
  int placed = 0;
  std::string message;
};

void check_all(Passes passes, int* placed = nullptr) {
  for (const Entry& entry : schedule::catalog()) {
    if (entry.collective != Collective::all_reduce) continue;
    for (int n = 1; n <= 9; ++n) {
      const std::vector<int> hosts = AllReduce::host_of(n);
      schedule::Request request;
      request.collective = Collective::all_reduce;
      request.size = n;
      request.host_of = hosts;
      if (entry.applies != nullptr && !entry.applies(request)) continue;
      for (const std::size_t count : {0u, 1u, 13u, 1000u})
        for (const bool in_place : {false, true}) {
          const AllReduce run(entry, n, count, in_place, passes);
          ASSERT_TRUE(run.finished && run.right)
              << to_string(entry.algorithm) << " n=" << n << " count=" << count
              << (in_place ? " in place" : "") << (run.finished ? " wrong" : " stuck ")
              << run.message;
          if (placed != nullptr) *placed += run.placed;
        }
    }
  }
}

TEST(MessageRun, runs_every_all_reduce_as_it_was_built) { check_all(Passes::none); }

TEST(MessageRun, runs_every_all_reduce_with_folds_over_messages_and_some_written_early) {
  int placed = 0;
  check_all(Passes::folds, &placed);
  EXPECT_GT(placed, 100);
}

TEST(MessageRun, runs_every_all_reduce_with_the_callers_memory_touched_by_copies_alone) {
  check_all(Passes::staged);
}

// Takes everything at once, by copying it.
struct TakingLink final : transport::Link {
  std::string_view name() const override { return "taking"; }
  std::size_t eager_bytes() const override { return 0; }
  transport::Sent send(const transport::Header&, const void*, std::size_t bytes,
                       std::uint64_t) override {
    return {true, false, bytes};
  }
  void release(std::uint64_t) override {}
  bool revoked(std::uint64_t) const override { return false; }
  bool poll(transport::MessageSink&) override { return false; }
  void forget(std::uint32_t) override {}
  transport::MemoryRef share(const void*, std::size_t) const override { return {}; }
  std::byte* reach(const transport::MemoryRef&, std::size_t) const override { return nullptr; }
};

struct TakingGroup final : GroupView {
  transport::Link& link_to(int) override { return link; }
  bool has_arrived(int) const override { return arrived; }
  bool all_have_arrived() const override { return arrived; }
  std::uint32_t channel() const override { return 1; }
  TakingLink link;
  bool arrived = false;
};

TEST(MessageRun, gives_a_place_only_when_nobody_needs_what_is_there) {
  // Rank 0 of two: its first half leaves in step 0, and its result comes back in step 1.
  schedule::Request request;
  request.collective = Collective::all_reduce;
  request.size = 2;
  request.in_place = true;
  std::vector<std::int64_t> memory(128);
  auto* bytes = reinterpret_cast<std::byte*>(memory.data());
  Launch launch;
  launch.collective = Collective::all_reduce;
  launch.dtype = Dtype::i64;
  launch.in_place = true;
  launch.input = launch.output = {{bytes, 1024}};
  TakingGroup group;
  MessageRun run(group, compile(fuse_folds(*schedule::build(Algorithm::ring, request))), 64);
  run.begin(launch, 5);
  transport::Header header;
  header.sequence = 5;
  header.step = 1;
  header.bytes = 128;
  header.offset = 256;
  EXPECT_EQ(run.place(1, header), nullptr);  // it has not left yet
  group.arrived = true;
  run.step();
  EXPECT_EQ(run.place(1, header), bytes + 256);

  const auto refused = [&](auto change) {
    transport::Header other = header;
    change(other);
    return run.place(1, other) == nullptr;
  };
  EXPECT_TRUE(refused([](auto& h) { h.step = 0; })) << "a fold takes it";
  EXPECT_TRUE(refused([](auto& h) { h.step = 7; }));
  EXPECT_TRUE(refused([](auto& h) { h.sequence = 4; }));
  EXPECT_TRUE(refused([](auto& h) { h.offset = 385; })) << "beyond the end";
  EXPECT_TRUE(refused([](auto& h) { h.offset = ~std::uint64_t{0} - 10; }));
  EXPECT_TRUE(refused([](auto& h) { h.bytes = ~std::uint64_t{0}; }));
  EXPECT_EQ(run.place(0, header), nullptr);
  // What has been delivered is not written again.
  header.offset = 0;
  header.bytes = 512;
  run.deliver(1, header, Segment::keep(header, {bytes, 0, true}));
  ASSERT_TRUE(run.failure().ok());
  EXPECT_EQ(run.place(1, header), nullptr);
}

TEST(MessageRun, refuses_a_segment_that_nobody_expects) {
  schedule::Request request;
  request.size = 2;
  std::vector<std::int64_t> memory(4);
  Launch launch;
  launch.collective = Collective::all_reduce;
  launch.dtype = Dtype::i64;
  launch.input = launch.output = {{reinterpret_cast<std::byte*>(memory.data()), 32}};
  struct NoLinks final : GroupView {
    transport::Link& link_to(int) override { std::abort(); }
    bool has_arrived(int) const override { return false; }
    bool all_have_arrived() const override { return false; }
    std::uint32_t channel() const override { return 1; }
  } group;
  MessageRun run(group, compile(*schedule::build(Algorithm::direct, request)), 64);
  run.begin(launch, 5);
  transport::Header header;
  header.sequence = 5;
  header.step = 4711;
  run.deliver(1, header, {});
  EXPECT_EQ(run.failure().code(), Code::corrupt);
  EXPECT_NE(run.failure().message().find("rank 1"), std::string::npos) << run.failure().message();
}

// Rank 0 of two in a ring: a fold takes step 0, a recv step 1, 512 bytes each.
TEST(MessageRun, refuses_a_segment_that_does_not_fit_into_its_message) {
  schedule::Request request;
  request.collective = Collective::all_reduce;
  request.size = 2;
  std::vector<std::int64_t> memory(128), result(128);
  Launch launch;
  launch.collective = Collective::all_reduce;
  launch.dtype = Dtype::i64;
  launch.input = {{reinterpret_cast<std::byte*>(memory.data()), 1024}};
  launch.output = {{reinterpret_cast<std::byte*>(result.data()), 1024}};
  TakingGroup group;
  MessageRun run(group, compile(fuse_folds(*schedule::build(Algorithm::ring, request))), 64);
  const auto code_of = [&](std::uint32_t step, std::uint64_t offset, std::uint64_t bytes) {
    run.begin(launch, 5);
    transport::Header header;
    header.sequence = 5;
    header.step = step;
    header.offset = offset;
    header.bytes = bytes;
    Segment segment;
    segment.bytes = bytes;
    run.deliver(1, header, segment);
    return run.failure().code();
  };
  EXPECT_EQ(code_of(0, 0, 512), Code::ok);
  EXPECT_EQ(code_of(0, 0, 520), Code::corrupt);
  EXPECT_EQ(code_of(0, 0, 12), Code::corrupt) << "half an element";
  EXPECT_EQ(code_of(0, 8, 8), Code::corrupt) << "out of order";
  EXPECT_EQ(code_of(1, 0, 512), Code::ok);
  EXPECT_EQ(code_of(1, 0, 513), Code::corrupt);
  EXPECT_EQ(code_of(1, 0, ~std::uint64_t{0}), Code::corrupt);
}

}  // namespace
}  // namespace tutti::engine
