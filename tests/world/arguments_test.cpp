// The caller's mistakes are invalid_argument on the rank that made them, start nothing, and leave
// the group as it was. Also what a group says of itself.
#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

class Arguments : public WorldTest {};

void expect_refused(const Status& status, const std::string& word) {
  EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
  EXPECT_NE(status.message().find(word), std::string::npos)
      << "should speak of " << word << ": " << status.to_string();
}

TEST_P(Arguments, that_make_no_sense_are_refused_and_the_group_goes_on) {
  in_world([](Context& here) {
    Group& group = *here.group;
    std::vector<float> values(12), more(12 * static_cast<std::size_t>(here.size));
    std::vector<std::uint8_t> flags(4);
    const Buffer one = Buffer::of(values), all = Buffer::of(more);
    const Buffer booleans{flags.data(), flags.size(), Dtype::boolean};
    const int size = here.size;

    expect_refused(group.all_reduce(one, ReduceOp::bxor), "bxor");
    expect_refused(group.all_reduce(one, ReduceOp::band), "f32");
    expect_refused(group.all_reduce(booleans, ReduceOp::avg), "bool");
    expect_refused(group.all_reduce(one, ReduceOp::user), "user");
    expect_refused(group.broadcast(one, size), "root");
    expect_refused(group.broadcast(one, -1), "root");
    expect_refused(group.reduce(one, all, ReduceOp::sum, size + 5), "root");
    expect_refused(group.all_reduce(one, all, ReduceOp::sum), "12");
    expect_refused(group.all_gather(one, one), "12");
    expect_refused(group.reduce_scatter(all, Buffer::of(more.data(), 11), ReduceOp::sum), "11");
    expect_refused(group.all_to_all(all, Buffer::of(more.data(), 11)), "11");
    try_out(group, {.count = 100});
  });
}

TEST_P(Arguments, with_wrong_counts_types_or_null_memory_are_refused) {
  in_world([](Context& here) {
    Group& group = *here.group;
    std::vector<float> values(12);
    std::vector<double> wide(12);
    const Buffer one = Buffer::of(values);
    const std::vector<std::size_t> short_list(static_cast<std::size_t>(here.size) - 1, 1);
    const std::vector<std::size_t> too_much(static_cast<std::size_t>(here.size), 100);

    expect_refused(group.all_gather_v(one, one, short_list), "counts");
    expect_refused(group.all_gather_v(one, one, too_much), "1");
    expect_refused(group.reduce_scatter_v(one, short_list, one, ReduceOp::sum), "counts");
    expect_refused(group.all_reduce(one, Buffer::of(wide), ReduceOp::sum), "f64");
    expect_refused(group.all_reduce(Buffer{nullptr, 5, Dtype::f32}, ReduceOp::sum), "null");
    const std::vector<Buffer> two_types{one, Buffer::of(wide)};
    expect_refused(group.all_reduce(std::span<const Buffer>(two_types), ReduceOp::sum), "f64");
    const std::vector<Buffer> too_few(static_cast<std::size_t>(here.size) + 1, one);
    expect_refused(group.all_gather(one, std::span<const Buffer>(too_few)), "buffers");
    try_out(group, {.count = 100});
  });
}

TEST_P(Arguments, of_different_types_belong_together_only_where_a_fold_need_not_be_rounded) {
  in_world([](Context& here) {
    Group& group = *here.group;
    std::vector<std::uint16_t> halves(12);
    std::vector<float> singles(12);
    std::vector<double> doubles(12);
    const Buffer narrow{halves.data(), 12, Dtype::bf16};
    const Buffer wide = Buffer::of(singles);
    expect_refused(group.all_reduce(wide, narrow, ReduceOp::sum), "f32 and bf16");
    expect_refused(group.all_reduce(narrow, Buffer::of(doubles), ReduceOp::sum), "bf16 and f64");
    expect_refused(group.all_reduce(wide, Buffer::of(doubles), ReduceOp::sum), "f32 and f64");
    expect_refused(group.all_gather(narrow, wide), "bf16 and f32");
    expect_refused(group.all_reduce(narrow, wide, Reduction::by(composition())), "function");
    const Buffer shorter = Buffer::of(singles.data(), 11);
    expect_refused(group.all_reduce(narrow, shorter, ReduceOp::sum), "11");
    const Buffer inside{singles.data(), 12, Dtype::bf16};
    expect_refused(group.all_reduce(inside, wide, ReduceOp::sum), "overlap");
    try_out(group, {.dtype = Dtype::bf16, .count = 100, .widens = true});
  });
}

TEST_P(Arguments, of_messages_are_checked) {
  in_world([](Context& here) {
    std::vector<float> values(12);
    const Buffer one = Buffer::of(values);
    expect_refused(here.group->send(one, here.size), "rank");
    expect_refused(here.group->send(one, kAnySource), "-1");
    expect_refused(here.group->recv(one, -7).status(), "-7");
    expect_refused(here.group->send(Buffer{nullptr, 5, Dtype::f32}, 0), "null");
    expect_refused(here.group->subgroup(std::vector<int>{here.rank, here.rank}, 0).status(),
                   "twice");
    expect_refused(here.group->subgroup(std::vector<int>{here.rank, 99}, 0).status(), "99");
    try_out(*here.group, {.count = 100});
  });
}

