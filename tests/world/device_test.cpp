// What is special about device memory: streams, captures, several groups on one GPU. That collectives
// compute the same there as in host memory is tested by all other tests of this folder, on mirrors
// (support/device_group.hpp). Runs on an emulated driver, or on a GPU.
#include "cuda/device.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "support/captured_graph.hpp"
#include "support/worlds.hpp"
#include "tutti/symmetric_pool.hpp"

namespace tutti::test {
namespace {

constexpr std::size_t kElements = 3000;

// Floats on the GPU of one rank, and a stream to work on them.
class DeviceVector {
 public:
  explicit DeviceVector(float value) : host_(kElements, value) {
    auto device = cuda::Device::open(0);
    EXPECT_TRUE(device.ok()) << device.status().to_string();
    device_ = *device;
    memory_ = *device_->allocate(kElements * sizeof(float));
    stream_ = *device_->make_stream();
    put(value);
  }

  cuda::Device& device() { return *device_; }
  cuda::StreamHandle stream() { return stream_.get(); }
  CallOptions options() { return {.stream = stream()}; }
  Buffer buffer() {
    Buffer all{memory_.data(), kElements, Dtype::f32};
    all.device = Device::cuda;
    return all;
  }
  void put(float value) {
    std::fill(host_.begin(), host_.end(), value);
    EXPECT_TRUE(device_->copy(memory_.address(), address_of_host(), bytes(), stream()).ok());
    EXPECT_TRUE(device_->synchronize(stream()).ok());
  }
  // What is there when the stream is through.
  std::vector<float> take() {
    EXPECT_TRUE(device_->copy(address_of_host(), memory_.address(), bytes(), stream()).ok());
    EXPECT_TRUE(device_->synchronize(stream()).ok());
    return host_;
  }
  void expect(float value) { EXPECT_EQ(take(), std::vector<float>(kElements, value)); }
  cuda::Memory& memory() { return memory_; }

 private:
  cuda::Address address_of_host() const { return reinterpret_cast<std::uintptr_t>(host_.data()); }
  static std::size_t bytes() { return kElements * sizeof(float); }

  std::vector<float> host_;
  std::shared_ptr<cuda::Device> device_;
  cuda::Memory memory_;
  cuda::Stream stream_;
};

// A stream is held up until the host opens it.
class Barred {
 public:
  Barred(cuda::Device& device, cuda::StreamHandle stream) : memory_(*device.allocate_pinned(64)) {
    word_ = new (memory_.data()) std::atomic<std::uint64_t>(0);
    const cuda::MemoryOperation wait{cuda::MemoryOperation::Kind::wait, memory_.address(), 1};
    EXPECT_TRUE(device.operate({&wait, 1}, stream).ok());
  }
  ~Barred() { open(); }
  void open() { word_->store(1); }

