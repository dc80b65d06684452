// Tokens are read ahead of whoever takes them: in order, within bounds, and a failure is theirs who asks for it.
#include "prefetch.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <stdexcept>

namespace pretrain {
namespace {

using tutti::Code;
using tutti::Result;
using tutti::Status;

// Three micro-batches a step of ten sequences.
MicroPlace next(const MicroPlace& place) {
  return place.micro < 2 ? MicroPlace{place.sequences, place.micro + 1}
                         : MicroPlace{place.sequences + 10, 0};
}

TokenBatch batch_of(const MicroPlace& place) {
  TokenBatch batch;
  batch.tokens = {static_cast<std::int64_t>(place.sequences), place.micro};
  return batch;
}

std::vector<std::int64_t> tokens(const Result<TokenBatch>& batch) {
  return batch.ok() ? batch->tokens : std::vector<std::int64_t>{-1};
}

TEST(Prefetch, gives_what_is_asked_for_in_order_and_out_of_it) {
  Prefetch prefetch([](const MicroPlace& place) { return batch_of(place); }, next, 4);
  MicroPlace place;
  for (int i = 0; i < 1000; ++i, place = next(place)) {
    ASSERT_EQ(tokens(prefetch.take(place)), batch_of(place).tokens);
    if (i % 7 != 0) continue;
    const MicroPlace again{place.sequences, 0};  // the step once more
    ASSERT_EQ(tokens(prefetch.take(again)), batch_of(again).tokens);
    place = again;
  }
}

TEST(Prefetch, reads_as_many_ahead_as_it_may_and_no_more) {
  std::counting_semaphore<> begun(0), may_end(0);
  std::atomic<int> reads = 0;
  {
    Prefetch prefetch(
        [&](const MicroPlace& place) {
          ++reads;
          begun.release();
          may_end.acquire();
          return batch_of(place);
        },
        next, 2);
    EXPECT_EQ(reads, 0);  // nobody has asked
    may_end.release(1);
    EXPECT_EQ(tokens(prefetch.take({})), batch_of({}).tokens);
    // The next one is being read by itself, and then one more; not a fourth.
    begun.acquire();
    begun.acquire();
    may_end.release(1);
    begun.acquire();
    may_end.release(1);
    EXPECT_EQ(tokens(prefetch.take({0, 1})), batch_of({0, 1}).tokens);
    begun.acquire();  // there is room again
    EXPECT_EQ(reads, 4);
    EXPECT_GT(prefetch.take_waited_s(), 0);
    EXPECT_EQ(prefetch.take_waited_s(), 0);
    may_end.release(8);
  }  // and it ends while a read is under way
  EXPECT_LE(reads, 4);
}

TEST(Prefetch, a_failure_is_told_where_it_is_met_and_may_be_tried_again) {
  std::atomic<bool> is_broken = true;
  Prefetch prefetch(
      [&](const MicroPlace& place) -> Result<TokenBatch> {
        if (place.micro == 1 && is_broken) return Status(Code::io, "the file was cut short");
        if (place.micro == 2 && is_broken) throw std::runtime_error("the roof fell in");
        return batch_of(place);
      },
      next, 8);
  EXPECT_TRUE(prefetch.take({}).ok());
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(prefetch.take({0, 1}).status().message(), "the file was cut short");
  const Status thrown = prefetch.take({0, 2}).status();
  EXPECT_EQ(thrown.code(), Code::internal);
  EXPECT_EQ(thrown.message(), "reading tokens: the roof fell in");
  is_broken = false;
  EXPECT_EQ(tokens(prefetch.take({0, 1})), batch_of({0, 1}).tokens);
}

}  // namespace
}  // namespace pretrain
