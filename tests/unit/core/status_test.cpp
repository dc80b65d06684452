#include "tutti/status.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "core/bytes.hpp"
#include "core/clock.hpp"
#include "tutti/types.hpp"
#include "tutti/work.hpp"

namespace tutti {
namespace {

TEST(status, is_one_pointer_and_null_is_ok) {
  static_assert(sizeof(Status) == sizeof(void*));
  EXPECT_TRUE(Status().ok());
  EXPECT_TRUE(Status(Code::ok, "ignored").ok());
  EXPECT_EQ(Status().to_string(), "ok");
}

TEST(status, says_what_happened_to_whom) {
  const Status status(Code::peer_lost, "rank 3 died", {.rank = 1, .peer = 3, .sequence = 42});
  const Status copy = status;
  EXPECT_EQ(copy.to_string(), "peer_lost: rank 3 died");
  EXPECT_EQ(copy.rank(), 1);
  EXPECT_EQ(copy.peer(), 3);
  EXPECT_EQ(copy.sequence(), 42u);
  const Status wider = copy.annotate("group 'dp'");
  EXPECT_EQ(wider.message(), "group 'dp': rank 3 died");
  EXPECT_EQ(wider.peer(), 3);
  EXPECT_TRUE(Status().annotate("x").ok());
}

TEST(status, copies_may_die_in_any_thread) {
  Status status(Code::io, "shared");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([copy = status] {
      for (int i = 0; i < 1000; ++i) {
        Status again = copy;
        ASSERT_EQ(again.message(), "shared");
      }
    });
  status = Status();
  for (auto& thread : threads) thread.join();
}

TEST(types, every_word_is_parsed_back) {
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    EXPECT_EQ(parse_collective(to_string(collective)), collective);
  }
  for (int i = 0; i < kAlgorithms; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    EXPECT_EQ(parse_algorithm(to_string(algorithm)), algorithm);
  }
  for (int i = 0; i < kDtypes; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
    EXPECT_GT(size_of(dtype), 0u);
  }
  for (int i = 0; i < kReduceOps; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    EXPECT_EQ(parse_reduce_op(to_string(op)), op);
  }
  EXPECT_FALSE(parse_collective("allreduce"));
}

TEST(types, bit_operations_on_floats_are_senseless) {
  EXPECT_FALSE(is_sensible(ReduceOp::bxor, Dtype::f32));
  EXPECT_FALSE(is_sensible(ReduceOp::band, Dtype::bf16));
  EXPECT_TRUE(is_sensible(ReduceOp::bxor, Dtype::i32));
  EXPECT_TRUE(is_sensible(ReduceOp::sum, Dtype::f8e4m3));
}

TEST(work, without_an_operation_is_done_and_ok) {
  Work work;
  EXPECT_TRUE(work.done());
  EXPECT_TRUE(work.wait().ok());
  bool called = false;
  work.on_complete([&](const Status& status) { called = status.ok(); });
  EXPECT_TRUE(called);
}

TEST(work, that_is_finished_keeps_its_failure) {
  Work work = Work::finished(Status(Code::invalid_argument, "no such root"));
  EXPECT_TRUE(work.done());
  EXPECT_EQ(work.wait().code(), Code::invalid_argument);
  EXPECT_EQ(work.status().message(), "no such root");
  Code seen = Code::ok;
  work.on_complete([&](const Status& status) { seen = status.code(); });
  EXPECT_EQ(seen, Code::invalid_argument);
  EXPECT_TRUE(Work::finished(Status()).status().ok());
}

TEST(clock, deadlines_do_not_overflow) {
  EXPECT_EQ(deadline_after(Nanoseconds(5), Nanoseconds(7)), Nanoseconds(12));
  EXPECT_EQ(deadline_after(Nanoseconds(5), Nanoseconds::max()), Nanoseconds::max());
  const Nanoseconds before = steady_clock().now();
  EXPECT_GE(steady_clock().now(), before);
}

TEST(bytes, a_length_that_lies_is_refused) {
  ByteWriter writer;
  writer.put(std::uint32_t{1000});
  std::string text = "untouched";
  EXPECT_FALSE(ByteReader(writer.take()).get_string(text));
  EXPECT_EQ(text, "untouched");
}

}  // namespace
}  // namespace tutti
