// Point to point: matching, order, sizes, batches.
#include <algorithm>
#include <random>

#ifdef TUTTI_HAVE_RAPIDCHECK
#include <rapidcheck.h>
#endif

#include "support/device_group.hpp"
#include "support/reference.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

class Messages : public WorldTest {};

constexpr std::size_t kLarge = 300'007;  // i32: 1.2 MiB, well above what is sent eagerly

std::vector<std::int32_t> message(std::size_t count, int key) {
  std::vector<std::int32_t> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = key * 1'000'003 + static_cast<std::int32_t>(i);
  return values;
}

void expect_message(const std::vector<std::int32_t>& got, int key) {
  EXPECT_TRUE(got == message(got.size(), key))
      << "a message of " << got.size() << " with key " << key << " came out wrong";
}

#define EXPECT_OK(expression)                                                \
  do {                                                                       \
    const ::tutti::Status status_ = (expression);                            \
    EXPECT_TRUE(status_.ok()) << #expression << ": " << status_.to_string(); \
  } while (false)

TEST_P(Messages, of_every_size_go_round_a_ring) {
  in_world([](Context& here) {
    const int next = (here.rank + 1) % here.size,
              previous = (here.rank + here.size - 1) % here.size;
    for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{257}, std::size_t{4099},
                              std::size_t{40'000}, kLarge}) {
      auto out = message(count, here.rank);
      std::vector<std::int32_t> in(count);
      Work sent = here.group->isend(ConstBuffer::of(out), next, 7);
      auto received = here.group->recv(Buffer::of(in), previous, 7);
      ASSERT_TRUE(received.ok()) << received.status().to_string();
      EXPECT_EQ(received->source, previous);
      EXPECT_EQ(received->tag, 7U);
      EXPECT_EQ(received->bytes, count * sizeof(std::int32_t));
      EXPECT_OK(sent.wait());
      expect_message(in, previous);
    }
  });
}

