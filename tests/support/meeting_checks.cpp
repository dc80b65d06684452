#include "support/meeting_checks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "support/meeting_place.hpp"

namespace tutti::cuda {
namespace {

// One round in which every rank enters and leaves by itself. The last to be started is another each time.
std::vector<Phase> start_round(LaunchWorld& world, MeetingPlace& place, MeetingSize size,
                               Enter enter, int round) {
  std::vector<Phase> phases(static_cast<std::size_t>(size.ranks));
  for (int i = 0; i < size.ranks; ++i) {
    const int rank = (i + round) % size.ranks;
    Phase phase = place.phase(rank, enter, Leave::meet);
    place.add_fold(phase, rank);
    phases[static_cast<std::size_t>(rank)] = phase;
    if (enter == Enter::met) world.start_meet(rank, phase);
    world.start(rank, phase, Dtype::f32, size.blocks);
  }
  return phases;
}

void check_rounds(LaunchWorld& world, MeetingSize size, Enter enter) {
  MeetingPlace place(world, size);
  for (int round = 1; round <= 4; ++round) {
    place.fill(round);
    const std::vector<Phase> phases = start_round(world, place, size, enter, round);
    world.finish();
    place.expect_sums(phases);
    for (int r = 0; r < size.ranks; ++r)
      EXPECT_EQ(place.word(place.of(r).epoch), static_cast<std::uint64_t>(round));
  }
}

// After a moment in which launches come to wait; no order depends on it.
void give_up(LaunchWorld& world, MeetingPlace& place, GiveUp how, std::uint64_t flag) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (how == GiveUp::by_abort_word)
    __atomic_store_n(place.abort_word(), 1, __ATOMIC_RELEASE);
  else
    world.write(flag, &kPoison, sizeof kPoison);
  world.finish();
}

// Who gives up names one that it waited for: by poison the one that it is of, by the abort word also one that
// was merely late, which may be the first block of its own launch.
void expect_given_up(const MeetingPlace& place, int rank, int missing, GiveUp how) {
  EXPECT_EQ(fault_of(place.fault(rank)), Fault::aborted) << "rank " << rank;
  const int peer = peer_of(place.fault(rank));
  EXPECT_TRUE(peer == missing || (how == GiveUp::by_abort_word && peer < missing))
      << "rank " << rank << " names " << peer;
  EXPECT_EQ(place.word(place.of(rank).epoch), 0U) << "rank " << rank;
  EXPECT_EQ(place.word(place.of(rank).finished) & 0xffffffffU, 0U) << "rank " << rank;
  EXPECT_EQ(*place.of(rank).done, 0U) << "rank " << rank;
}

}  // namespace

void check_fold_among_peers(LaunchWorld& world, MeetingSize size) {
  check_rounds(world, size, Enter::meet);
}

void check_fold_then_copy(LaunchWorld& world, MeetingSize size) {
  MeetingPlace place(world, size);
  start_round(world, place, size, Enter::meet, 0);
  for (int r = 0; r < size.ranks; ++r) {
    Phase phase = place.phase(r, Enter::resolved, Leave::by_stream);
    phase.copy_count = 1;
    phase.copies[0] = {{place.of(r).target, -1, 0}, place.of(r).source, place.bytes()};
    world.start(r, phase, Dtype::f32, size.blocks);
  }
  world.finish();
  for (int r = 0; r < size.ranks; ++r) {
    const std::vector<float> got = place.floats(place.of(r).source, size.count);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], place.sum(i)) << "rank " << r << ", element " << i;
  }
}

void check_fold_by_replays(LaunchWorld& world, MeetingSize size) {
  MeetingPlace place(world, size);
  std::vector<Phase> phases;
  for (int r = 0; r < size.ranks; ++r) {
    phases.push_back(place.phase(r, Enter::meet, Leave::meet));
    place.add_fold(phases.back(), r);
    world.keep(r, phases.back(), Dtype::f32, size.blocks);
  }
  for (int round = 1; round <= 4; ++round) {
    place.fill(round);
    for (int i = 0; i < size.ranks; ++i) world.start_kept((i + round) % size.ranks);
    world.finish();
    place.expect_sums(phases);
  }
}

void check_fold_after_meet(LaunchWorld& world, MeetingSize size) {
  check_rounds(world, size, Enter::met);
}

