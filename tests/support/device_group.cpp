#include "support/device_group.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/device.hpp"

namespace tutti::test {
namespace {

constexpr std::size_t kMirrorGuard = 256;  // on both sides of a mirror
constexpr std::byte kMirrorGuardByte{0xC3};

void expect_ok(const Status& status, const char* what) {
  EXPECT_TRUE(status.ok()) << what << ": " << status.to_string();
}

// The GPU of one rank, and what it has there.
class Gpu {
 public:
  Gpu() {
    auto device = cuda::Device::open(0);
    EXPECT_TRUE(device.ok()) << device.status().to_string();
    if (!device.ok()) return;
    device_ = *device;
  }
  cuda::Device& device() { return *device_; }
  // One for each thread: what they call must not stand in one queue, which has one order.
  cuda::StreamHandle stream() {
    std::scoped_lock lock(mutex_);
    cuda::Stream& own = streams_[std::this_thread::get_id()];
    if (own.get() != nullptr) return own.get();
    auto stream = device_->make_stream();
    EXPECT_TRUE(stream.ok()) << stream.status().to_string();
    if (stream.ok()) own = *std::move(stream);
    return own.get();
  }

  void copy(std::uint64_t to, std::uint64_t from, std::size_t bytes) {
    if (bytes > 0) expect_ok(device_->copy(to, from, bytes, stream()), "copy");
  }
  void synchronize() { expect_ok(device_->synchronize(stream()), "synchronize"); }

  // Memory for a mirror. It is used again and never freed: freeing waits until no stream of the process
  // waits, and another rank of this process may wait for this one.
  cuda::Memory take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(bytes);
    {
      std::scoped_lock lock(mutex_);
      auto& pool = pool_[size];
      if (!pool.empty()) {
        cuda::Memory memory = std::move(pool.back());
        pool.pop_back();
        return memory;
      }
    }
    auto memory = device_->allocate(size);
    EXPECT_TRUE(memory.ok()) << memory.status().to_string();
    return memory.ok() ? *std::move(memory) : cuda::Memory();
  }
  void give_back(cuda::Memory memory) {
    std::scoped_lock lock(mutex_);
    pool_[memory.bytes()].push_back(std::move(memory));
  }

  // Symmetric memory: a mirror that stays.
  void keep(std::byte* host, std::size_t bytes, std::uint64_t device) {
    std::scoped_lock lock(mutex_);
    kept_[host] = {bytes, device};
  }
  void drop(std::byte* host) {
    std::scoped_lock lock(mutex_);
    kept_.erase(host);
  }
  std::uint64_t find_kept(const std::byte* host, std::size_t bytes) {
    std::scoped_lock lock(mutex_);
    for (const auto& [base, kept] : kept_)
      if (host >= base && host + bytes <= base + kept.first)
        return kept.second + static_cast<std::uint64_t>(host - base);
    return 0;
  }

