// Opening devices, what they are, and what is said when they fail.
#include "cuda/device.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "unit/cuda/on_device.hpp"

namespace tutti::cuda {
namespace {

TEST_F(EmulatedGpu, tells_what_each_device_is) {
  on_emulated_gpu({{"FAKE_CUDA_DEVICES", "2"}, {"FAKE_CUDA_MPS", "1"}}, [] {
    EXPECT_EQ(need(count_devices()), 2);
    EXPECT_EQ(need(look_at(1)).name, "emulated GPU 1");
    EXPECT_TRUE(need(look_at(0)).under_mps);
    EXPECT_EQ(look_at(2).status().code(), Code::unsupported);
    EXPECT_TRUE(may_reach(0, 1));
    EXPECT_FALSE(may_reach(0, 2));
    const auto first = open_device(0);
    const auto second = open_device(1);
    EXPECT_EQ(second->facts().name, "emulated GPU 1");
    EXPECT_EQ(second->facts().ordinal, 1);
    EXPECT_NE(first->facts().uuid, second->facts().uuid);
    EXPECT_EQ(first->facts().multiprocessors, 4);
    EXPECT_EQ(first->facts().compute_major, 9);
    EXPECT_EQ(first->facts().memory_bytes, 1U << 30);
    EXPECT_TRUE(first->facts().memory_operations);
    EXPECT_TRUE(first->facts().under_mps);
    EXPECT_TRUE(first->can_reach(0));
    EXPECT_TRUE(first->can_reach(1));
    EXPECT_TRUE(first->can_reach(1));
    EXPECT_FALSE(first->can_reach(7));
  });
}

TEST_F(EmulatedGpu, tells_what_a_device_cannot_do) {
  on_emulated_gpu(
      {{"FAKE_CUDA_DEVICES", "2"}, {"FAKE_CUDA_NO_MEMOPS", "1"}, {"FAKE_CUDA_NO_PEERS", "1"}}, [] {
        const auto device = open_device();
        EXPECT_FALSE(device->facts().memory_operations);
        EXPECT_FALSE(device->facts().under_mps);
        EXPECT_FALSE(device->can_reach(1));
        EXPECT_FALSE(may_reach(0, 1));
        const Words words(*device);
        const MemoryOperation write = write_word(words.address(), 1);
        const Stream stream = need(device->make_stream());
        EXPECT_EQ(device->operate({&write, 1}, stream.get()).code(), Code::unsupported);
      });
}

TEST_F(EmulatedGpu, says_why_where_there_is_no_gpu) {
  on_emulated_gpu({{"FAKE_CUDA_DEVICES", "0"}}, [] {
    for (const Status& status : {Device::open(0).status(), count_devices().status()}) {
      EXPECT_EQ(status.code(), Code::unsupported);
      EXPECT_EQ(status.message(),
                "cuInit failed: no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE)");
    }
  });
}

TEST_F(EmulatedGpu, refuses_a_device_that_is_not_there) {
  on_emulated_gpu({}, [] {
    const Status status = Device::open(3).status();
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_NE(status.message().find("GPU 3: cuDeviceGet failed"), std::string::npos)
        << status.message();
  });
}

TEST(Driver, is_not_loaded_to_find_that_an_address_is_of_the_host) {
  if (!TUTTI_WITH_CUDA) GTEST_SKIP() << "this build has no CUDA";
  test::without_driver([] {
    int here = 0;
    EXPECT_EQ(need(device_of(&here)), -1);
    EXPECT_EQ(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), nullptr);
  });
}

TEST(Driver, is_found_when_somebody_else_loads_it_later) {
  if (!TUTTI_WITH_CUDA) GTEST_SKIP() << "this build has no CUDA";
  test::without_driver([] {
    int here = 0;
    EXPECT_EQ(need(device_of(&here)), -1);
    EXPECT_EQ(need(device_of(&here)), -1);
    test::load_emulated_driver();
    EXPECT_EQ(need(device_of(&here)), -1) << "loaded, and not initialised";
    const Memory memory = need(open_device()->allocate(10));
    EXPECT_EQ(need(device_of(memory.data())), 0);
  });
}

TEST_F(EmulatedGpu, is_the_primary_context_and_leaves_threads_as_they_were) {
  on_emulated_gpu({{"FAKE_CUDA_DEVICES", "2"}}, [] {
    const auto first = open_device(0);
    const auto second = open_device(1);
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    auto* const current = reinterpret_cast<int (*)(void**)>(::dlsym(library, "cuCtxGetCurrent"));
    auto* const push = reinterpret_cast<int (*)(void*)>(::dlsym(library, "cuCtxPushCurrent_v2"));
    auto* const retain =
        reinterpret_cast<int (*)(void**, int)>(::dlsym(library, "cuDevicePrimaryCtxRetain"));
    void* context = &context;
    const Memory some = need(first->allocate(100));
    EXPECT_EQ(current(&context), 0);
    EXPECT_EQ(context, nullptr) << "no context was current before";

    void* other = nullptr;
    EXPECT_EQ(retain(&other, 1), 0);
    EXPECT_EQ(push(other), 0);
    const Memory more = need(first->allocate(100));
    const Memory yet_more = need(second->allocate(100));
    EXPECT_EQ(current(&context), 0);
    EXPECT_EQ(context, other);
    EXPECT_EQ(need(device_of(some.data())), 0);
    EXPECT_EQ(need(device_of(yet_more.data())), 1);
  });
}

TEST_F(EmulatedGpu, that_is_lost_fails_every_call_with_its_reason) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    Words words(*device);
    const Stream stream = need(device->make_stream());
    const MemoryOperation wait = wait_for_word(words.address(), 1);
    EXPECT_OK(device->operate({&wait, 1}, stream.get()));
    test::lose_context();
    const Status status = device->synchronize(stream.get());
    EXPECT_EQ(status.code(), Code::io);
    EXPECT_NE(
        status.message().find("an illegal memory access was encountered "
                              "(CUDA_ERROR_ILLEGAL_ADDRESS): the GPU is lost to this process"),
        std::string::npos)
        << status.message();
    EXPECT_EQ(device->allocate(1).status().code(), Code::io);
    EXPECT_EQ(device->make_stream().status().code(), Code::io);
  });
}

TEST_F(EmulatedGpu, may_be_lost_at_any_call) {
  on_emulated_gpus({}, 12, [](int which) {
    ::setenv("FAKE_CUDA_BREAK_AFTER", std::to_string(1 + 7 * which).c_str(), 1);
    const auto device = Device::open(0);
    if (!device.ok()) return;  // lost so early
    const auto memory = (*device)->allocate(1000);
    const auto stream = (*device)->make_stream();
    if (memory.ok() && stream.ok()) {
      (void)(*device)->fill(memory->address(), 1, 1000, stream->get());
      (void)(*device)->synchronize(stream->get());
    }
  });
}

}  // namespace
}  // namespace tutti::cuda
