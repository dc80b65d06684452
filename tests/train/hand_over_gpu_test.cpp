// Weights on a GPU that are handed over: whole versions only, in stream order, whoever is killed.
//
// The GPU is an emulated one (tests/support/fake_cuda), which every rank loads for itself; with
// TUTTI_TEST_DRIVER=real it is the machine's.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "cuda/device.hpp"
#include "support/device_group.hpp"
#include "support/worlds.hpp"
#include "tutti/train/hand_over.hpp"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using train::NamedTensor;
using train::ReceiverOptions;
using train::SendOptions;
using train::WeightReceiver;
using train::WeightSender;

constexpr int kGpuTrainer = 0;
constexpr int kGpuVictim = 1;

bool on_real_gpu() {
  const char* driver = std::getenv("TUTTI_TEST_DRIVER");
  return driver != nullptr && std::string_view(driver) == "real";
}

// Once it is loaded, whoever asks for the driver is given it.
void load_driver() {
  if (on_real_gpu()) return;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string path = folder / "fake_cuda/libcuda.so.1";
  ASSERT_NE(::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror();
}

void expect_fine(const Status& status) { EXPECT_TRUE(status.ok()) << status.to_string(); }

// One GPU, and a stream of this rank's on it.
class Gpu {
 public:
  Gpu() {
    load_driver();
    auto device = cuda::Device::open(0);
    EXPECT_TRUE(device.ok()) << device.status().to_string();
    if (!device.ok()) return;
    device_ = *std::move(device);
    auto stream = device_->make_stream();
    expect_fine(stream.status());
    stream_ = *std::move(stream);
    auto word = device_->allocate_pinned(64);
    expect_fine(word.status());
    word_ = *std::move(word);
    gate_ = new (word_.data()) std::atomic<std::uint64_t>(0);
  }
  cuda::Device& device() { return *device_; }
  void* stream() { return stream_.get(); }

  cuda::Memory allocate(std::size_t bytes) {
    auto memory = device_->allocate(bytes);
    expect_fine(memory.status());
    return *std::move(memory);
  }
  cuda::Memory pinned(std::size_t bytes) {
    auto memory = device_->allocate_pinned(bytes);
    expect_fine(memory.status());
    return *std::move(memory);
  }
  void copy(std::uint64_t to, std::uint64_t from, std::size_t bytes) {
    expect_fine(device_->copy(to, from, bytes, stream()));
  }
  void synchronize() { expect_fine(device_->synchronize(stream())); }
  // From here on the stream waits until open().
  void shut() {
    const cuda::MemoryOperation wait{cuda::MemoryOperation::Kind::wait, word_.address(), ++shut_};
    expect_fine(device_->operate({&wait, 1}, stream()));
  }
  void open() { gate_->store(shut_); }

 private:
  std::shared_ptr<cuda::Device> device_;
  cuda::Stream stream_;
  cuda::Memory word_;
  std::atomic<std::uint64_t>* gate_ = nullptr;
  std::uint64_t shut_ = 0;
};

std::uint64_t address_of_data(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

// Tensors on a GPU in which every element says the version.
class GpuWeights {
 public:
  GpuWeights(Gpu& gpu, std::size_t count)
      : gpu_(gpu),
        large_(gpu.allocate(count * sizeof(float))),
        small_(gpu.allocate(17 * sizeof(float))) {}

  // When the stream comes to it; returns at once.
  std::vector<NamedTensor> filled(std::uint64_t version) {
    for (cuda::Memory* memory : {&large_, &small_}) {
      // Pinned: copies of other memory wait in the caller's thread for what the stream holds.
      host_.push_back(gpu_.pinned(memory->bytes()));
      auto* values = reinterpret_cast<float*>(host_.back().data());
      std::fill_n(values, memory->bytes() / sizeof(float), static_cast<float>(version));
      gpu_.copy(memory->address(), host_.back().address(), memory->bytes());
    }
    return {tensor("large", large_), {"empty", {0, 3}, nothing()}, tensor("small", small_)};
  }

 private:
  static ConstBuffer nothing() {
    ConstBuffer buffer(nullptr, 0, Dtype::bf16);
    buffer.device = Device::cuda;
    return buffer;
  }
  static NamedTensor tensor(const char* name, const cuda::Memory& memory) {
    const std::size_t count = memory.bytes() / sizeof(float);
    ConstBuffer buffer(memory.data(), count, Dtype::f32);
    buffer.device = Device::cuda;
    return {name, {static_cast<std::int64_t>(count)}, buffer};
  }
  Gpu& gpu_;
  cuda::Memory large_, small_;
  std::vector<cuda::Memory> host_;  // what copies that are under way read
};

// A tensor's elements on the host, wherever they lie.
std::vector<float> fetched(Gpu& gpu, const NamedTensor& tensor) {
  std::vector<float> values(tensor.values.count);
  if (values.empty()) return values;
  const std::uint64_t from = address_of_data(tensor.values.data);
  gpu.copy(address_of_data(values.data()), from, tensor.values.bytes());
  gpu.synchronize();
  return values;
}

void expect_whole_on(Gpu& gpu, const WeightReceiver& receiver, Device where, std::size_t count) {
  const auto weights = receiver.weights();
  ASSERT_EQ(weights.size(), 3u);
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}}) {
    EXPECT_EQ(weights[i].values.device, where);
    const auto values = fetched(gpu, weights[i]);
    EXPECT_EQ(values,
              std::vector<float>(i == 0 ? count : 17, static_cast<float>(receiver.version())))
        << weights[i].name << " of version " << receiver.version();
  }
}