 private:
  std::shared_ptr<cuda::Device> device_;
  std::mutex mutex_;
  std::map<std::thread::id, cuda::Stream> streams_;
  std::map<std::byte*, std::pair<std::size_t, std::uint64_t>> kept_;
  std::map<std::size_t, std::vector<cuda::Memory>> pool_;
};

std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

// The memory of one call. Host ranges that touch are one mirror.
class Mirrors {
 public:
  explicit Mirrors(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  ~Mirrors() {
    for (Mirror& mirror : mirrors_)
      if (mirror.memory.bytes() > 0) gpu_->give_back(std::move(mirror.memory));
  }

  void add(const void* data, std::size_t bytes) {
    auto* begin = static_cast<std::byte*>(const_cast<void*>(data));
    if (data != nullptr && bytes > 0) ranges_.push_back({begin, begin + bytes});
  }
  void upload() {
    std::sort(ranges_.begin(), ranges_.end());
    for (const auto& [begin, end] : ranges_) {
      if (!mirrors_.empty() && begin <= mirrors_.back().end)
        mirrors_.back().end = std::max(mirrors_.back().end, end);
      else
        mirrors_.push_back({begin, end, 0, {}});
    }
    for (Mirror& mirror : mirrors_) make(mirror);
    gpu_->synchronize();
  }
  Buffer there(const Buffer& buffer) const {
    Buffer moved = buffer;
    moved.device = Device::cuda;
    if (buffer.data != nullptr && buffer.bytes() > 0)
      moved.data = reinterpret_cast<void*>(find(buffer.data));
    return moved;
  }
  // Waits for the stream, and brings back what is there now.
  void download() {
    for (Mirror& mirror : mirrors_)
      gpu_->copy(address_of(mirror.begin), mirror.device, mirror.bytes());
    gpu_->synchronize();
    for (const Mirror& mirror : mirrors_) check_guards(mirror);
  }

 private:
  struct Mirror {
    std::byte* begin;
    std::byte* end;
    std::uint64_t device;
    cuda::Memory memory;
    std::size_t bytes() const { return static_cast<std::size_t>(end - begin); }
  };

  void make(Mirror& mirror) {
    mirror.device = gpu_->find_kept(mirror.begin, mirror.bytes());
    if (mirror.device == 0) {
      mirror.memory = gpu_->take(mirror.bytes() + 2 * kMirrorGuard + 128);
      if (mirror.memory.bytes() == 0) return;
      const std::uint64_t first = (mirror.memory.address() + kMirrorGuard + 63) / 64 * 64;
      mirror.device = first + address_of(mirror.begin) % 64;
      expect_ok(
          gpu_->device().fill(mirror.memory.address(), static_cast<std::uint8_t>(kMirrorGuardByte),
                              mirror.memory.bytes(), gpu_->stream()),
          "fill");
    }
    gpu_->copy(mirror.device, address_of(mirror.begin), mirror.bytes());
  }
  void check_guards(const Mirror& mirror) {
    if (mirror.memory.bytes() == 0) return;
    std::vector<std::byte> guards(2 * kMirrorGuard);
    gpu_->copy(address_of(guards.data()), mirror.device - kMirrorGuard, kMirrorGuard);
    gpu_->copy(address_of(guards.data() + kMirrorGuard), mirror.device + mirror.bytes(),
               kMirrorGuard / 2);
    gpu_->synchronize();
    const auto intact = [](std::byte value) { return value == kMirrorGuardByte; };
    EXPECT_TRUE(
        std::all_of(guards.begin(), guards.begin() + kMirrorGuard + kMirrorGuard / 2, intact))
        << "a call wrote beside its buffers on the device";
  }
  std::uint64_t find(const void* data) const {
    for (const Mirror& mirror : mirrors_)
      if (data >= mirror.begin && data < mirror.end)
        return mirror.device + (address_of(data) - address_of(mirror.begin));
    return 0;
  }

  std::shared_ptr<Gpu> gpu_;
  std::vector<std::pair<std::byte*, std::byte*>> ranges_;
  std::vector<Mirror> mirrors_;
};

// A call whose buffers were moved.
struct MovedCall {
  std::vector<ConstBuffer> input;
  std::vector<Buffer> output;
  Call call;
};

// Brings results back when it is waited for.
class MirroredWork final : public Work::State {
 public:
  MirroredWork(Work work, std::shared_ptr<Mirrors> mirrors, std::shared_ptr<Gpu> gpu)
      : work_(std::move(work)), mirrors_(std::move(mirrors)), gpu_(std::move(gpu)) {}

  // Half of them as a stream would, half as a host does.
  Status wait(std::chrono::nanoseconds timeout) override {
    static std::atomic<unsigned> turn{0};
    Status status = work_.status();
    if (timeout == std::chrono::nanoseconds::max() && turn++ % 2 == 0)
      status = work_.wait_on(gpu_->stream());
    if (status.ok()) status = work_.wait(timeout);
    if (status.ok()) bring_back();
    return status;
  }
  bool done() const override { return work_.done(); }
  Status status() const override { return work_.status(); }
  void on_complete(std::function<void(const Status&)> callback) override {
    work_.on_complete(std::move(callback));
  }
  Received received() const override { return work_.received(); }
  Result<bool> try_wait_on(void* stream) override {
    return work_.state() ? work_.state()->try_wait_on(stream) : true;
  }
  bool help() override { return work_.state() && work_.state()->help(); }
  std::string describe() const override { return work_.state()->describe(); }