TEST_P(Arguments, a_stream_is_refused_because_nobody_would_wait_for_it) {
  in_world([](Context& here) {
    std::vector<float> values(12);
    CallOptions options;
    options.stream = &values;
    const auto refuses = [](const Status& status) {
      return status.code() == Code::unsupported &&
             status.message().find("options.stream") != std::string::npos;
    };
    for (int again = 0; again < 2; ++again) {  // a call like it was run before
      EXPECT_TRUE(refuses(here.group->all_reduce(Buffer::of(values), ReduceOp::sum, options)));
      EXPECT_TRUE(
          refuses(here.group->all_reduce_async(Buffer::of(values), ReduceOp::sum, options).wait()));
      EXPECT_TRUE(refuses(here.group->barrier(options)));
      EXPECT_TRUE(refuses(here.group->send(Buffer::of(values), 0, 0, options)));
      EXPECT_TRUE(here.group->all_reduce(Buffer::of(values), ReduceOp::sum).ok());
    }
    try_out(*here.group, {.count = 100});
  });
}

TEST_P(Arguments, predictions_for_some_of_the_ranks_are_those_of_a_group_of_them) {
  in_world([](Context& here) {
    const std::vector<int> some{0, here.size - 1};
    const auto foretold = here.group->predict(Collective::all_gather, 1 << 20, some);
    ASSERT_TRUE(foretold.ok()) << foretold.status().to_string();
    auto pair = here.group->split(here.rank == 0 || here.rank == here.size - 1 ? 0 : 1, 0);
    ASSERT_TRUE(pair.ok());
    const auto told = (*pair)->predict(Collective::all_gather, 1 << 20);
    ASSERT_TRUE(told.ok());
    if ((*pair)->size() == 2) {
      EXPECT_EQ(foretold->time, told->time);
    }
    const std::vector<int> wrong{0, here.size};
    EXPECT_EQ(here.group->predict(Collective::barrier, 0, wrong).status().code(),
              Code::invalid_argument);
  });
}

TEST_P(Arguments, predictions_are_sane) {
  in_world([](Context& here) {
    for (int c = 0; c < kCollectives; ++c) {
      const auto collective = static_cast<Collective>(c);
      auto small = here.group->predict(collective, 64),
           large = here.group->predict(collective, 64 << 20);
      ASSERT_TRUE(small.ok() && large.ok()) << to_string(collective);
      EXPECT_NE(small->algorithm, Algorithm::automatic);
      EXPECT_GT(small->time.count(), 0) << to_string(collective);
      EXPECT_LT(large->time, std::chrono::minutes(1)) << to_string(collective);
      if (collective != Collective::barrier) {
        EXPECT_GT(large->time, small->time) << to_string(collective);
      }
    }
  });
}

TEST_P(Arguments, a_group_says_what_it_is) {
  in_world([](Context& here) {
    EXPECT_EQ(here.group->rank(), here.rank);
    EXPECT_EQ(here.group->size(), here.size);
    EXPECT_EQ(here.group->name(), "world");
    EXPECT_TRUE(here.group->health().ok());
    const std::string text = here.group->describe();
    const std::string transport = here.world.kind == WorldKind::threads ? "inproc"
                                  : here.world.kind == WorldKind::shm   ? "shm"
                                                                        : "tcp";
    EXPECT_NE(text.find(transport), std::string::npos) << text;
    if (here.world.kind == WorldKind::mixed) {
      EXPECT_NE(text.find("shm"), std::string::npos) << text;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(World, Arguments, testing::ValuesIn(one_world_of_each()), name_of);

TEST(Creation, refuses_a_rank_outside_its_size) {
  for (auto [rank, size] : {std::pair{3, 3}, std::pair{-1, 2}, std::pair{0, 0}}) {
    GroupOptions options;
    options.rank = rank;
    options.size = size;
    options.config = Config{};
    const auto group = Group::create(make_memory_store(), options);
    EXPECT_EQ(group.status().code(), Code::invalid_argument)
        << rank << " of " << size << ": " << group.status().to_string();
  }
}

TEST(Arguments, a_ready_token_is_refused_where_nobody_waits_for_it) {
  run(World{.kind = WorldKind::threads, .size = 2}, [](Context& here) {
    std::vector<float> values(4, 1.0F);
    Buffer buffer = Buffer::of(values);
    // The second time round the call is remembered.
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(here.group->all_reduce(buffer, ReduceOp::sum).ok());
    buffer.ready = &values;
    EXPECT_EQ(here.group->all_reduce(buffer, ReduceOp::sum).code(), Code::unsupported);
    EXPECT_EQ(here.group->all_reduce_async(buffer, ReduceOp::sum).wait().code(), Code::unsupported);
    EXPECT_EQ(here.group->send(buffer, 1 - here.rank).code(), Code::unsupported);
  });
}

TEST(Creation, names_those_who_did_not_come) {
  GroupOptions options;
  options.rank = 1;
  options.size = 3;
  options.config = Config{};
  options.config->transport = "inproc";
  options.config->join_timeout = std::chrono::milliseconds(200);
  const auto group = Group::create(make_memory_store(), options);
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.status().code(), Code::timed_out) << group.status().to_string();
  EXPECT_NE(group.status().message().find("rank"), std::string::npos) << group.status().to_string();
}

TEST(Creation, refuses_a_transport_that_does_not_exist) {
  GroupOptions options;
  options.rank = 0;
  options.size = 1;
  options.config = Config{};
  options.config->transport = "pigeon";
  const auto group = Group::create(make_memory_store(), options);
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.status().code(), Code::invalid_argument) << group.status().to_string();
  EXPECT_NE(group.status().message().find("pigeon"), std::string::npos);
}

}  // namespace
}  // namespace tutti::test
