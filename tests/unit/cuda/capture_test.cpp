// What a program captures into a graph, and launches again and again.
#include "cuda/reduction.hpp"
#include "support/captured_graph.hpp"
#include "unit/cuda/on_device.hpp"

namespace tutti::cuda {
namespace {

TEST_F(EmulatedGpu, replays_what_was_captured_with_the_numbers_it_was_captured_with) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    Words words(*device);
    const Stream stream = need(device->make_stream());
    EXPECT_FALSE(need(device->is_capturing(stream.get())));
    std::uint64_t number = 5;
    CapturedGraph graph(*device, stream.get(), CapturedGraph::Mode::global, [&] {
      EXPECT_TRUE(need(device->is_capturing(stream.get())));
      const MemoryOperation write = write_word(words.address(), number);
      EXPECT_OK(device->operate({&write, 1}, stream.get()));
      EXPECT_OK(device->copy(words.address(1), words.address(), 8, stream.get()));
    });
    ASSERT_TRUE(graph.ok()) << graph.result();
    EXPECT_FALSE(need(device->is_capturing(stream.get())));
    EXPECT_OK(device->synchronize(stream.get()));
    EXPECT_EQ(words.get(), 0U) << "captured, not done";
    number = 6;
    for (int round = 0; round < 3; ++round) {
      words.set(1);
      EXPECT_EQ(graph.launch(stream.get()), 0);
      EXPECT_OK(device->synchronize(stream.get()));
      EXPECT_EQ(words.get(0), 5U);
      EXPECT_EQ(words.get(1), 5U);
    }
  });
}

TEST_F(EmulatedGpu, captures_streams_that_join_by_events) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    Words words(*device);
    const Stream first = need(device->make_stream());
    const Stream second = need(device->make_stream());
    const Event fork = need(device->make_event());
    const Event join = need(device->make_event());
    const auto body = [&](bool joins) {
      EXPECT_OK(device->record(fork.get(), first.get()));
      EXPECT_OK(device->wait(second.get(), fork.get()));
      EXPECT_TRUE(need(device->is_capturing(second.get())));
      const MemoryOperation write = write_word(words.address(), 3);
      EXPECT_OK(device->operate({&write, 1}, second.get()));
      EXPECT_OK(device->record(join.get(), second.get()));
      if (joins) EXPECT_OK(device->wait(first.get(), join.get()));
    };
    CapturedGraph forgetful(*device, first.get(), CapturedGraph::Mode::global,
                            [&] { body(false); });
    EXPECT_EQ(forgetful.result(), 904) << "CUDA_ERROR_STREAM_CAPTURE_UNJOINED";
    CapturedGraph graph(*device, first.get(), CapturedGraph::Mode::global, [&] { body(true); });
    ASSERT_TRUE(graph.ok()) << graph.result();
    EXPECT_EQ(graph.launch(first.get()), 0);
    EXPECT_OK(device->synchronize(first.get()));
    EXPECT_EQ(words.get(), 3U);
  });
}

TEST_F(EmulatedGpu, lets_a_thread_ask_for_events_while_another_captures_if_it_is_relaxed) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    const Stream stream = need(device->make_stream());
    const Event event = need(device->make_event());
    for (const bool relaxed : {false, true}) {
      CapturedGraph graph(*device, stream.get(), CapturedGraph::Mode::global, [&] {
        std::thread([&] {
          std::optional<RelaxedCapture> scope;
          if (relaxed) scope.emplace();
          EXPECT_EQ(device->has_happened(event.get()).ok(), relaxed);
        }).join();
      });
      EXPECT_EQ(graph.ok(), relaxed) << graph.result();
    }
  });
}

TEST_F(EmulatedGpu, replays_kernels) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    Words words(*device);
    const Stream stream = need(device->make_stream());
    Phase phase{};
    phase.fold.operands[0] = phase.fold.targets[0] = {words.address(0), -1, 1};
    phase.fold.operands[1] = {words.address(1), -1, 1};
    phase.fold.operand_count = 2;
    phase.fold.target_count = 1;
    phase.fold.bytes = sizeof(std::uint64_t);
    set_reduction(phase.fold, {Dtype::i64, ReduceOp::sum, true, 2});
    CapturedGraph graph(*device, stream.get(), CapturedGraph::Mode::relaxed, [&] {
      EXPECT_OK(device->launch(phase, Dtype::i64, 1, stream.get()));
      phase = {};  // what was launched has been copied
    });
    ASSERT_TRUE(graph.ok());
    words.set(10, 1);
    for (int round = 0; round < 4; ++round) EXPECT_EQ(graph.launch(stream.get()), 0);
    EXPECT_OK(device->synchronize(stream.get()));
    EXPECT_EQ(words.get(0), 40U);
  });
}

}  // namespace
}  // namespace tutti::cuda