std::vector<int> all_receivers(const Context& here) {
  std::vector<int> receivers;
  for (int rank = 1; rank < here.size; ++rank) receivers.push_back(rank);
  return receivers;
}

std::unique_ptr<WeightSender> gpu_sender(Context& here, std::size_t bucket_bytes = 100'000) {
  auto sender = WeightSender::create(*here.group, kGpuTrainer, all_receivers(here),
                                     {.bucket_bytes = bucket_bytes});
  expect_fine(sender.status());
  return *std::move(sender);
}

std::unique_ptr<WeightReceiver> gpu_receiver(Context& here, const ReceiverOptions& options = {}) {
  auto receiver = WeightReceiver::create(*here.group, kGpuTrainer, all_receivers(here), options);
  expect_fine(receiver.status());
  return *std::move(receiver);
}

class HandOverGpu : public WorldTest {
 protected:
  void SetUp() override {
    if (!TUTTI_WITH_CUDA) GTEST_SKIP() << "this build has no CUDA";
    if (wants_device())
      GTEST_SKIP() << "is about device memory itself, not about mirrors of the host's";
    WorldTest::SetUp();
  }
};

// The last rank asks for CPU memory, the others take what comes.
void versions_from_a_gpu(Context& here, bool lend) {
  constexpr std::uint64_t kVersions = 12;
  const auto count_of = [](std::uint64_t version) { return version < 9 ? 200'003u : 70'001u; };
  Gpu gpu;
  if (here.rank == kGpuTrainer) {
    auto sender = gpu_sender(here);
    std::optional<GpuWeights> weights;
    for (std::uint64_t version = 1; version <= kVersions; ++version) {
      gpu.synchronize();  // copies read what the next line lets go of
      if (version == 1 || version == 9) weights.emplace(gpu, count_of(version));
      expect_fine(
          sender->send(version, weights->filled(version), {.stream = gpu.stream(), .lend = lend}));
      if (lend || version == 8) expect_fine(sender->flush());
      (void)weights->filled(9999);  // when the stream has come past the sending
    }
    expect_fine(sender->flush());
    for (const auto& [rank, why] : sender->lost()) ADD_FAILURE() << rank << why.to_string();
    gpu.synchronize();
    meet(here);
  } else {
    const bool on_cpu = here.rank == here.size - 1;
    auto receiver =
        gpu_receiver(here, {.device = on_cpu ? std::optional(Device::cpu) : std::nullopt});
    while (receiver->version() < kVersions && !testing::Test::HasFailure()) {
      expect_fine(
          receiver->wait_for(receiver->version() + 1, 60s, on_cpu ? nullptr : gpu.stream()));
      expect_whole_on(gpu, *receiver, on_cpu ? Device::cpu : Device::cuda,
                      count_of(receiver->version()));
    }
    meet(here);
  }
}

TEST_P(HandOverGpu, every_receiver_sees_only_whole_versions) {
  in_world([](Context& here) { versions_from_a_gpu(here, false); });
}

TEST_P(HandOverGpu, weights_that_are_lent_are_taken_from_where_they_lie) {
  in_world([](Context& here) { versions_from_a_gpu(here, true); });
}

