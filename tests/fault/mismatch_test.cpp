// Different calls on different ranks: an error on every rank that names who called what, never a
// hang.
#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

class Mismatch : public WorldTest {};

using Start = std::function<Work(Group&, std::vector<float>&)>;

struct Disagreement {
  std::string about;
  Start most;             // what all ranks but one call
  Start odd;              // what the odd one calls
  std::string word_most;  // what every rank's message must say of them
  std::string word_odd;
};

Start all_reduce_of(std::size_t count, Reduction reduction, CallOptions options = {}) {
  return [=](Group& group, std::vector<float>& values) {
    return group.all_reduce_async(Buffer::of(values.data(), count), reduction, options);
  };
}

Start broadcast_from(int root) {
  return [=](Group& group, std::vector<float>& values) {
    return group.broadcast_async(Buffer::of(values.data(), 100), root);
  };
}

Start all_reduce_as(Dtype dtype) {
  return [=](Group& group, std::vector<float>& values) {
    return group.all_reduce_async(Buffer{values.data(), 100, dtype}, ReduceOp::sum);
  };
}

// Of 100 bf16, into as many bf16 or f32.
Start all_reduce_into(Dtype dtype) {
  return [=](Group& group, std::vector<float>& values) {
    return group.all_reduce_async(ConstBuffer(values.data() + 500, 100, Dtype::bf16),
                                  Buffer{values.data(), 100, dtype}, ReduceOp::sum);
  };
}

Start gather_counts(std::size_t count_of_rank_0) {
  return [=](Group& group, std::vector<float>& values) {
    std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()), 7);
    counts[0] = count_of_rank_0;
    const std::size_t mine = counts[static_cast<std::size_t>(group.rank())];
    return group.all_gather_v_async(ConstBuffer::of(values.data() + 500, mine),
                                    Buffer::of(values.data(), 300), counts);
  };
}

Start all_to_all_of_pairs() {
  return [](Group& group, std::vector<float>& values) {
    const std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()), 3);
    return group.all_to_all_v_async(ConstBuffer::of(values.data() + 500, 3 * counts.size()), counts,
                                    Buffer::of(values.data(), 3 * counts.size()), counts);
  };
}

CallOptions forced(Algorithm algorithm) {
  CallOptions options;
  options.algorithm = algorithm;
  return options;
}

