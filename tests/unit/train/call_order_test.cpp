// Every call in every state: what is allowed leads on, what is not is named and changes nothing.
#include "train/call_order.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void expect_refused(const Status& status, const std::string& call, const std::string& first) {
  EXPECT_EQ(status.code(), Code::invalid_argument) << call;
  EXPECT_THAT(status.message(), AllOf(HasSubstr(call + " is out of order"), HasSubstr(first)));
}

CallOrder in_forward(bool last = true) {
  CallOrder order;
  EXPECT_TRUE(order.begin_micro_batch(last).ok());
  return order;
}
CallOrder in_backward(bool last = true) {
  CallOrder order = in_forward(last);
  EXPECT_TRUE(order.begin_backward().ok());
  return order;
}
CallOrder behind_backward(bool last) {
  CallOrder order = in_backward(last);
  EXPECT_TRUE(order.end_backward().ok());
  return order;
}

TEST(CallOrder, lets_a_step_of_any_number_of_micro_batches_through) {
  CallOrder order;
  for (int micro_batches : {1, 2, 5}) {
    for (int i = 1; i <= micro_batches; ++i) {
      ASSERT_TRUE(order.begin_micro_batch(i == micro_batches).ok());
      EXPECT_EQ(order.is_last(), i == micro_batches);
      ASSERT_TRUE(order.begin_backward().ok());
      ASSERT_TRUE(order.ready("a").ok());
      ASSERT_TRUE(order.ready("a").ok());
      ASSERT_TRUE(order.end_backward().ok());
    }
    ASSERT_TRUE(order.step().ok());
    order.restart();
  }
}

TEST(CallOrder, refuses_all_but_a_micro_batch_when_a_step_begins) {
  CallOrder order;
  expect_refused(order.begin_backward(), "begin_backward()", "call begin_micro_batch first");
  expect_refused(order.ready("w"), "ready('w')", "call begin_micro_batch first");
  expect_refused(order.end_backward(), "end_backward()", "call begin_micro_batch first");
  expect_refused(order.step(), "step()", "no micro-batch yet");
  EXPECT_TRUE(order.begin_micro_batch(true).ok()) << "a refused call changes nothing";
}

TEST(CallOrder, refuses_a_second_micro_batch_before_the_backward_of_the_first) {
  CallOrder order = in_forward();
  expect_refused(order.begin_micro_batch(true), "begin_micro_batch(true)", "call begin_backward");
  expect_refused(order.begin_micro_batch(false), "begin_micro_batch(false)", "in its forward");
  expect_refused(order.ready("w"), "ready('w')", "call begin_backward");
  expect_refused(order.end_backward(), "end_backward()", "call begin_backward");
  expect_refused(order.step(), "step()", "call begin_backward");
  EXPECT_TRUE(order.begin_backward().ok());
}

TEST(CallOrder, refuses_all_but_gradients_and_its_end_in_a_backward) {
  CallOrder order = in_backward();
  expect_refused(order.begin_micro_batch(true), "begin_micro_batch(true)", "call end_backward");
  expect_refused(order.begin_backward(), "begin_backward()", "a backward is under way");
  expect_refused(order.step(), "step()", "call end_backward");
  EXPECT_TRUE(order.end_backward().ok());
}

TEST(CallOrder, refuses_a_step_before_the_last_micro_batch) {
  CallOrder order = behind_backward(false);
  expect_refused(order.step(), "step()", "last micro-batch is still to come");
  expect_refused(order.begin_backward(), "begin_backward()", "call begin_micro_batch");
  expect_refused(order.ready("w"), "ready('w')", "call begin_micro_batch");
  expect_refused(order.end_backward(), "end_backward()", "call begin_micro_batch");
  EXPECT_TRUE(order.begin_micro_batch(true).ok());
}

TEST(CallOrder, refuses_two_last_micro_batches_in_a_step) {
  CallOrder order = behind_backward(true);
  expect_refused(order.begin_micro_batch(true), "begin_micro_batch(true)", "call step");
  expect_refused(order.begin_micro_batch(false), "begin_micro_batch(false)", "call step");
  expect_refused(order.begin_backward(), "begin_backward()", "call step");
  expect_refused(order.ready("w"), "ready('w')", "call step");
  expect_refused(order.end_backward(), "end_backward()", "call step");
  EXPECT_TRUE(order.step().ok());
}

TEST(CallOrder, begins_again_from_anywhere) {
  for (CallOrder order :
       {CallOrder(), in_forward(), in_backward(), behind_backward(false), behind_backward(true)}) {
    order.restart();
    EXPECT_TRUE(order.begin_micro_batch(false).ok());
  }
}

}  // namespace
}  // namespace tutti::train
