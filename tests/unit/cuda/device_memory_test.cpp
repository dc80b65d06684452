// Memory of the device and of the host, and of other processes.
#include <sys/mman.h>
#include <unistd.h>

#include "unit/cuda/on_device.hpp"

namespace tutti::cuda {
namespace {

TEST_F(EmulatedGpu, copies_and_fills_in_the_order_of_a_stream) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    const Memory memory = need(device->allocate(1000));
    const Memory host = need(device->allocate_pinned(1000));
    const Stream stream = need(device->make_stream());
    EXPECT_OK(device->fill(memory.address(), 7, 1000, stream.get()));
    EXPECT_OK(device->fill(memory.address() + 10, 8, 5, stream.get()));
    EXPECT_OK(device->fill(memory.address(), 9, 0, stream.get()));
    EXPECT_OK(device->copy(host.address(), memory.address(), 1000, stream.get()));
    EXPECT_OK(device->copy(host.address(), memory.address(), 0, stream.get()));
    EXPECT_OK(device->synchronize(stream.get()));
    for (int i = 0; i < 1000; ++i)
      EXPECT_EQ(static_cast<int>(host.data()[i]), i >= 10 && i < 15 ? 8 : 7) << i;
  });
}

TEST_F(EmulatedGpu, names_the_allocation_that_an_address_lies_in) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    std::uint64_t first_id = 0;
    {
      const Memory memory = need(device->allocate(5000));
      const Allocation allocation = need(device->allocation_of(memory.address() + 4321));
      EXPECT_EQ(allocation.base, memory.address());
      EXPECT_EQ(allocation.bytes, 5000U);
      first_id = allocation.id;
    }
    const Memory memory = need(device->allocate(5000));
    EXPECT_NE(need(device->allocation_of(memory.address())).id, first_id);
    int here = 0;
    EXPECT_FALSE(device->allocation_of(reinterpret_cast<Address>(&here)).ok());
  });
}

TEST_F(EmulatedGpu, says_that_memory_is_out) {
  on_emulated_gpu({{"FAKE_CUDA_MEMORY", "100000"}}, [] {
    const auto device = open_device();
    Memory memory = need(device->allocate(60'000));
    const Status status = device->allocate(60'000).status();
    EXPECT_EQ(status.code(), Code::out_of_memory);
    EXPECT_EQ(status.message(),
              "60000 bytes of device memory: GPU 0: cuMemAlloc failed: out of memory "
              "(CUDA_ERROR_OUT_OF_MEMORY)");
    memory = Memory();
    EXPECT_TRUE(device->allocate(60'000).ok());
    EXPECT_TRUE(device->allocate(0).ok());
  });
}

TEST_F(EmulatedGpu, takes_memory_of_the_host_as_it_is) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    void* const shared =
        ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const Stream stream = need(device->make_stream());
    const MemoryOperation write = write_word(reinterpret_cast<Address>(shared) + 64, 5);
    EXPECT_FALSE(device->operate({&write, 1}, stream.get()).ok()) << "nobody has registered it";
    EXPECT_OK(device->register_host(shared, 8192));
    EXPECT_OK(device->register_host(shared, 8192));
    EXPECT_EQ(need(device_of(shared)), -1);
    EXPECT_OK(device->operate({&write, 1}, stream.get()));
    EXPECT_OK(device->synchronize(stream.get()));
    EXPECT_EQ(static_cast<std::uint64_t*>(shared)[8], 5U);
    device->unregister_host(shared);
    ::munmap(shared, 8192);
  });
}

// What the two processes below tell each other.
struct Exchange {
  IpcHandle handle;
  std::atomic<int> step;

  void reach(int next) { step.store(next); }
  void await(int next) const {
    while (step.load() < next) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

// `step`s in which one process exports memory, the other writes there, and the first sees it.
void export_some(Exchange& exchange) {
  const auto device = open_device();
  const Stream stream = need(device->make_stream());
  const Memory host = need(device->allocate_pinned(100));
  Memory memory = need(device->allocate(100));
  EXPECT_OK(device->fill(memory.address(), 3, 100, stream.get()));
  EXPECT_OK(device->synchronize(stream.get()));
  exchange.handle =
      need(device->export_allocation(need(device->allocation_of(memory.address() + 50))));
  EXPECT_FALSE(device->import_allocation(exchange.handle).ok()) << "its own memory";
  exchange.reach(1);
  exchange.await(2);
  EXPECT_OK(device->copy(host.address(), memory.address(), 100, stream.get()));
  EXPECT_OK(device->synchronize(stream.get()));
  EXPECT_EQ(static_cast<int>(host.data()[0]), 3);
  EXPECT_EQ(static_cast<int>(host.data()[99]), 4);
  memory = Memory();
  exchange.reach(3);
  exchange.await(4);
}
void import_some(Exchange& exchange) {
  const auto device = open_device();
  const Stream stream = need(device->make_stream());
  exchange.await(1);
  const Address address = need(device->import_allocation(exchange.handle));
  EXPECT_EQ(need(device->import_allocation(exchange.handle)), address)
      << "counted, not mapped again";
  EXPECT_EQ(need(device_of(reinterpret_cast<void*>(address))), 0);
  EXPECT_OK(device->fill(address + 90, 4, 10, stream.get()));
  EXPECT_OK(device->synchronize(stream.get()));
  exchange.reach(2);
  exchange.await(3);
  device->close_import(address);
  device->close_import(address);
  EXPECT_FALSE(device->import_allocation(exchange.handle).ok()) << "its owner has freed it";
  exchange.reach(4);
}

TEST_F(EmulatedGpu, shares_memory_with_other_processes) {
  void* const shared =
      ::mmap(nullptr, sizeof(Exchange), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const exchange = new (shared) Exchange{};
  on_emulated_gpus(
      {}, 2, [&](int which) { which == 0 ? export_some(*exchange) : import_some(*exchange); });
  ::munmap(shared, sizeof(Exchange));
}

TEST_F(EmulatedGpu, refuses_to_export_what_others_cannot_map) {
  on_emulated_gpu({}, [] {
    const auto device = open_device();
    const Address address = test::allocate_pool(1000);
    EXPECT_EQ(need(device_of(reinterpret_cast<void*>(address))), 0);
    const Status status = device->export_allocation(need(device->allocation_of(address))).status();
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_NE(status.message().find("other processes cannot map"), std::string::npos)
        << status.message();
  });
  on_emulated_gpu({{"FAKE_CUDA_NO_IPC", "1"}}, [] {
    const auto device = open_device();
    const Memory memory = need(device->allocate(100));
    EXPECT_EQ(
        device->export_allocation(need(device->allocation_of(memory.address()))).status().code(),
        Code::unsupported);
  });
}

}  // namespace
}  // namespace tutti::cuda