TEST_P(HandOverGpu, weights_in_cpu_memory_come_to_a_gpu_that_asked_for_them) {
  in_world([](Context& here) {
    Gpu gpu;
    if (here.rank == kGpuTrainer) {
      auto sender = gpu_sender(here);
      for (std::uint64_t version = 1; version <= 3; ++version) {
        const std::vector<float> large(50'000, static_cast<float>(version));
        const std::vector<NamedTensor> weights = {
            {"large", {50'000}, ConstBuffer::of(large)},
            {"empty", {0}, ConstBuffer::of(large.data(), 0)},
            {"small", {17}, ConstBuffer::of(large.data(), 17)}};
        expect_fine(sender->send(version, weights, {.lend = version == 2}));
        expect_fine(sender->flush());
      }
      EXPECT_THAT(sender->send(4, {}, {.stream = gpu.stream()}).message(), HasSubstr("streams"));
      EXPECT_TRUE(sender->lost().empty());
      meet(here);
    } else {
      auto receiver = gpu_receiver(here, {.device = Device::cuda});
      for (std::uint64_t version = 1; version <= 3; ++version) {
        expect_fine(receiver->wait_for(version, 60s, gpu.stream()));
        expect_whole_on(gpu, *receiver, Device::cuda, 50'000);
      }
      meet(here);
    }
  });
}

TEST_P(HandOverGpu, nothing_is_sent_before_the_callers_stream_has_come_to_it) {
  in_world([](Context& here) {
    Gpu gpu;
    if (here.rank == kGpuTrainer) {
      auto sender = gpu_sender(here);
      GpuWeights weights(gpu, 20'000);
      for (const bool lend : {false, true}) {
        const std::uint64_t version = lend ? 2 : 1;
        (void)weights.filled(9999);
        gpu.shut();
        expect_fine(
            sender->send(version, weights.filled(version), {.stream = gpu.stream(), .lend = lend}));
        meet(here, "sent" + std::to_string(version));
        meet(here, "looked" + std::to_string(version));
        gpu.open();
        expect_fine(sender->flush());
      }
      gpu.synchronize();
      meet(here);
    } else {
      auto receiver = gpu_receiver(here);
      for (const std::uint64_t version : {1u, 2u}) {
        meet(here, "sent" + std::to_string(version));
        for (int i = 0; i < 30; ++i, std::this_thread::sleep_for(1ms)) {
          const auto newer = receiver->poll(gpu.stream());
          EXPECT_TRUE(newer.ok() && !*newer);
        }
        meet(here, "looked" + std::to_string(version));
        expect_fine(receiver->wait_for(version, 60s, gpu.stream()));
        expect_whole_on(gpu, *receiver, Device::cuda, 20'000);
      }
      meet(here);
    }
  });
}

// The trainer's stream waits for receivers that come only with the next version, and its host behind it in a copy to
// pageable memory, which holds up what its other threads want of the driver.
TEST_P(HandOverGpu, versions_come_while_a_collective_of_the_trainer_waits_for_their_receivers) {
  in_world([](Context& here) {
    constexpr std::size_t kCount = 20'000;
    // Ranks that are threads of one process would hold up each other.
    const bool fetches = here.world.kind != WorldKind::threads;
    if (fetches) setenv("FAKE_CUDA_HELD_BY_COPIES", "1", 1);
    Gpu gpu;
    GpuWeights weights(gpu, kCount);
    const cuda::Memory memory = gpu.allocate(kCount * sizeof(float));
    const Buffer values{memory.data(), kCount, Dtype::f32, Device::cuda};
    auto sender = here.rank == kGpuTrainer ? gpu_sender(here) : nullptr;
    auto receiver = here.rank == kGpuTrainer ? nullptr : gpu_receiver(here);
    for (std::uint64_t version = 1; version <= 15; ++version) {
      if (sender)
        expect_fine(sender->send(version, weights.filled(version), {.stream = gpu.stream()}));
      else
        expect_fine(receiver->wait_for(version, 20s, gpu.stream()));
      if (testing::Test::HasFailure()) return here.group->abort("a version did not come");
      Work work = here.group->broadcast_async(values, kGpuTrainer, {.stream = gpu.stream()});
      expect_fine(work.wait_on(gpu.stream()));
      std::vector<float> fetched(kCount);
      if (fetches) gpu.copy(address_of_data(fetched.data()), memory.address(), memory.bytes());
      gpu.synchronize();
      if (receiver) expect_whole_on(gpu, *receiver, Device::cuda, kCount);
    }
    meet(here);
  });
}

TEST_P(HandOverGpu, a_version_that_a_stream_still_reads_is_not_written) {
  in_world([](Context& here) {
    Gpu gpu;
    if (here.rank == kGpuTrainer) {
      auto sender = gpu_sender(here);
      GpuWeights weights(gpu, 20'000);
      for (std::uint64_t version = 1; version <= 3; ++version)
        expect_fine(sender->send(version, weights.filled(version), {.stream = gpu.stream()}));
      expect_fine(sender->flush());
      EXPECT_TRUE(sender->lost().empty());
      meet(here);
    } else {
      auto receiver = gpu_receiver(here);
      cuda::Memory read = gpu.allocate(20'000 * sizeof(float));
      expect_fine(receiver->wait_for(1, 60s, gpu.stream()));
      ASSERT_EQ(receiver->version(), 1u);
      gpu.shut();
      gpu.copy(read.address(), address_of_data(receiver->weights()[0].values.data), read.bytes());
      // The next one goes elsewhere, and comes at once; the one behind it has to wait.
      expect_fine(receiver->wait_for(2, 60s, gpu.stream()));
      ASSERT_EQ(receiver->version(), 2u);
      for (int i = 0; i < 30; ++i, std::this_thread::sleep_for(1ms)) {
        const auto newer = receiver->poll(gpu.stream());
        EXPECT_TRUE(newer.ok() && !*newer);
      }
      gpu.open();
      std::vector<float> values(20'000);
      gpu.copy(address_of_data(values.data()), read.address(), read.bytes());
      gpu.synchronize();
      EXPECT_EQ(values, std::vector<float>(20'000, 1.0F));
      expect_fine(receiver->wait_for(3, 60s, gpu.stream()));
      expect_whole_on(gpu, *receiver, Device::cuda, 20'000);
      meet(here);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(World, HandOverGpu,
                         testing::Values(World{.kind = WorldKind::threads, .size = 3},
                                         World{.kind = WorldKind::shm, .size = 3},
                                         World{.kind = WorldKind::tcp, .size = 3}),
                         name_of);

// ---- ranks that are killed

class HandOverGpuLoss : public HandOverGpu {
 protected:
  static World doomed_to_die(int rank) {
    World world = GetParam();
    world.doomed = {rank};
    return world;
  }
};

[[noreturn]] void die_at_once() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

// As long as there are newer ones up to `until`; every version seen must be whole.
Status follow_on(Gpu& gpu, WeightReceiver& receiver, std::uint64_t until, std::size_t count) {
  while (receiver.version() < until && !testing::Test::HasFailure()) {
    const Status status = receiver.wait_for(receiver.version() + 1, 60s, gpu.stream());
    if (!status.ok()) return status;
    expect_whole_on(gpu, receiver, Device::cuda, count);
  }
  return {};
}

TEST_P(HandOverGpuLoss, a_killed_receiver_is_dropped_and_named_and_the_others_get_every_version) {
  run(doomed_to_die(kGpuVictim), [](Context& here) {
    constexpr std::uint64_t kVersions = 12;
    constexpr std::size_t kCount = 100'003;
    Gpu gpu;
    if (here.rank == kGpuTrainer) {
      auto sender = gpu_sender(here);
      GpuWeights weights(gpu, kCount);
      for (std::uint64_t version = 1; version <= kVersions; ++version) {
        const bool lend = version % 2 == 0;
        expect_fine(
            sender->send(version, weights.filled(version), {.stream = gpu.stream(), .lend = lend}));
        if (lend) expect_fine(sender->flush());
      }
      expect_fine(sender->flush());
      ASSERT_EQ(sender->lost().size(), 1u);
      EXPECT_EQ(sender->lost()[0].first, kGpuVictim);
      EXPECT_EQ(sender->lost()[0].second.code(), Code::peer_lost)
          << sender->lost()[0].second.to_string();
      ASSERT_TRUE(here.store->set("all sent", "").ok());
    } else {
      auto receiver = gpu_receiver(here);
      if (here.rank == kGpuVictim) {
        expect_fine(follow_on(gpu, *receiver, 4, kCount));
        (void)receiver->poll(gpu.stream());  // the next one is on its way, perhaps
        die_at_once();
      }
      expect_fine(follow_on(gpu, *receiver, kVersions, kCount));
      ASSERT_TRUE(here.store->wait("all sent", 60s).ok());
    }
  });
}

TEST_P(HandOverGpuLoss, a_killed_trainer_leaves_every_receiver_with_its_last_whole_version) {
  run(doomed_to_die(kGpuTrainer), [](Context& here) {
    constexpr std::size_t kCount = 1'000'003;
    Gpu gpu;
    if (here.rank == kGpuTrainer) {
      auto sender = gpu_sender(here);
      GpuWeights weights(gpu, kCount);
      for (std::uint64_t version = 1; version <= 4; ++version)
        expect_fine(sender->send(version, weights.filled(version), {.stream = gpu.stream()}));
      die_at_once();  // with 4 MB under way
    } else {
      auto receiver = gpu_receiver(here);
      const Status status = follow_on(gpu, *receiver, 1000, kCount);
      EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
      EXPECT_GE(receiver->version(), 3u) << "it was sent whole before the fourth began";
      expect_whole_on(gpu, *receiver, Device::cuda, kCount);
      EXPECT_FALSE(receiver->poll(gpu.stream()).ok());
      expect_whole_on(gpu, *receiver, Device::cuda, kCount);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(World, HandOverGpuLoss,
                         testing::Values(World{.kind = WorldKind::shm, .size = 3}), name_of);

}  // namespace
}  // namespace tutti::test