 private:
  void bring_back() {
    std::scoped_lock lock(mutex_);
    if (mirrors_) mirrors_->download();
    mirrors_.reset();
  }
  Work work_;
  std::mutex mutex_;
  std::shared_ptr<Mirrors> mirrors_;
  std::shared_ptr<Gpu> gpu_;
};

class DeviceGroup final : public Group {
 public:
  DeviceGroup(std::shared_ptr<Group> group, std::shared_ptr<Gpu> gpu)
      : group_(std::move(group)), gpu_(std::move(gpu)) {}

  Status run(const Call& call) override {
    if (!has_buffers(call)) return group_->run(call);
    auto mirrors = mirror(call);
    const MovedCall moved = move(call, *mirrors);
    Work work = group_->start(moved.call);
    Status status = work.wait_on(gpu_->stream());
    gpu_->synchronize();
    // The stream may have passed because another rank knows of a failure that this one has yet to hear of.
    if (status.ok()) status = work.wait();
    if (status.ok()) mirrors->download();
    return status;
  }
  Work start(const Call& call) override {
    if (!has_buffers(call)) return group_->start(call);
    auto mirrors = mirror(call);
    const MovedCall moved = move(call, *mirrors);
    return Work(std::make_shared<MirroredWork>(group_->start(moved.call), mirrors, gpu_));
  }
  Work transfer(std::span<const Transfer> transfers, const CallOptions& options) override {
    auto mirrors = mirror(transfers);
    return Work(std::make_shared<MirroredWork>(
        group_->transfer(move(transfers, *mirrors), with_stream(options)), mirrors, gpu_));
  }
  Result<Received> exchange(std::span<const Transfer> transfers,
                            const CallOptions& options) override {
    auto mirrors = mirror(transfers);
    auto received = group_->exchange(move(transfers, *mirrors), with_stream(options));
    if (received.ok()) mirrors->download();
    return received;
  }

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::string& name() const override { return group_->name(); }
  ReductionOrder reduction_order() const override { return group_->reduction_order(); }
  Urgency urgency() const override { return group_->urgency(); }
  std::vector<int> hosts() const override { return group_->hosts(); }
  Status label_ranks(std::span<const std::string> labels) override {
    return group_->label_ranks(labels);
  }
  Result<std::shared_ptr<Group>> split(int color, int key, GroupSpec spec) override {
    return wrapped(group_->split(color, key, std::move(spec)));
  }
  Result<std::shared_ptr<Group>> subgroup(std::span<const int> ranks, std::uint32_t tag,
                                          GroupSpec spec,
                                          std::chrono::nanoseconds timeout) override {
    return wrapped(group_->subgroup(ranks, tag, std::move(spec), timeout));
  }
  Result<std::shared_ptr<Group>> duplicate(GroupSpec spec) override {
    return wrapped(group_->duplicate(std::move(spec)));
  }
  Result<std::shared_ptr<Group>> shrink(std::string name,
                                        std::chrono::nanoseconds timeout) override {
    return wrapped(group_->shrink(std::move(name), timeout));
  }
  Result<std::shared_ptr<Group>> grow(std::shared_ptr<Store> store, int most,
                                      GroupOptions options) override {
    return wrapped(group_->grow(std::move(store), most, std::move(options)));
  }
  // Host memory that stands for symmetric memory of the device.
  Result<SymmetricMemory> allocate(std::size_t bytes, Device) override {
    auto there = group_->allocate(bytes, Device::cuda);
    if (!there.ok() || bytes == 0) return there;
    SymmetricMemory here;
    constexpr std::size_t kAlignment = 256;  // as a pool's pieces have it
    auto host = std::make_shared<std::vector<std::byte>>(bytes + kAlignment);
    auto* data = host->data() + (kAlignment - address_of(host->data()) % kAlignment) % kAlignment;
    here.data = data;
    here.bytes = bytes;
    gpu_->keep(data, bytes, address_of(there->data));
    here.owner = std::shared_ptr<void>(data, [gpu = gpu_, host, there = *there](void* gone) {
      gpu->drop(static_cast<std::byte*>(gone));
    });
    return here;
  }
  void forget(const void* allocation) override { group_->forget(allocation); }
  Result<Prediction> predict(Collective collective, std::size_t bytes) override {
    return group_->predict(collective, bytes);
  }
  Result<Prediction> predict(Collective collective, std::size_t bytes,
                             std::span<const int> ranks) override {
    return group_->predict(collective, bytes, ranks);
  }
  void abort(const std::string& reason) override { group_->abort(reason); }
  Status health() const override { return group_->health(); }
  std::string describe() const override { return group_->describe(); }
  trace::Sink* trace() const override { return group_->trace(); }

