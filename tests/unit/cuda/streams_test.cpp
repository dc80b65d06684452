// Streams, events and memory operations; and which calls wait for all of them.
#include <dlfcn.h>

#include <functional>

#include "unit/cuda/on_device.hpp"

namespace tutti::cuda {
namespace {

// A stream that waits until it is let go.
class WaitingStream {
 public:
  explicit WaitingStream(Device& device)
      : device_(device), words_(device), stream_(need(device.make_stream())) {
    const MemoryOperation wait = wait_for_word(words_.address(), 1);
    EXPECT_OK(device.operate({&wait, 1}, stream_.get()));
  }
  ~WaitingStream() { let_go(); }
  StreamHandle get() const { return stream_.get(); }
  void let_go() {
    words_.set(1);
    EXPECT_OK(device_.synchronize(stream_.get()));
  }
  void let_go_without_looking() { words_.set(1); }

 private:
  Device& device_;
  Words words_;
  Stream stream_;
};

TEST_F(EmulatedGpu, tells_when_an_event_has_happened) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    const Event event = need(device->make_event());
    EXPECT_TRUE(need(device->has_happened(event.get()))) << "never recorded";
    WaitingStream waiting(*device);
    EXPECT_OK(device->record(event.get(), waiting.get()));
    EXPECT_FALSE(need(device->has_happened(event.get())));
    waiting.let_go();
    EXPECT_TRUE(need(device->has_happened(event.get())));
  });
}

TEST_F(EmulatedGpu, lets_one_stream_wait_for_another) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    Words words(*device);
    const Event event = need(device->make_event());
    const Stream second = need(device->make_stream());
    WaitingStream first(*device);
    EXPECT_OK(device->record(event.get(), first.get()));
    EXPECT_OK(device->wait(second.get(), event.get()));
    const MemoryOperation write = write_word(words.address(), 9);
    EXPECT_OK(device->operate({&write, 1}, second.get()));
    wait_a_little();
    EXPECT_EQ(words.get(), 0U);
    first.let_go();
    EXPECT_OK(device->synchronize(second.get()));
    EXPECT_EQ(words.get(), 9U);
  });
}

TEST_F(EmulatedGpu, measures_time_between_events) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    const Event from = need(device->make_event(true));
    const Event to = need(device->make_event(true));
    WaitingStream stream(*device);
    const Stream before = need(device->make_stream());
    EXPECT_OK(device->record(from.get(), before.get()));
    EXPECT_OK(device->synchronize(before.get()));
    EXPECT_OK(device->record(to.get(), stream.get()));
    EXPECT_FALSE(device->seconds_between(from.get(), to.get()).ok()) << "has not happened";
    wait_a_little();
    stream.let_go();
    const double seconds = need(device->seconds_between(from.get(), to.get()));
    EXPECT_GE(seconds, 0.015);
    EXPECT_LT(seconds, 60);
  });
}

TEST_F(EmulatedGpu, does_memory_operations_in_order_and_any_number_of_them) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    Words words(*device, 200);
    const Stream stream = need(device->make_stream());
    std::vector<MemoryOperation> operations;
    for (std::size_t i = 0; i < 200; ++i) {
      operations.push_back(write_word(words.address(i), i + 1));
      operations.push_back(wait_for_word(words.address(i), i));
    }
    EXPECT_OK(device->operate(operations, stream.get()));
    EXPECT_OK(device->operate({}, stream.get()));
    EXPECT_OK(device->synchronize(stream.get()));
    for (std::size_t i = 0; i < 200; ++i) EXPECT_EQ(words.get(i), i + 1);
  });
}

TEST_F(EmulatedGpu, has_streams_of_the_highest_priority_and_of_lower_ones) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(driver, nullptr);
    const auto priority_of =
        reinterpret_cast<int (*)(StreamHandle, int*)>(::dlsym(driver, "cuStreamGetPriority"));
    ASSERT_NE(priority_of, nullptr);
    void* context = nullptr;
    const auto retain =
        reinterpret_cast<int (*)(void**, int)>(::dlsym(driver, "cuDevicePrimaryCtxRetain"));
    const auto push = reinterpret_cast<int (*)(void*)>(::dlsym(driver, "cuCtxPushCurrent_v2"));
    ASSERT_EQ(retain(&context, 0), 0);
    ASSERT_EQ(push(context), 0);
    std::vector<int> priorities;
    for (const int below : {0, 1, 2, 99}) {
      const Stream stream = need(device->make_stream(below));
      EXPECT_EQ(priority_of(stream.get(), &priorities.emplace_back()), 0);
    }
    EXPECT_EQ(priorities, (std::vector<int>{-5, -4, -3, -1}));  // plain streams have 0
  });
}

TEST_F(EmulatedGpu, ends_every_wait_by_poison) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    Words words(*device);
    const Stream stream = need(device->make_stream());
    const MemoryOperation waits[] = {wait_for_word(words.address(), 1),
                                     wait_for_word(words.address(), 1ULL << 40)};
    EXPECT_OK(device->operate(waits, stream.get()));
    words.set(kPoison);
    EXPECT_OK(device->synchronize(stream.get()));
  });
}

TEST_F(EmulatedGpu, has_slow_calls_that_wait_until_no_stream_has_anything_to_do) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    Memory memory = need(device->allocate(100));
    Memory pinned = need(device->allocate_pinned(100));
    std::vector<std::uint64_t> host(512);
    EXPECT_OK(device->register_host(host.data(), 4096));
    const std::function<void()> slow_ones[] = {[&] { memory = Memory(); },
                                               [&] { pinned = Memory(); },
                                               [&] { device->unregister_host(host.data()); }};
    for (const auto& slow : slow_ones) {
      WaitingStream waiting(*device);
      std::atomic<bool> done = false;
      std::thread caller([&] {
        slow();
        done = true;
      });
      wait_a_little();
      EXPECT_FALSE(done);
      waiting.let_go_without_looking();
      caller.join();
    }
  });
}

TEST_F(EmulatedGpu, has_streams_that_wait_for_themselves_alone) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    WaitingStream waiting(*device);
    const Stream other = need(device->make_stream());
    EXPECT_OK(device->synchronize(other.get()));
  });
}

TEST_F(EmulatedGpu, with_one_channel_has_streams_that_wait_for_each_other) {
  on_emulated_gpu({{"FAKE_CUDA_CHANNELS", "1"}}, [] {
    const auto device = open_device();
    Words words(*device);
    WaitingStream waiting(*device);
    const Stream other = need(device->make_stream());
    const MemoryOperation write = write_word(words.address(), 9);
    EXPECT_OK(device->operate({&write, 1}, other.get()));
    wait_a_little();
    EXPECT_EQ(words.get(), 0U);
    waiting.let_go();
    EXPECT_OK(device->synchronize(other.get()));
    EXPECT_EQ(words.get(), 9U);
  });
}

TEST_F(EmulatedGpu, finishes_the_work_of_a_stream_that_is_gone) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    Words words(*device);
    {
      const Stream stream = need(device->make_stream());
      const MemoryOperation operations[] = {wait_for_word(words.address(), 1),
                                            write_word(words.address(1), 2)};
      EXPECT_OK(device->operate(operations, stream.get()));
    }
    words.set(1);
    const Memory memory = need(device->allocate(8));
    while (words.get(1) != 2) std::this_thread::yield();
  });
}

}  // namespace
}  // namespace tutti::cuda