std::vector<Disagreement> disagreements() {
  const Start sum = all_reduce_of(100, ReduceOp::sum);
  return {
      {"the collective", sum, broadcast_from(0), "all_reduce", "broadcast"},
      {"the collective, when one has no data", sum,
       [](Group& group, std::vector<float>&) { return group.barrier_async(); }, "all_reduce",
       "barrier"},
      // One tells its pairs by messages, the others look at lines.
      {"the collective, when one is of pairs", sum, all_to_all_of_pairs(), "all_reduce(100",
       "all_to_all"},
      {"the count", sum, all_reduce_of(101, ReduceOp::sum), "100", "101"},
      {"a large count", all_reduce_of(200'000, ReduceOp::sum),
       all_reduce_of(200'001, ReduceOp::sum), "200000", "200001"},
      {"a count of zero", sum, all_reduce_of(0, ReduceOp::sum), "100", "0"},
      {"the type", sum, all_reduce_as(Dtype::i32), "f32", "i32"},
      {"the type of the result", all_reduce_into(Dtype::f32), all_reduce_into(Dtype::bf16),
       "bf16 into f32", "bf16, sum"},
      {"the reduction", sum, all_reduce_of(100, ReduceOp::max), "sum", "max"},
      {"the root", broadcast_from(0), broadcast_from(1), "root 0", "root 1"},
      {"the algorithm", all_reduce_of(100, ReduceOp::sum, forced(Algorithm::ring)),
       all_reduce_of(100, ReduceOp::sum, forced(Algorithm::recursive_doubling)), "ring",
       "recursive_doubling"},
      {"the scalar", all_reduce_of(100, Reduction::premul_sum(2.0)),
       all_reduce_of(100, Reduction::premul_sum(3.0)), "premul_sum", "premul_sum"},
  };
}

void expect_mismatch(const Status& status, const Disagreement& about, int odd_rank) {
  ASSERT_EQ(status.code(), Code::mismatch) << status.to_string();
  for (const std::string& word :
       {about.word_most, about.word_odd, "rank " + std::to_string(odd_rank)})
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "should say " << word << ": " << status.to_string();
  EXPECT_EQ(status.peer(), odd_rank) << "an innocent rank is blamed: " << status.to_string();
}

TEST_P(Mismatch, fails_on_every_rank_naming_who_called_what) {
  in_world([](Context& here) {
    int odd_rank = 0;
    for (const Disagreement& about : disagreements()) {
      SCOPED_TRACE("disagreement about " + about.about);
      odd_rank = (odd_rank + 1) % here.size;
      auto group = here.group->duplicate();
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      std::vector<float> values(200'100, 1.0F);
      const auto begin = std::chrono::steady_clock::now();
      Work work = (here.rank == odd_rank ? about.odd : about.most)(**group, values);
      expect_mismatch(work.wait(), about, odd_rank);
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
      // What comes later fails for the same reason.
      const Status later = (*group)->barrier();
      EXPECT_EQ(later.code(), Code::mismatch) << later.to_string();
      EXPECT_EQ((*group)->health().code(), Code::mismatch);
    }
    try_out(*here.group, {.count = 1000});
  });
}

TEST_P(Mismatch, of_counts_that_all_ranks_know_is_found) {
  in_world([](Context& here) {
    auto group = here.group->duplicate();
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    std::vector<float> values(1000);
    Work work = gather_counts(here.rank == 1 ? 5 : 7)(**group, values);
    const Status status = work.wait();
    EXPECT_EQ(status.code(), Code::mismatch) << status.to_string();
  });
}

// Only the two of them can see it; the others learn of it with the group's failure.
TEST_P(Mismatch, of_a_pair_in_all_to_all_is_found_by_the_pair_and_told_to_everyone) {
  in_world([](Context& here) {
    auto group = here.group->duplicate();
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    std::vector<float> in(1000), out(1000);
    std::vector<std::size_t> counts(static_cast<std::size_t>(here.size), 10), wrong = counts;
    if (here.rank == 0) wrong[1] = 11;  // rank 1 expects 10 from everybody
    CallOptions options;
    options.timeout = std::chrono::seconds(10);
    const Status status = (*group)->all_to_all_v(
        ConstBuffer::of(in.data(), here.rank == 0 ? counts.size() * 10 + 1 : counts.size() * 10),
        wrong, Buffer::of(out.data(), counts.size() * 10), counts, options);
    if (here.rank <= 1) {
      EXPECT_EQ(status.code(), Code::mismatch) << status.to_string();
    }
    EXPECT_EQ((*group)->barrier().code(), Code::mismatch);
  });
}

TEST_P(Mismatch, of_a_call_that_only_one_rank_refuses_does_not_hang) {
  in_world([](Context& here) {
    auto group = here.group->duplicate();
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    std::vector<float> values(100, 1.0F);
    // Rank 0 makes a mistake, is told, and makes the call that the others wait for.
    if (here.rank == 0) {
      EXPECT_EQ((*group)->all_reduce(Buffer::of(values), ReduceOp::bxor).code(),
                Code::invalid_argument);
    }
    EXPECT_TRUE((*group)->all_reduce(Buffer::of(values), ReduceOp::sum).ok());
    EXPECT_EQ(values[0], static_cast<float>(here.size));
  });
}

// ---- groups that are to be made

using Make = std::function<Result<std::shared_ptr<Group>>(Group&)>;

struct DifferentGroups {
  std::string about;
  Make most;
  Make odd;
  std::string word_most;  // what every rank's message must say of them
  std::string word_odd;
};

Make from_list(std::vector<int> ranks, std::uint32_t tag = 1, const std::string& name = "new") {
  return [=](Group& group) {
    std::vector<int> whole = ranks;
    for (int rank = static_cast<int>(ranks.size()); rank < group.size(); ++rank)
      whole.push_back(rank);
    return group.subgroup(whole, tag, {name}, std::chrono::seconds(1));
  };
}

Make copy_of(const std::string& name, ReductionOrder order = ReductionOrder::any) {
  return [=](Group& group) { return group.duplicate({name, order}); };
}

Make parts_of(int color, const std::string& name = "part") {
  return [=](Group& group) { return group.split(color, 0, {name}); };
}

std::vector<DifferentGroups> different_groups() {
  return {
      {"the order of a list", from_list({0, 1, 2}), from_list({0, 2, 1}), "{0, 1, 2", "{0, 2, 1"},
      {"the first of a list", from_list({0, 1, 2}), from_list({2, 1, 0}), "{0, 1, 2", "{2, 1, 0"},
      {"the tag", from_list({0, 1, 2}, 1), from_list({0, 1, 2}, 7), "tag 1", "tag 7"},
      {"the name of a list", from_list({0}, 1, "a"), from_list({0}, 1, "b"), "'a'", "'b'"},
      {"the name of a copy", copy_of("a"), copy_of("b"), "'a'", "'b'"},
      {"the order of reductions", copy_of("a"), copy_of("a", ReductionOrder::rank), "order any",
       "order rank"},
      {"the urgency of a copy", copy_of("a"),
       [](Group& group) {
         return group.duplicate({"a", ReductionOrder::any, Urgency::bulk});
       },
       "normal", "bulk"},
      {"the name of a part", parts_of(0, "a"), parts_of(0, "b"), "'a'", "'b'"},
      {"the kind of group", parts_of(0), copy_of("part"), "split", "duplicate"},
  };
}

TEST_P(Mismatch, of_groups_to_be_made_fails_on_every_rank_naming_who_called_what) {
  in_world([](Context& here) {
    int odd_rank = 0;
    for (const DifferentGroups& about : different_groups()) {
      SCOPED_TRACE("difference in " + about.about);
      odd_rank = (odd_rank + 1) % here.size;
      const auto made = (here.rank == odd_rank ? about.odd : about.most)(*here.group);
      ASSERT_EQ(made.status().code(), Code::mismatch) << made.status().to_string();
      for (const std::string& word : {about.word_most, about.word_odd})
        EXPECT_NE(made.status().message().find(word), std::string::npos)
            << "should say " << word << ": " << made.status().to_string();
      EXPECT_EQ(made.status().peer(), odd_rank) << made.status().to_string();
      // The group that they are made from goes on, and makes others; once nobody waits in this call.
      meet(here, about.about);
      auto again = from_list({0, 1, 2}, 1)(*here.group);
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      try_out(**again, {.count = 100});
    }
    try_out(*here.group, {.count = 1000});
  });
}

TEST_P(Mismatch, of_sizes_and_orders_fails_while_ranks_join) {
  in_world([](Context& here) {
    const bool odd = here.rank == 1;
    auto larger = Group::create(
        here.store, {.rank = here.rank, .size = here.size + (odd ? 1 : 0), .name = "larger"});
    ASSERT_EQ(larger.status().code(), Code::mismatch) << larger.status().to_string();
    EXPECT_EQ(larger.status().peer(), 1) << larger.status().to_string();
    auto ordered = Group::create(
        here.store, {.rank = here.rank,
                     .size = here.size,
                     .name = "ordered",
                     .reduction_order = odd ? ReductionOrder::rank : ReductionOrder::any});
    ASSERT_EQ(ordered.status().code(), Code::mismatch) << ordered.status().to_string();
    EXPECT_EQ(ordered.status().peer(), 1) << ordered.status().to_string();
  });
}

INSTANTIATE_TEST_SUITE_P(World, Mismatch, testing::ValuesIn(one_world_of_each()), name_of);

}  // namespace
}  // namespace tutti::test
