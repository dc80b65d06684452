// Every collective against the reference, for all sizes, counts, roots and shapes.
#include <numeric>

#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

constexpr Collective kAll[] = {
    Collective::broadcast,  Collective::reduce,  Collective::all_reduce,     Collective::gather,
    Collective::all_gather, Collective::scatter, Collective::reduce_scatter, Collective::all_to_all,
    Collective::barrier,    Collective::scan,    Collective::exclusive_scan,
};

class Collectives : public WorldTest {};

// Blocking or not, in place or not, aligned or not: turns that go round at different speeds, so
// that few calls meet most pairs.
void try_in_turn(Group& group, Case what, std::uint64_t turn) {
  what.in_place = turn % 2 == 1;
  what.misalign = turn % 3 == 2 ? 1 + turn % 7 : 0;
  what.seed = turn + 1;
  if (what.root < 0) what.root = static_cast<int>(turn % static_cast<std::uint64_t>(group.size()));
  if (turn % 5 < 3)
    try_out(group, what);
  else
    try_out_async(group, what);
}

TEST_P(Collectives, give_what_the_reference_gives_for_all_counts) {
  in_world([](Context& here) {
    std::uint64_t turn = 0;
    for (std::size_t count : {0, 1, 257, 1021, 4099})
      for (Collective collective : kAll)
        try_in_turn(*here.group, {.collective = collective, .count = count, .root = -1}, turn++);
  });
}

TEST_P(Collectives, serve_every_root) {
  in_world([](Context& here) {
    std::uint64_t turn = 0;
    for (int root = 0; root < here.size; ++root)
      for (Collective collective : kAll)
        if (has_root(collective))
          try_in_turn(*here.group, {.collective = collective, .count = 61, .root = root}, turn++);
  });
}

TEST_P(Collectives, take_parts_of_different_size_and_one_buffer_per_rank) {
  in_world([](Context& here) {
    std::uint64_t turn = 0;
    for (std::size_t count : {1, 5, 1021})
      for (Shape shape : {Shape::uneven, Shape::list, Shape::uneven_list})
        for (Collective collective : kAll)
          for (bool in_place : {false, true}) {
            Case what{.collective = collective, .count = count, .shape = shape};
            what.in_place = in_place;
            if (!exists(what)) continue;
            what.root = static_cast<int>(turn % static_cast<std::uint64_t>(here.size));
            what.seed = ++turn;
            if (turn % 2 == 0)
              try_out(*here.group, what);
            else
              try_out_async(*here.group, what);
          }
  });
}

// Ranks that have nothing to wait for run ahead of the others; nobody may overwrite what a slow
// rank has not read.
// The middle ranks have as many bytes in both calls, and the same algorithm: what they remember of the
// first must not serve the second.
void gather_and_scatter(Group& group, const std::vector<std::size_t>& counts, bool as_even) {
  const auto rank = static_cast<std::size_t>(group.rank());
  const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  std::vector<float> mine(counts[rank], static_cast<float>(rank + 1));
  std::vector<float> whole(all, -1);
  const auto own = Buffer::of(mine.data(), mine.size());
  const auto each = Buffer::of(whole.data(), whole.size());
  EXPECT_TRUE((as_even ? group.all_gather(own, each) : group.all_gather_v(own, each, counts)).ok());
  std::vector<float> expected;
  for (std::size_t part = 0; part < counts.size(); ++part)
    expected.insert(expected.end(), counts[part], static_cast<float>(part + 1));
  EXPECT_EQ(whole, expected);
  EXPECT_TRUE((as_even ? group.reduce_scatter(each, own, ReduceOp::sum)
                       : group.reduce_scatter_v(each, counts, own, ReduceOp::sum))
                  .ok());
  const float folded = static_cast<float>(group.size()) * static_cast<float>(rank + 1);
  EXPECT_EQ(mine, std::vector<float>(counts[rank], folded));
}

TEST_P(Collectives, of_equal_parts_may_follow_unequal_ones_of_as_many_bytes) {
  in_world([](Context& here) {
    for (const std::size_t count : {2, 300, 100'000}) {
      std::vector<std::size_t> counts(static_cast<std::size_t>(here.size), count);
      if (here.size > 1) --counts.front(), ++counts.back();
      const std::vector<std::size_t> even(counts.size(), count);
      for (int round = 0; round < 2; ++round) {
        gather_and_scatter(*here.group, counts, false);
        gather_and_scatter(*here.group, even, true);
      }
    }
  });
}

TEST_P(Collectives, may_follow_each_other_without_a_barrier) {
  in_world([](Context& here) {
    const int rounds = reduced() ? 3 : 8;
    std::uint64_t turn = 0;
    for (int round = 0; round < rounds; ++round)
      for (std::size_t count : {3, 1500})
        for (Collective collective : kAll) {
          Case what{.collective = collective, .dtype = Dtype::i32, .count = count};
          what.root = static_cast<int>(turn % static_cast<std::uint64_t>(here.size));
          what.seed = ++turn;
          try_out(*here.group, what);
        }
  });
}

TEST_P(Collectives, all_reduce_several_buffers_as_one_call) {
  in_world([](Context& here) {
    for (bool async : {false, true}) {
      const std::vector<std::size_t> counts = {3, 0, 1021, 1, 257};
      std::vector<std::vector<float>> values;
      std::vector<Buffer> buffers;
      for (std::size_t i = 0; i < counts.size(); ++i)
        values.emplace_back(counts[i],
                            static_cast<float>(i + 1) * static_cast<float>(here.rank + 1));
      for (auto& part : values) buffers.push_back(Buffer::of(part));
      const std::span<const Buffer> all = buffers;
      const Status status = async ? here.group->all_reduce_async(all, ReduceOp::sum).wait()
                                  : here.group->all_reduce(all, ReduceOp::sum);
      ASSERT_TRUE(status.ok()) << status.to_string();
      const int ranks = here.size * (here.size + 1) / 2;
      for (std::size_t i = 0; i < counts.size(); ++i)
        EXPECT_EQ(values[i], std::vector<float>(
                                 counts[i], static_cast<float>(i + 1) * static_cast<float>(ranks)))
            << "buffer " << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(World, Collectives, testing::ValuesIn(every_world()), name_of);

class LargeMessages : public WorldTest {};

TEST_P(LargeMessages, arrive_whole) {
  in_world([](Context& here) {
    const std::size_t count = reduced() ? 40'009 : 300'007;  // f32: above 1 MiB
    std::uint64_t turn = 0;
    for (Collective collective : kAll)
      if (collective != Collective::barrier) {
        // Where every rank holds n parts a part is made smaller, so that the whole is what is
        // large.
        const bool many_parts = collective == Collective::all_to_all;
        const auto ranks = static_cast<std::size_t>(here.size);
        try_in_turn(
            *here.group,
            {.collective = collective, .count = many_parts ? count / ranks : count, .root = -1},
            turn++);
      }
  });
}

std::vector<World> worlds_for_large_messages() {
  std::vector<World> worlds;
  for (WorldKind kind : {WorldKind::threads, WorldKind::shm, WorldKind::tcp})
    for (int size : {2, 5}) worlds.push_back(World{.kind = kind, .size = size});
  worlds.push_back(World{.kind = WorldKind::mixed, .size = 4});
  return worlds;
}

INSTANTIATE_TEST_SUITE_P(World, LargeMessages, testing::ValuesIn(worlds_for_large_messages()),
                         name_of);

}  // namespace
}  // namespace tutti::test