TEST_P(Messages, are_matched_by_tag_whatever_the_order_of_receives) {
  in_world([](Context& here) {
    if (here.rank == 0) {
      for (std::uint32_t tag = 0; tag < 8; ++tag) {
        auto out = message(tag % 2 ? 100 : 50'000, static_cast<int>(tag));
        EXPECT_OK(here.group->isend(ConstBuffer::of(out), 1, tag).wait(std::chrono::seconds(30)));
      }
    }
    if (here.rank == 1) {
      std::vector<std::vector<std::int32_t>> in;
      std::vector<Work> works;
      for (std::uint32_t tag = 0; tag < 8; ++tag) in.emplace_back(tag % 2 ? 100 : 50'000);
      for (std::uint32_t tag = 8; tag-- > 0;)
        works.push_back(here.group->irecv(Buffer::of(in[tag]), 0, tag));
      for (Work& work : works) EXPECT_OK(work.wait());
      for (std::uint32_t tag = 0; tag < 8; ++tag) expect_message(in[tag], static_cast<int>(tag));
    }
    EXPECT_OK(here.group->barrier());
  });
}

// Sizes alternate between eager and rendezvous: the small ones must not overtake the large ones.
TEST_P(Messages, of_one_source_and_tag_do_not_overtake_each_other) {
  in_world([](Context& here) {
    const int rounds = reduced() ? 20 : 60;
    const auto count_of = [](int i) { return i % 5 == 0 ? std::size_t{60'000} : std::size_t{10}; };
    if (here.rank == 0) {
      std::vector<std::vector<std::int32_t>> out;
      std::vector<Work> works;
      for (int i = 0; i < rounds; ++i) out.push_back(message(count_of(i), i));
      for (auto& values : out) works.push_back(here.group->isend(ConstBuffer::of(values), 1, 3));
      for (Work& work : works) EXPECT_OK(work.wait());
    }
    if (here.rank == 1)
      for (int i = 0; i < rounds; ++i) {
        std::vector<std::int32_t> in(60'000);
        auto received = here.group->recv(Buffer::of(in), 0, 3);
        ASSERT_TRUE(received.ok()) << received.status().to_string();
        ASSERT_EQ(received->bytes, count_of(i) * sizeof(std::int32_t)) << "message " << i;
        in.resize(count_of(i));
        expect_message(in, i);
      }
    EXPECT_OK(here.group->barrier());
  });
}

TEST_P(Messages, from_any_source_are_all_received_once) {
  in_world([](Context& here) {
    constexpr int kEach = 5;
    if (here.rank == 0) {
      std::vector<int> seen(static_cast<std::size_t>(here.size), 0);
      for (int i = 0; i < kEach * (here.size - 1); ++i) {
        std::vector<std::int32_t> in(30'000);
        auto received = here.group->recv(Buffer::of(in), kAnySource, 9);
        ASSERT_TRUE(received.ok()) << received.status().to_string();
        ASSERT_GT(received->source, 0);
        in.resize(received->bytes / sizeof(std::int32_t));
        // Per source in the order they were sent.
        expect_message(in,
                       received->source * 100 + seen[static_cast<std::size_t>(received->source)]++);
      }
      for (int rank = 1; rank < here.size; ++rank)
        EXPECT_EQ(seen[static_cast<std::size_t>(rank)], kEach);
    } else {
      for (int i = 0; i < kEach; ++i)
        EXPECT_OK(here.group->send(
            ConstBuffer::of(message(i % 2 ? 30'000 : 12, here.rank * 100 + i)), 0, 9));
    }
  });
}

TEST_P(Messages, cross_each_other_when_both_sides_send_first) {
  in_world([](Context& here) {
    for (std::size_t count : {std::size_t{5}, kLarge}) {
      std::vector<std::vector<std::int32_t>> out, in;
      std::vector<Work> works;
      for (int peer = 0; peer < here.size; ++peer) {
        out.push_back(message(count, here.rank * 50 + peer));
        in.emplace_back(count);
      }
      for (int peer = 0; peer < here.size; ++peer)
        if (peer != here.rank)
          works.push_back(
              here.group->isend(ConstBuffer::of(out[static_cast<std::size_t>(peer)]), peer));
      for (int peer = 0; peer < here.size; ++peer)
        if (peer != here.rank)
          works.push_back(here.group->irecv(Buffer::of(in[static_cast<std::size_t>(peer)]), peer));
      for (Work& work : works) EXPECT_OK(work.wait());
      for (int peer = 0; peer < here.size; ++peer)
        if (peer != here.rank)
          expect_message(in[static_cast<std::size_t>(peer)], peer * 50 + here.rank);
    }
  });
}

TEST_P(Messages, that_nobody_waits_for_yet_are_kept_without_bound_on_their_number) {
  in_world([](Context& here) {
    const int many = reduced() ? 200 : 1000;
    if (here.rank == 0) {
      std::vector<std::int32_t> value{0};
      std::vector<std::vector<std::int32_t>> out;
      std::vector<Work> works;
      for (int i = 0; i < many; ++i) out.push_back(message(64, i));
      for (auto& values : out) works.push_back(here.group->isend(ConstBuffer::of(values), 1, 4));
      EXPECT_OK(here.group->send(ConstBuffer::of(value), 1, 5));
      for (Work& work : works) EXPECT_OK(work.wait());
    }
    if (here.rank == 1) {
      std::vector<std::int32_t> in(64), value{1};
      // Tag 5 was sent last and is asked for first.
      ASSERT_TRUE(here.group->recv(Buffer::of(value), 0, 5).ok());
      for (int i = 0; i < many; ++i) {
        ASSERT_TRUE(here.group->recv(Buffer::of(in), 0, 4).ok());
        expect_message(in, i);
      }
    }
    EXPECT_OK(here.group->barrier());
  });
}

TEST_P(Messages, do_not_wait_for_collectives_nor_make_them_wait) {
  in_world([](Context& here) {
    std::vector<std::int32_t> sum{here.rank}, in(kLarge);
    auto out = message(kLarge, 1);
    Work received;
    if (here.rank == 1) received = here.group->irecv(Buffer::of(in), 0);
    Work reduced_sum = here.group->all_reduce_async(Buffer::of(sum), ReduceOp::sum);
    EXPECT_OK(reduced_sum.wait());
    if (here.rank == 0) EXPECT_OK(here.group->send(ConstBuffer::of(out), 1));
    EXPECT_OK(received.wait());
    if (here.rank == 1) expect_message(in, 1);
    EXPECT_EQ(sum[0], here.size * (here.size - 1) / 2);
  });
}

// A small message has left its sender before anybody can refuse it: its receiver alone is told.
TEST_P(Messages, that_are_larger_than_the_receive_buffer_are_an_error) {
  in_world([](Context& here) {
    std::uint32_t tag = 0;
    for (std::size_t count : {std::size_t{100}, kLarge}) {
      ++tag;
      if (here.rank == 0) {
        const Status status = here.group->send(ConstBuffer::of(message(count, 1)), 1, tag);
        // On a device messages wait for their receives between ranks of one host, small ones too.
        if (count == kLarge || !wants_device()) {
          EXPECT_EQ(status.ok(), count != kLarge) << status.to_string();
        }
      }
      if (here.rank == 1) {
        std::vector<std::int32_t> in(count - 1, -1);
        const auto received = here.group->recv(Buffer::of(in), 0, tag);
        EXPECT_EQ(received.status().code(), Code::invalid_argument)
            << received.status().to_string();
        EXPECT_EQ(in, std::vector<std::int32_t>(count - 1, -1)) << "a refused message was written";
      }
    }
    // It is this message's failure, not the group's.
    EXPECT_OK(here.group->barrier());
  });
}

TEST_P(Messages, sent_to_oneself_in_a_batch_arrive) {
  in_world([](Context& here) {
    for (std::size_t count : {std::size_t{0}, std::size_t{33}, kLarge}) {
      auto out = message(count, here.rank);
      std::vector<std::int32_t> in(count);
      const Transfer both[] = {{Transfer::Kind::send, Buffer::of(out), here.rank, 2},
                               {Transfer::Kind::recv, Buffer::of(in), here.rank, 2}};
      EXPECT_OK(here.group->transfer(both, {}).wait());
      expect_message(in, here.rank);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(World, Messages, testing::ValuesIn(one_world_of_each()), name_of);

// A batch is everything that everybody sends, as seen by this rank, in an order of its own.
struct Planned {
  int from, to;
  std::size_t count;
};

std::vector<Planned> plan_from(const std::vector<std::uint32_t>& words, int size) {
  std::vector<Planned> plan;
  const auto ranks = static_cast<unsigned>(size);
  for (std::uint32_t word : words)
    plan.push_back({static_cast<int>(word % ranks), static_cast<int>(word / 16 % ranks),
                    word % 7 == 0 ? 50'000 + word % 1000 : word / 256 % 600});
  return plan;
}

void run_batch(Context& here, const std::vector<Planned>& plan, std::uint64_t seed) {
  std::vector<std::vector<std::int32_t>> buffers;
  std::vector<Transfer> transfers;
  std::vector<std::size_t> received;
  buffers.reserve(2 * plan.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const auto tag = static_cast<std::uint32_t>(i);
    if (plan[i].from == here.rank) {
      buffers.push_back(message(plan[i].count, static_cast<int>(i)));
      transfers.push_back({Transfer::Kind::send, Buffer::of(buffers.back()), plan[i].to, tag});
    }
    if (plan[i].to == here.rank) {
      buffers.emplace_back(plan[i].count);
      transfers.push_back({Transfer::Kind::recv, Buffer::of(buffers.back()), plan[i].from, tag});
      received.push_back(buffers.size() - 1);
    }
  }
  std::mt19937_64 random(seed + static_cast<std::uint64_t>(here.rank));
  auto shuffled = transfers;
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  ASSERT_TRUE(here.group->transfer(shuffled, {}).wait().ok());
  std::size_t next = 0;
  for (std::size_t i = 0; i < plan.size(); ++i)
    if (plan[i].to == here.rank) expect_message(buffers[received[next++]], static_cast<int>(i));
}

TEST_P(Messages, in_a_batch_may_stand_in_any_order) {
  in_world([](Context& here) {
    for (std::uint64_t seed = 1; seed <= (reduced() ? 5U : 30U); ++seed) {
      std::mt19937_64 random(seed);
      std::vector<std::uint32_t> words(1 + random() % 30);
      for (auto& word : words) word = static_cast<std::uint32_t>(random());
      SCOPED_TRACE("seed " + std::to_string(seed));
      run_batch(here, plan_from(words, here.size), seed);
    }
  });
}

#ifdef TUTTI_HAVE_RAPIDCHECK
TEST(Batches, cannot_deadlock_whatever_their_order) {
  setenv("RC_PARAMS", reduced() ? "max_success=5" : "max_success=40", 0);
  const World world{.size = 4, .limit = std::chrono::seconds(20)};
  EXPECT_TRUE(rc::check([&](const std::vector<std::uint32_t>& words, std::uint64_t seed) {
    const auto failures =
        collect(world, [&](Context& here) { run_batch(here, plan_from(words, here.size), seed); });
    for (const Failure& failure : failures)
      RC_LOG() << failure.rank << ": " << failure.text << "\n";
    RC_ASSERT(failures.empty());
  }));
}
#endif

}  // namespace
}  // namespace tutti::test