 private:
  static bool has_buffers(const Call& call) { return !call.input.empty() || !call.output.empty(); }
  CallOptions with_stream(CallOptions options) const {
    options.stream = gpu_->stream();
    return options;
  }
  std::shared_ptr<Mirrors> mirror(const Call& call) {
    auto mirrors = std::make_shared<Mirrors>(gpu_);
    for (const ConstBuffer& buffer : call.input) mirrors->add(buffer.data, buffer.bytes());
    for (const Buffer& buffer : call.output) mirrors->add(buffer.data, buffer.bytes());
    mirrors->upload();
    return mirrors;
  }
  std::shared_ptr<Mirrors> mirror(std::span<const Transfer> transfers) {
    auto mirrors = std::make_shared<Mirrors>(gpu_);
    for (const Transfer& each : transfers) mirrors->add(each.buffer.data, each.buffer.bytes());
    mirrors->upload();
    return mirrors;
  }
  MovedCall move(const Call& call, const Mirrors& mirrors) const {
    MovedCall moved;
    for (const ConstBuffer& buffer : call.input)
      moved.input.push_back(mirrors.there({const_cast<void*>(buffer.data), buffer.count,
                                           buffer.dtype, buffer.device, buffer.ready}));
    for (const Buffer& buffer : call.output) moved.output.push_back(mirrors.there(buffer));
    moved.call = call;
    moved.call.input = moved.input;
    moved.call.output = moved.output;
    moved.call.options = with_stream(call.options);
    return moved;
  }
  static std::vector<Transfer> move(std::span<const Transfer> transfers, const Mirrors& mirrors) {
    std::vector<Transfer> moved(transfers.begin(), transfers.end());
    for (Transfer& each : moved) each.buffer = mirrors.there(each.buffer);
    return moved;
  }
  Result<std::shared_ptr<Group>> wrapped(Result<std::shared_ptr<Group>> made) const {
    if (!made.ok() || !*made) return made;
    return std::shared_ptr<Group>(std::make_shared<DeviceGroup>(*std::move(made), gpu_));
  }

  std::shared_ptr<Group> group_;
  std::shared_ptr<Gpu> gpu_;
};

}  // namespace

bool wants_device() {
  const char* device = std::getenv("TUTTI_TEST_DEVICE");
  return device != nullptr && std::strcmp(device, "cuda") == 0;
}

// Its first call prepares it, and every group that is made from it.
std::shared_ptr<Group> on_device(std::shared_ptr<Group> group) {
  auto gpu = std::make_shared<Gpu>();
  auto made = std::make_shared<DeviceGroup>(std::move(group), std::move(gpu));
  expect_ok(made->all_reduce(Buffer{nullptr, 0, Dtype::f32, Device::cuda}, ReduceOp::sum),
            "the first call");
  return made;
}

}  // namespace tutti::test
