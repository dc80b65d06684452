// The tests' own tools: the reference rounds right, and failures in children are not lost.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "support/children.hpp"
#include "support/reference.hpp"

namespace tutti::test {
namespace {

std::uint32_t bits_of(Dtype dtype, double value) {
  std::uint32_t bits = 0;
  encode(dtype, value, reinterpret_cast<std::byte*>(&bits));
  return bits;
}

double value_of(Dtype dtype, std::uint32_t bits) {
  return decode(dtype, reinterpret_cast<const std::byte*>(&bits));
}

TEST(Reference, gives_back_every_small_float_that_it_reads) {
  for (Dtype dtype : {Dtype::f8e4m3, Dtype::f8e5m2, Dtype::f16, Dtype::bf16})
    for (std::uint32_t bits = 0; bits < (size_of(dtype) == 1 ? 1U << 8 : 1U << 16); ++bits) {
      const double value = value_of(dtype, bits);
      if (std::isnan(value))
        EXPECT_TRUE(std::isnan(value_of(dtype, bits_of(dtype, value))));
      else
        ASSERT_EQ(bits_of(dtype, value), bits) << to_string(dtype) << " " << value;
    }
}

TEST(Reference, rounds_ties_to_even_and_overflows_as_documented) {
  EXPECT_EQ(bits_of(Dtype::f16, 1.0), 0x3C00U);
  EXPECT_EQ(bits_of(Dtype::f16, 65519.0), 0x7BFFU);
  EXPECT_EQ(bits_of(Dtype::f16, 65520.0), 0x7C00U);
  EXPECT_EQ(bits_of(Dtype::bf16, 1.0 + 0x1p-8), 0x3F80U);
  EXPECT_EQ(bits_of(Dtype::bf16, 1.0 + 3 * 0x1p-8), 0x3F82U);
  EXPECT_EQ(bits_of(Dtype::bf16, -2.0), 0xC000U);
  EXPECT_EQ(value_of(Dtype::f8e4m3, bits_of(Dtype::f8e4m3, 1e9)), 448.0);
  EXPECT_EQ(value_of(Dtype::f8e4m3, 0x7E), 448.0);
  EXPECT_TRUE(std::isnan(value_of(Dtype::f8e4m3, 0x7F)));
  EXPECT_EQ(value_of(Dtype::f8e5m2, 0x7B), 57344.0);
  EXPECT_EQ(bits_of(Dtype::f8e5m2, 61440.0), 0x7CU);
  EXPECT_EQ(value_of(Dtype::f8e4m3, 0x01), 0x1p-9);
}

// `exact` means what it says: folding backwards, rounded at every step, gives the same bits.
TEST(Reference, exact_values_give_the_same_bits_in_every_order) {
  for (int d = 0; d < kDtypes; ++d)
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::avg, ReduceOp::premul_sum}) {
      const auto dtype = static_cast<Dtype>(d);
      if (!is_sensible(op, dtype)) continue;
      std::vector<Bytes> inputs;
      for (int rank = 0; rank < 16; ++rank)
        inputs.push_back(make_values({dtype, op}, rank, 0, 500));
      const Reduction reduction = op == ReduceOp::premul_sum ? Reduction::premul_sum(2.0) : op;
      const Bytes forward = fold_in_order(dtype, reduction, inputs, 16);
      const Reduction partial = op == ReduceOp::prod ? ReduceOp::prod : ReduceOp::sum;
      Bytes backward = inputs.back();
      for (std::size_t r = inputs.size() - 1; r-- > 0;)
        backward = fold_in_order(dtype, partial, {inputs[r], backward}, 1);
      if (op == ReduceOp::avg || op == ReduceOp::premul_sum)
        backward = fold_in_order(dtype, reduction, {backward}, 16);
      EXPECT_EQ(difference(dtype, forward, backward.data()), std::nullopt)
          << to_string(dtype) << " " << to_string(op);
    }
}

TEST(Children, report_failed_assertions_with_their_rank) {
  Children children(std::chrono::seconds(20), {});
  for (int rank = 0; rank < 3; ++rank)
    children.fork({rank}, [rank] { EXPECT_NE(rank, 1) << "a failure on purpose"; });
  const auto failures = children.wait();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].rank, 1);
  EXPECT_NE(failures[0].text.find("a failure on purpose"), std::string::npos);
}

TEST(Children, that_crash_or_hang_are_reported_and_ended) {
  Children children(std::chrono::seconds(1), {3});
  children.fork({0}, [] {
    signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
  });
  children.fork({1}, [] {
    for (;;) pause();
  });
  children.fork({2}, [] {});
  children.fork({3}, [] { raise(SIGSTOP); });  // doomed: no failure
  const auto failures = children.wait();
  ASSERT_EQ(failures.size(), 2U);
  EXPECT_EQ(failures[0].rank, 0);
  EXPECT_EQ(failures[1].rank, 1);
}

// What a sanitizer does after its report, and whatever else is no failed assertion.
// One that lives on would keep this test's output open, and whoever reads it waiting.
TEST(Children, that_hang_are_ended_with_all_that_they_have_forked) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Children children(std::chrono::seconds(1), {});
  children.fork({0}, [&] {
    (void)fork();
    for (;;) pause();
  });
  close(ends[1]);
  EXPECT_EQ(children.wait().size(), 1u);
  char nothing = 0;
  pollfd left{ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&left, 1, 10'000), 1) << "somebody still has the other end";
  EXPECT_EQ(read(ends[0], &nothing, 1), 0);
  close(ends[0]);
}

TEST(Children, that_exit_with_any_status_but_0_are_reported) {
  for (const int status : {1, 2, 86}) {
    Children children(std::chrono::seconds(20), {1});
    children.fork({0}, [status] { _exit(status); });
    children.fork({1}, [status] { _exit(status); });
    const auto failures = children.wait();
    ASSERT_EQ(failures.size(), 2U) << status;
    for (const Failure& failure : failures)
      EXPECT_NE(failure.text.find("exited with status " + std::to_string(status)),
                std::string::npos)
          << failure.text;
  }
}

TEST(Children, that_are_doomed_have_to_die_or_to_stop) {
  Children children(std::chrono::seconds(1), {0, 1, 2, 3});
  children.fork({0}, [] { raise(SIGKILL); });
  children.fork({1}, [] { raise(SIGSTOP); });
  children.fork({2}, [] {});
  children.fork({3}, [] {
    for (;;) pause();
  });
  const auto failures = children.wait();
  ASSERT_EQ(failures.size(), 2U);
  EXPECT_NE(failures[0].text.find("rank 2 was to die, and lived"), std::string::npos);
  EXPECT_NE(failures[1].text.find("rank 3 was to die or to stop"), std::string::npos);
}

TEST(Children, that_skip_are_reported) {
  Children children(std::chrono::seconds(20), {});
  children.fork({0}, [] { GTEST_SKIP() << "this machine is too small"; });
  const auto failures = children.wait();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_NE(failures[0].text.find("skipped its test"), std::string::npos);
  EXPECT_NE(failures[0].text.find("too small"), std::string::npos);
}

}  // namespace
}  // namespace tutti::test