void check_copies_by_posts(LaunchWorld& world, MeetingSize size) {
  MeetingPlace place(world, size);
  const auto ranks = static_cast<std::size_t>(size.ranks);
  std::vector<std::uint64_t> gathered;
  for (int r = 0; r < size.ranks; ++r) {
    gathered.push_back(world.allocate(ranks * place.bytes()));
    Phase phase = place.phase(r, Enter::posted, Leave::by_stream);
    phase.copy_count = static_cast<std::uint16_t>(size.ranks);
    for (int p = 0; p < size.ranks; ++p) {
      place.of(r).posts[p] = place.post(p);
      phase.copies[p] = {
          {0, p, 0}, gathered.back() + static_cast<std::size_t>(p) * place.bytes(), place.bytes()};
    }
    world.start(r, phase, Dtype::u8, size.blocks);
  }
  world.finish();
  for (int r = 0; r < size.ranks; ++r) {
    const std::vector<float> got =
        place.floats(gathered[static_cast<std::size_t>(r)], ranks * size.count);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], place.number(static_cast<int>(i / size.count), i % size.count))
          << "rank " << r << ", element " << i;
    EXPECT_EQ(place.fault(r), 0U);
    EXPECT_EQ(*place.of(r).done, 0U) << "a launch that does not leave says nothing";
  }
}

void check_difference(LaunchWorld& world, MeetingSize size, int odd_one) {
  MeetingPlace place(world, size);
  for (int r = 0; r < size.ranks; ++r) {
    Phase phase = place.phase(r, Enter::meet, Leave::meet);
    place.add_fold(phase, r);
    if (r == odd_one) {
      std::fill_n(phase.tags, size.ranks, kTag + 1);
      for (Post& post : phase.mine) post.tag = kTag + 1;
    }
    world.start(r, phase, Dtype::f32, size.blocks);
  }
  world.finish();
  for (int r = 0; r < size.ranks; ++r) {
    EXPECT_EQ(fault_of(place.fault(r)), Fault::differs) << "rank " << r;
    const int first = r == odd_one ? (odd_one == 0 ? 1 : 0) : odd_one;
    EXPECT_EQ(peer_of(place.fault(r)), first) << "rank " << r;
    EXPECT_EQ(place.word(place.of(r).epoch), 1U) << "all have left";
    place.expect_untouched(r);
  }
  place.fill(2);
  const std::vector<Phase> phases = start_round(world, place, size, Enter::meet, 0);
  world.finish();
  place.expect_sums(phases);
}

void check_difference_in_posts(LaunchWorld& world, MeetingSize size) {
  MeetingPlace place(world, size);
  Phase phase = place.phase(0, Enter::posted, Leave::by_stream);
  place.add_fold(phase, 0);
  for (int p = 0; p < size.ranks; ++p) place.of(0).posts[p] = place.post(p);
  ++place.of(0).posts[size.ranks - 1].tag;
  world.start(0, phase, Dtype::f32, size.blocks);
  world.finish();
  EXPECT_EQ(fault_of(place.fault(0)), Fault::differs);
  EXPECT_EQ(peer_of(place.fault(0)), size.ranks - 1);
  for (int r = 0; r < size.ranks; ++r) place.expect_untouched(r);
}

void check_giving_up(LaunchWorld& world, MeetingSize size, GiveUp how) {
  MeetingPlace place(world, size);
  const int missing = size.ranks - 1;
  for (int r = 0; r < missing; ++r) {
    Phase phase = place.phase(r, r % 2 == 0 ? Enter::meet : Enter::met, Leave::meet);
    place.add_fold(phase, r);
    if (phase.enter == Enter::met) world.start_meet(r, phase);
    world.start(r, phase, Dtype::f32, size.blocks);
  }
  give_up(world, place, how, place.entered_flag(missing));
  for (int r = 0; r < missing; ++r) {
    expect_given_up(place, r, missing, how);
    EXPECT_EQ(place.word(place.left_flag(r)), 0U);
    place.expect_untouched(r);
  }
}

void check_giving_up_at_the_end(LaunchWorld& world, MeetingSize size, GiveUp how) {
  MeetingPlace place(world, size);
  const int missing = size.ranks - 1;
  for (int r = 0; r < size.ranks; ++r) {
    Phase phase = place.phase(r, Enter::meet, Leave::meet);
    place.add_fold(phase, r);
    if (r == missing)
      world.start_meet(r, phase);
    else
      world.start(r, phase, Dtype::f32, size.blocks);
  }
  give_up(world, place, how, place.left_flag(missing));
  for (int r = 0; r < missing; ++r) expect_given_up(place, r, missing, how);
}

}  // namespace tutti::cuda
