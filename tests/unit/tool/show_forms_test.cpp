// Which forms `tutti show` finds for a call, and which of them it says will run.
#include <gtest/gtest.h>

#include "tool/show/show.hpp"

namespace tutti::tool {
namespace {

using schedule::Carrier;
using schedule::Reach;
using schedule::Request;

HostView view_of(Collective collective, int ranks, int shots = 2, bool in_place = false) {
  auto view = HostView::make(
      Algorithm::direct,
      {.collective = collective, .size = ranks, .in_place = in_place, .shots = shots});
  EXPECT_TRUE(view.ok()) << view.status().to_string();
  EXPECT_TRUE(view.ok() && view->has_value());
  return **std::move(view);
}

Reach reach_of(const HostView& view, std::size_t bytes, CallMemory memory, bool crowded = false) {
  return view.reach(view.way(bytes, crowded), memory);
}

// Otherwise there would be nothing to draw.
TEST(ShowForms, what_runs_is_always_among_the_forms) {
  for (const schedule::Entry& entry : schedule::catalog())
    for (const int n : {2, 3, 4, 8})
      for (const bool in_place : {false, true}) {
        const Request request{.collective = entry.collective, .size = n, .in_place = in_place};
        if (entry.applies && !entry.applies(request)) continue;
        const auto view = HostView::make(entry.algorithm, request);
        ASSERT_TRUE(view.ok()) << view.status().to_string();
        if (!*view) continue;
        for (std::size_t bytes = 0; bytes < 1 << 30; bytes = bytes * 8 + 1)
          for (const bool crowded : {false, true})
            for (const CallMemory memory :
                 {CallMemory::ordinary, CallMemory::symmetric_source, CallMemory::symmetric}) {
              const Reach reach = reach_of(**view, bytes, memory, crowded);
              ASSERT_NE((*view)->find(reach), nullptr) << to_string(entry.collective) << " " << n;
              ASSERT_TRUE((*view)->use(reach, bytes, crowded).runs);
              ASSERT_FALSE((*view)->use(reach, bytes, crowded).words.empty());
            }
      }
}

TEST(ShowForms, memory_and_size_decide) {
  const HostView sum = view_of(Collective::all_reduce, 4);
  EXPECT_EQ(reach_of(sum, 1 << 20, CallMemory::ordinary), Reach::window);
  EXPECT_EQ(reach_of(sum, 1 << 20, CallMemory::symmetric), Reach::mapped);
  // Results are put into outputs, which are not mapped.
  EXPECT_EQ(reach_of(sum, 1 << 20, CallMemory::symmetric_source), Reach::window);
  const HostView one_shot = view_of(Collective::all_reduce, 4, 1);
  EXPECT_EQ(one_shot.way(16, false).carrier, Carrier::line);
  EXPECT_EQ(reach_of(one_shot, 16, CallMemory::symmetric), Reach::window);
  // Nobody hopes where meetings are dear.
  EXPECT_EQ(reach_of(one_shot, 4096, CallMemory::symmetric), Reach::mapped);
  EXPECT_EQ(reach_of(one_shot, 4096, CallMemory::symmetric, true), Reach::window);
  const HostView exchange = view_of(Collective::all_to_all, 4);
  EXPECT_EQ(reach_of(exchange, 1 << 20, CallMemory::ordinary), Reach::readable);
  EXPECT_EQ(reach_of(exchange, 1 << 20, CallMemory::symmetric_source), Reach::mapped_source);
}

TEST(ShowForms, in_place_nothing_is_read_that_its_owner_overwrites) {
  const HostView exchange = view_of(Collective::all_to_all, 4, 2, true);
  for (const CallMemory memory : {CallMemory::ordinary, CallMemory::symmetric})
    EXPECT_EQ(reach_of(exchange, 1 << 20, memory), Reach::window);
  EXPECT_EQ(exchange.find(Reach::mapped), nullptr);
  EXPECT_EQ(exchange.use(Reach::mapped, 1 << 20, false).words,
            "in place, a rank would overwrite what others have still to read");
}

TEST(ShowForms, a_pass_that_changes_nothing_is_not_shown) {
  const auto ring =
      message_forms(Algorithm::ring, {.collective = Collective::all_reduce, .size = 4});
  ASSERT_TRUE(ring.ok());
  ASSERT_EQ(ring->size(), 2U);
  EXPECT_EQ(ring->front().pass, "as built");
  EXPECT_EQ(ring->back().pass, "fuse_folds");
  EXPECT_NE(ring->front().programs, ring->back().programs);
  EXPECT_EQ(ring->front().report.expression, ring->back().report.expression);
  const auto gather =
      message_forms(Algorithm::ring, {.collective = Collective::all_gather, .size = 4});
  ASSERT_TRUE(gather.ok());
  EXPECT_EQ(gather->size(), 1U);
}

TEST(ShowForms, ranks_share_a_host_unless_something_else_was_said) {
  const auto placed = [](std::string hosts, std::string form) {
    ShowOptions options;
    options.collective = "all_reduce";
    options.hosts = std::move(hosts);
    options.form = std::move(form);
    const auto call = read_call(options);
    EXPECT_TRUE(call.ok()) << call.status().to_string();
    return std::pair(std::string(call->placement()), call->host.has_value());
  };
  EXPECT_EQ(placed("", ""), std::pair(std::string("one_host"), true));
  EXPECT_EQ(placed("", "host"), std::pair(std::string("one_host"), true));
  EXPECT_EQ(placed("1x4", ""), std::pair(std::string("one_host"), true));
  EXPECT_EQ(placed("1x4", "message"), std::pair(std::string("one_host"), false));
  EXPECT_EQ(placed("", "message"), std::pair(std::string("apart"), false));
  EXPECT_EQ(placed("4x1", ""), std::pair(std::string("apart"), false));
  EXPECT_EQ(placed("2x2", ""), std::pair(std::string("hosts"), false));
}

}  // namespace
}  // namespace tutti::tool