 private:
  cuda::Memory memory_;
  std::atomic<std::uint64_t>* word_;
};

float sum_of_ranks(int size) { return static_cast<float>(size * (size + 1)) / 2; }

World device_world(std::string meet, WorldKind kind = WorldKind::shm) {
  return {.kind = kind, .size = 3, .tune = [meet](Config& config) { config.cuda_meet = meet; }};
}

// By parameter: how ranks meet.
class OnDevice : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Ways, OnDevice, testing::Values("host", "memops", "kernel"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(OnDevice, a_call_neither_blocks_its_caller_nor_begins_before_its_stream_is_there) {
  run(device_world(GetParam()), [](Context& here) {
    // Where hosts meet a stream may only wait for them if nothing is loaded later.
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    DeviceVector values(1);
    ASSERT_TRUE(here.group->all_reduce(values.buffer(), ReduceOp::sum, values.options()).ok());
    values.expect(static_cast<float>(here.size));

    Barred bar(values.device(), values.stream());
    Work work = here.group->all_reduce_async(values.buffer(), ReduceOp::sum, values.options());
    const Status on_stream = work.wait_on(values.stream());
    ASSERT_TRUE(on_stream.ok()) << on_stream.to_string();
    meet(here);  // nobody's host waits for a GPU
    EXPECT_FALSE(work.done());
    bar.open();
    values.expect(static_cast<float>(here.size * here.size));
    EXPECT_TRUE(work.wait().ok());
  });
}

// A call that blocks runs in its caller's stream, others in the group's.
TEST_P(OnDevice, calls_of_several_streams_follow_each_other) {
  run(device_world(GetParam()), [](Context& here) {
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    DeviceVector first(1), second(1), third(1);
    float expected = 1;
    // Kept to the end: what is freed while something of the group's is under way is freed later, perhaps behind the
    // next bar, and waits for it.
    std::vector<std::unique_ptr<Barred>> bars;
    for (int round = 0; round < 5; ++round) {
      expected *= static_cast<float>(here.size);
      Barred* bar = nullptr;
      // Where hosts meet, a call that blocks does so until its stream is there.
      if (round > 0 && GetParam() != std::string("host"))
        bar = bars.emplace_back(std::make_unique<Barred>(first.device(), first.stream())).get();
      ASSERT_TRUE(here.group->all_reduce(first.buffer(), ReduceOp::sum, first.options()).ok());
      Work work = here.group->all_reduce_async(second.buffer(), ReduceOp::sum, second.options());
      ASSERT_TRUE(work.wait_on(second.stream()).ok());
      ASSERT_TRUE(here.group->all_reduce(third.buffer(), ReduceOp::sum, third.options()).ok());
      meet(here);
      if (bar != nullptr) {
        EXPECT_FALSE(work.done());
        bar->open();
      }
      for (DeviceVector* each : {&third, &second, &first}) each->expect(expected);
      meet(here);  // nobody reads what another one adds to
    }
  });
}

TEST_P(OnDevice, calls_follow_each_other_in_their_stream) {
  run(device_world(GetParam()), [](Context& here) {
    DeviceVector values(static_cast<float>(here.rank + 1));
    float expected = sum_of_ranks(here.size);
    for (int i = 0; i < 20; ++i)
      ASSERT_TRUE(here.group
                      ->all_reduce(values.buffer(), i == 0 ? ReduceOp::sum : ReduceOp::max,
                                   values.options())
                      .ok());
    ASSERT_TRUE(here.group->all_reduce(values.buffer(), ReduceOp::sum, values.options()).ok());
    values.expect(expected * static_cast<float>(here.size));
  });
}

// Where streams of a process share a queue too: see CMakeLists.txt.
// In a stream of its own: nothing but the work orders the two calls.
TEST_P(OnDevice, a_call_begins_after_a_work_of_another_group_and_blocks_nobody) {
  run(device_world(GetParam()), [](Context& here) {
    auto other = here.group->duplicate();
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    DeviceVector values(1), elsewhere(0);
    const auto call = [&](Group& group, DeviceVector& stream, const Work& before) {
      return group.all_reduce_async(values.buffer(), ReduceOp::sum, stream.options().after(before));
    };
    ASSERT_TRUE(call(*here.group, values, {}).wait().ok());
    ASSERT_TRUE(call(**other, elsewhere, {}).wait().ok());
    values.put(1);
    Work first, second, third;
    {
      Barred bar(values.device(), values.stream());
      first = call(*here.group, values, {});
      second = call(**other, elsewhere, first);
      meet(here);
      EXPECT_FALSE(first.done() || second.done());
    }
    // Of CPU memory: the host holds the call back until it has come.
    std::int32_t come = 0;
    const Work message = here.group->irecv(Buffer::of(&come, 1), here.rank);
    third = call(*here.group, values, message);
    EXPECT_TRUE(second.wait().ok());
    EXPECT_FALSE(third.done());
    EXPECT_TRUE(here.group->send(ConstBuffer::of(&come, 1), here.rank).ok());
    EXPECT_TRUE(third.wait_on(values.stream()).ok());
    values.expect(static_cast<float>(here.size * here.size * here.size));
    EXPECT_TRUE(first.wait().ok() && third.wait().ok());
  });
}

TEST_P(OnDevice, a_call_fails_with_the_work_that_it_comes_after) {
  run(device_world(GetParam()), [](Context& here) {
    auto doomed = here.group->duplicate();
    ASSERT_TRUE(doomed.ok()) << doomed.status().to_string();
    DeviceVector values(1), elsewhere(1);
    for (Group* group : {here.group.get(), doomed->get()})
      ASSERT_TRUE(group->all_reduce(values.buffer(), ReduceOp::sum, values.options()).ok());
    values.put(1);
    Barred bar(values.device(), values.stream());
    Work first = (*doomed)->all_reduce_async(values.buffer(), ReduceOp::sum, values.options());
    Work second = here.group->all_reduce_async(elsewhere.buffer(), ReduceOp::sum,
                                               elsewhere.options().after(first));
    meet(here);
    if (here.rank == 0) (*doomed)->abort("as a test");
    bar.open();
    EXPECT_EQ(first.wait().code(), Code::aborted);
    const Status status = second.wait();
    EXPECT_EQ(status.code(), Code::aborted) << status.to_string();
  });
}

TEST_P(OnDevice, groups_may_be_used_in_different_orders_by_different_ranks) {
  run(device_world(GetParam()), [](Context& here) {
    DeviceVector a(1), b(2);
    // Prepared together, then each for itself.
    ASSERT_TRUE(here.group->all_reduce(a.buffer(), ReduceOp::max, a.options()).ok());
    auto other = here.group->duplicate();
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    Group& first = here.rank % 2 ? *here.group : **other;
    Group& second = here.rank % 2 ? **other : *here.group;
    DeviceVector& x = here.rank % 2 ? a : b;
    DeviceVector& y = here.rank % 2 ? b : a;
    for (int i = 0; i < 3; ++i) {
      Work one = first.all_reduce_async(x.buffer(), ReduceOp::max, x.options());
      Work two = second.all_reduce_async(y.buffer(), ReduceOp::max, y.options());
      EXPECT_TRUE(one.wait_on(x.stream()).ok());
      EXPECT_TRUE(two.wait_on(y.stream()).ok());
    }
    a.expect(1);
    b.expect(2);
  });
}

// A rank that has called both may be waited for in the one that it called last.
TEST(OneQueue, a_wait_in_one_group_holds_up_no_other) {
  run(device_world("auto"), [](Context& here) {
    DeviceVector a(1), b(2);
    ASSERT_TRUE(here.group->all_reduce(a.buffer(), ReduceOp::max, a.options()).ok());
    auto other = here.group->duplicate();
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    for (int i = 0; i < 3; ++i) {
      Work early;
      if (here.rank == 1)
        early = here.group->all_reduce_async(a.buffer(), ReduceOp::max, a.options());
      ASSERT_TRUE((*other)->all_reduce(b.buffer(), ReduceOp::max, b.options()).ok());
      b.expect(2);
      if (here.rank != 1)
        early = here.group->all_reduce_async(a.buffer(), ReduceOp::max, a.options());
      ASSERT_TRUE(early.wait().ok());
    }
  });
}

TEST_P(OnDevice, memory_that_was_freed_and_forgotten_may_come_again) {
  run(device_world(GetParam()), [](Context& here) {
    for (int i = 0; i < 4; ++i) {
      DeviceVector values(1);
      ASSERT_TRUE(here.group->all_reduce(values.buffer(), ReduceOp::sum, values.options()).ok());
      values.expect(static_cast<float>(here.size));
      here.group->forget(values.memory().data());
    }
    EXPECT_TRUE(here.group->barrier().ok());
  });
}

// Peers hear at once that the one is gone and that the other is there.
TEST_P(OnDevice, memory_that_was_freed_may_come_again_at_the_same_place) {
  run(device_world(GetParam()), [](Context& here) {
    testing::internal::CaptureStderr();
    for (int i = 0; i < 8; ++i) {
      DeviceVector values(1);
      for (int call = 0; call < 3; ++call)  // the first ones may be staged
        ASSERT_TRUE(here.group->all_reduce(values.buffer(), ReduceOp::max, values.options()).ok());
      values.expect(1);
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  });
}

// All ranks' parts of an all_gather, on the device: the rank's number and one, a third of the elements each.
void expect_gathered(DeviceVector& stream, cuda::Address address, int size) {
  std::vector<float> found(kElements), expected;
  ASSERT_TRUE(stream.device()
                  .copy(reinterpret_cast<std::uintptr_t>(found.data()), address,
                        kElements * sizeof(float), stream.stream())
                  .ok());
  ASSERT_TRUE(stream.device().synchronize(stream.stream()).ok());
  for (int rank = 0; rank < size; ++rank)
    expected.insert(expected.end(), kElements / static_cast<std::size_t>(size),
                    static_cast<float>(rank + 1));
  EXPECT_EQ(found, expected);
}

// Memory on the GPU that no peer can map; null: this driver has none to give.
std::byte* memory_that_cannot_be_exported(std::size_t bytes) {
  using Allocate = int(std::uint64_t*, std::size_t);
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto* const allocate = reinterpret_cast<Allocate*>(::dlsym(driver, "fake_cuda_allocate_pool"));
  std::uint64_t address = 0;
  if (allocate != nullptr) {
    EXPECT_EQ(allocate(&address, bytes), 0);
  }
  return reinterpret_cast<std::byte*>(address);
}

World pushing_world(const std::string& meet) {
  World world = device_world(meet);
  world.tune = [meet](Config& config) {
    config.cuda_meet = meet;
    config.cuda_push = 0;
  };
  return world;
}

TEST_P(OnDevice, who_cannot_be_written_fetches_what_owners_push_to_others) {
  run(pushing_world(GetParam()), [](Context& here) {
    DeviceVector mine(static_cast<float>(here.rank + 1)), all(0);
    Buffer own = mine.buffer(), whole = all.buffer();
    own.count /= static_cast<std::size_t>(here.size);
    if (here.rank == 1) {
      const cuda::CurrentDevice current(mine.device());
      std::byte* const hidden = memory_that_cannot_be_exported(kElements * sizeof(float));
      if (hidden != nullptr) whole.data = hidden;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(whole.data);
    for (int round = 0; round < 4; ++round) {  // the first ones before peers have mapped it
      ASSERT_TRUE(mine.device().fill(address, 0, kElements * sizeof(float), mine.stream()).ok());
      const Status status = here.group->all_gather(own, whole, mine.options());
      ASSERT_TRUE(status.ok()) << status.to_string();
      expect_gathered(mine, address, here.size);
      meet(here, "round " + std::to_string(round));  // nobody clears what a slow one still writes
    }
    for (int root = 0; root < here.size; ++root) {
      mine.put(static_cast<float>(here.rank + 1));
      ASSERT_TRUE(here.group->broadcast(mine.buffer(), root, mine.options()).ok());
      mine.expect(static_cast<float>(root + 1));
      meet(here, "root " + std::to_string(root));
    }
  });
}

// A peer that loads a kernel while its stream waits for this rank cannot map anything until then. A
// test cannot hold a driver up, but it can keep a peer from looking: nobody polls for it.
TEST(NewMemory, is_used_before_peers_have_mapped_it) {
  World world = device_world("memops");
  world.tune = [](Config& config) {
    config.cuda_meet = "memops";
    config.progress_thread = false;
  };
  run(world, [](Context& here) {
    DeviceVector first(1);
    ASSERT_TRUE(here.group->all_reduce(first.buffer(), ReduceOp::sum, first.options()).ok());
    first.expect(static_cast<float>(here.size));
    meet(here);
    // New on one rank only: the others have nothing to wait for.
    DeviceVector fresh(2);
    first.put(2);
    DeviceVector& second = here.rank == 0 ? fresh : first;
    meet(here, "prepared");
    Work work = here.group->all_reduce_async(second.buffer(), ReduceOp::sum, second.options());
    // From here on no rank's host does anything for another.
    EXPECT_TRUE(work.wait_on(second.stream()).ok());
    second.expect(static_cast<float>(2 * here.size));
    meet(here, "done");
    EXPECT_TRUE(work.wait().ok());
  });
}

TEST(Capture, of_a_collective_can_be_replayed_where_kernels_meet) {
  run(device_world("kernel"), [](Context& here) {
    DeviceVector values(1);
    ASSERT_TRUE(here.group->all_reduce(values.buffer(), ReduceOp::sum, values.options()).ok());
    values.put(1);
    meet(here);
    cuda::CapturedGraph graph(
        values.device(), values.stream(), cuda::CapturedGraph::Mode::thread_local_only, [&] {
          const Status status =
              here.group->all_reduce(values.buffer(), ReduceOp::sum, values.options());
          EXPECT_TRUE(status.ok()) << status.to_string();
        });
    ASSERT_TRUE(graph.ok()) << graph.result();
    values.expect(1);  // nothing ran yet
    float expected = 1;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(graph.launch(values.stream()), 0);
      expected *= static_cast<float>(here.size);
      values.expect(expected);
      // Between replays the group works as ever.
      ASSERT_TRUE(here.group->all_reduce(values.buffer(), ReduceOp::max, values.options()).ok());
      values.expect(expected);
    }
  });
}

TEST(Capture, of_what_owners_push_can_be_replayed) {
  run(pushing_world("kernel"), [](Context& here) {
    DeviceVector mine(static_cast<float>(here.rank + 1)), all(0);
    Buffer own = mine.buffer();
    own.count /= static_cast<std::size_t>(here.size);
    ASSERT_TRUE(here.group->all_gather(own, all.buffer(), mine.options()).ok());
    expect_gathered(mine, all.memory().address(), here.size);
    meet(here);
    Status status;
    cuda::CapturedGraph graph(
        mine.device(), mine.stream(), cuda::CapturedGraph::Mode::thread_local_only,
        [&] { status = here.group->all_gather(own, all.buffer(), mine.options()); });
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_TRUE(graph.ok()) << graph.result();
    for (int i = 0; i < 3; ++i) {
      all.put(0);
      meet(here, "cleared " + std::to_string(i));
      EXPECT_EQ(graph.launch(mine.stream()), 0);
      expect_gathered(mine, all.memory().address(), here.size);
      meet(here, "seen " + std::to_string(i));
    }
  });
}

TEST(Capture, is_refused_where_hosts_or_streams_meet) {
  for (const char* way : {"host", "memops"})
    run(device_world(way), [](Context& here) {
      DeviceVector values(1);
      ASSERT_TRUE(here.group->all_reduce(values.buffer(), ReduceOp::sum, values.options()).ok());
      values.put(1);
      Status status;
      const cuda::CapturedGraph graph(
          values.device(), values.stream(), cuda::CapturedGraph::Mode::thread_local_only, [&] {
            status = here.group->all_reduce(values.buffer(), ReduceOp::sum, values.options());
          });
      EXPECT_EQ(status.code(), Code::unsupported) << status.to_string();
      EXPECT_NE(status.message().find("captur"), std::string::npos) << status.to_string();
      meet(here);
      EXPECT_TRUE(here.group->health().ok());
      ASSERT_TRUE(here.group->all_reduce(values.buffer(), ReduceOp::sum, values.options()).ok());
      values.expect(static_cast<float>(here.size));
    });
}

TEST(DeviceBuffers, that_are_none_are_refused_by_name) {
  run(device_world("auto"), [](Context& here) {
    DeviceVector values(1);  // the driver is in use
    std::vector<float> host(10, 1);
    Buffer wrong = Buffer::of(host);
    wrong.device = Device::cuda;
    const Status status = here.group->all_reduce(wrong, ReduceOp::sum, values.options());
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    EXPECT_NE(status.message().find("not"), std::string::npos) << status.to_string();
  });
}

TEST(DeviceBuffers, on_one_rank_and_host_memory_on_another_are_a_mismatch) {
  run(device_world("auto"), [](Context& here) {
    DeviceVector values(1);
    ASSERT_TRUE(here.group->all_reduce(values.buffer(), ReduceOp::sum, values.options()).ok());
    std::vector<float> host(kElements, 1);
    Status status =
        here.rank == 0
            ? here.group->all_reduce(Buffer::of(host), ReduceOp::sum)
            : here.group->all_reduce_async(values.buffer(), ReduceOp::sum, values.options()).wait();
    EXPECT_EQ(status.code(), Code::mismatch) << status.to_string();
  });
}

TEST(DeviceMemory, that_is_symmetric_is_on_the_device) {
  run(device_world("auto"), [](Context& here) {
    DeviceVector stream(0);
    auto memory = here.group->allocate(kElements * sizeof(float), Device::cuda);
    ASSERT_TRUE(memory.ok()) << memory.status().to_string();
    Buffer all{memory->data, kElements, Dtype::f32};
    all.device = Device::cuda;
    ASSERT_TRUE(here.group->all_reduce(all, stream.buffer(), ReduceOp::sum, stream.options()).ok());
    stream.expect(0);
  });
}

// Larger than what is staged without asking for memory, and there is none left to stage it in: ranks
// work on the pieces where they lie.
TEST_P(OnDevice, pieces_of_a_pool_at_different_places_are_copied_nowhere) {
  run(device_world(GetParam()), [](Context& here) {
    constexpr std::size_t kCount = 1 << 20;
    constexpr std::size_t kEmulatedBytes = 1 << 30;
    DeviceVector helper(0);
    auto pool = SymmetricPool::create(here.group, 8 * kCount, Device::cuda);
    ASSERT_TRUE(pool.ok()) << pool.status().to_string();
    auto before = pool->take(1000 * static_cast<std::size_t>(here.rank + 1));
    auto piece = pool->take(4 * kCount);
    ASSERT_TRUE(before.ok() && piece.ok()) << piece.status().to_string();
    cuda::Device& device = helper.device();
    const auto address = reinterpret_cast<std::uintptr_t>(piece->data);
    ASSERT_TRUE(device.fill(address, 1, 4 * kCount, helper.stream()).ok());
    std::vector<cuda::Memory> hoard;
    const bool emulated = device.facts().memory_bytes <= kEmulatedBytes;
    for (std::size_t bytes = kEmulatedBytes; emulated && bytes >= kCount;) {
      auto memory = device.allocate(bytes);
      if (memory.ok())
        hoard.push_back(*std::move(memory));
      else
        bytes /= 2;
    }
    Buffer all{piece->data, 4 * kCount, Dtype::u8};
    all.device = Device::cuda;
    const Status status = here.group->all_reduce(all, ReduceOp::sum, helper.options());
    ASSERT_TRUE(status.ok()) << status.to_string();
    std::vector<std::uint8_t> sums(4 * kCount);
    ASSERT_TRUE(device
                    .copy(reinterpret_cast<std::uintptr_t>(sums.data()), address, sums.size(),
                          helper.stream())
                    .ok());
    ASSERT_TRUE(device.synchronize(helper.stream()).ok());
    EXPECT_EQ(std::count(sums.begin(), sums.end(), here.size),
              static_cast<std::ptrdiff_t>(sums.size()));
    if (!emulated) return (void)here.group->barrier();
    // What has to be staged, because it is in two parts, is refused.
    Buffer halves[2] = {all, all};
    halves[0].count = halves[1].count = 2 * kCount - 64;
    halves[1].data = static_cast<std::byte*>(piece->data) + 2 * kCount;
    const Status staged = here.group->all_reduce(halves, ReduceOp::sum, helper.options());
    EXPECT_EQ(staged.code(), Code::out_of_memory) << staged.to_string();
  });
}

}  // namespace
}  // namespace tutti::test

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  // Asked in a child: nothing may fork after the driver was initialised.
  const auto worlds =
      tutti::test::collect({.kind = tutti::test::WorldKind::shm, .size = 1}, [](auto&) {
        const auto devices = tutti::cuda::count_devices();
        EXPECT_TRUE(devices.ok() && *devices > 0) << devices.status().to_string();
      });
  if (!worlds.empty()) {
    std::printf("skipped: there is no GPU: %s\n", worlds.front().text.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
