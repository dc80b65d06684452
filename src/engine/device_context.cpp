#include "engine/device_context.hpp"

#include <bit>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "core/clock.hpp"

namespace tutti::engine {
namespace {

constexpr std::size_t kGates = 1024;
constexpr std::size_t kGateStride = 64;  // bytes: a cache line each
// Streams that are tried, and how long one that is not held up may take: at first, and at the most.
constexpr int kTriedStreams = 8;
constexpr Nanoseconds kTryFor = std::chrono::milliseconds(100);
constexpr Nanoseconds kTryAtMost = std::chrono::milliseconds(800);
// Streams before which nothing stands any more are through in so small a part of that, or the machine is busy.
constexpr int kPartOfTry = 20;
// The least of pinned memory, and the most that is kept for later.
constexpr std::size_t kLeastPinned = 64 * 1024;
constexpr std::size_t kMostKept = 16;

}  // namespace

GateKeeper::GateKeeper(std::shared_ptr<DeviceContext> context)
    : context_(std::move(context)), gate_(context_->take_gate()) {}

void GateKeeper::open() {
  if (!is_open_.exchange(true)) context_->give_back(gate_);
}

Result<bool> GateKeeper::wait_on(cuda::StreamHandle stream) const {
  if (gate_.word == nullptr || !context_->may_gate()) return false;
  const cuda::MemoryOperation wait{cuda::MemoryOperation::Kind::wait, gate_.address(), gate_.value};
  if (Status status = context_->device().operate({&wait, 1}, stream); !status.ok()) return status;
  return true;
}

Result<std::shared_ptr<DeviceContext>> DeviceContext::create(std::shared_ptr<cuda::Device> device,
                                                             transport::Endpoint& endpoint) {
  std::shared_ptr<DeviceContext> context(new DeviceContext(std::move(device), endpoint));
  if (Status status = context->open(); !status.ok()) return status;
  return context;
}

Status DeviceContext::open() {
  auto stream = device_->make_stream();
  if (!stream.ok()) return stream.status();
  message_stream_ = *std::move(stream);
  auto words = device_->allocate_pinned(kGates * kGateStride);
  if (!words.ok()) return words.status();
  gate_words_ = *std::move(words);
  for (std::size_t g = 0; g < kGates; ++g)
    gates_.push_back({new (gate_words_.data() + g * kGateStride) std::atomic<std::uint64_t>(0), 1});
  streams_are_apart_ = device_->facts().memory_operations && probe_streams();
  const char* loading = std::getenv("CUDA_MODULE_LOADING");
  may_gate_ = streams_are_apart_ && loading != nullptr && std::string_view(loading) == "EAGER";
  return {};
}

// Where the machine is too busy to tell, it is asked again, with more patience.
bool DeviceContext::probe_streams() {
  for (Nanoseconds patience = kTryFor; patience <= kTryAtMost; patience *= 2)
    if (const auto apart = try_streams(patience)) return *apart;
  return false;
}

// One stream waits for a gate, others each open one. Where they stand behind it they do not come to that. Empty: they
// came late even when nothing waited any more.
std::optional<bool> DeviceContext::try_streams(Nanoseconds patience) {
  using cuda::MemoryOperation;
  std::vector<cuda::Stream> streams;
  std::vector<GateWord> gates;
  for (int i = 0; i <= kTriedStreams; ++i) {
    auto stream = device_->make_stream();
    if (!stream.ok()) break;
    gates.push_back(take_gate());
    const MemoryOperation operation{
        i == 0 ? MemoryOperation::Kind::wait : MemoryOperation::Kind::write, gates.back().address(),
        gates.back().value};
    (void)device_->operate({&operation, 1}, stream->get());
    streams.push_back(*std::move(stream));
  }
  const auto all_open = [&] {
    for (std::size_t i = 1; i < gates.size(); ++i)
      if (gates[i].word->load() < gates[i].value) return false;
    return gates.size() == kTriedStreams + 1;
  };
  const Nanoseconds last = steady_clock().now() + patience;
  bool apart = false;
  while (!(apart = all_open()) && steady_clock().now() < last) std::this_thread::yield();
  const Nanoseconds opened = steady_clock().now();
  if (!gates.empty()) gates[0].open();
  for (const cuda::Stream& stream : streams) (void)device_->synchronize(stream.get());
  const bool is_busy = steady_clock().now() - opened > patience / kPartOfTry;
  for (const GateWord& gate : gates) give_back(gate);
  return !apart && is_busy ? std::nullopt : std::optional(apart);
}

GateWord DeviceContext::take_gate() {
  std::scoped_lock lock(mutex_);
  if (gates_.empty()) return {};
  const GateWord gate = gates_.back();
  gates_.pop_back();
  return gate;
}

void DeviceContext::give_back(const GateWord& gate) {
  if (gate.word == nullptr) return;
  gate.open();
  std::scoped_lock lock(mutex_);
  gates_.push_back({gate.word, gate.value + 1});
}

Result<std::shared_ptr<cuda::Memory>> DeviceContext::pinned(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, kLeastPinned));
  std::unique_ptr<cuda::Memory> memory;
  {
    std::scoped_lock lock(pool_->mutex);
    for (auto& each : pool_->free)
      if (each->bytes() == size) {
        memory = std::move(each);
        std::swap(each, pool_->free.back());
        pool_->free.pop_back();
        break;
      }
  }
  if (!memory) {
    auto made = device_->allocate_pinned(size);
    if (!made.ok()) return made.status();
    memory = std::make_unique<cuda::Memory>(*std::move(made));
  }
  // What the pool has no room for is let go of later: freeing it may have to wait.
  cuda::Memory* raw = memory.release();
  return std::shared_ptr<cuda::Memory>(raw, [pool = pool_](cuda::Memory* back) {
    std::unique_ptr<cuda::Memory> kept(back);
    std::scoped_lock lock(pool->mutex);
    pool->free.push_back(std::move(kept));
  });
}

bool DeviceContext::take_share(const std::atomic<std::uint64_t>& done, std::uint64_t ticket) {
  std::scoped_lock lock(mutex_);
  if (share_done_ != nullptr && share_done_->load(std::memory_order_acquire) < share_ticket_)
    return false;
  share_done_ = &done;
  share_ticket_ = ticket;
  return true;
}

void DeviceContext::forget_share(const std::atomic<std::uint64_t>& done) {
  std::scoped_lock lock(mutex_);
  if (share_done_ == &done) share_done_ = nullptr;
}

void DeviceContext::put_away(std::shared_ptr<void> thing) {
  std::scoped_lock lock(mutex_);
  if (thing) attic_.push_back(std::move(thing));
}

void DeviceContext::put_away(cuda::Memory memory) {
  put_away(reach_.give_up(std::make_shared<cuda::Memory>(std::move(memory))));
}

bool DeviceContext::step() {
  bool moved = reach_.step(false);
  for (std::shared_ptr<cuda::Memory>& memory : reach_.take_closed()) put_away(std::move(memory));
  device_->sweep();
  if (!reach_.has_to_close() && !has_attic()) return moved;
  device_->traffic().while_quiet([&] {
    moved |= reach_.step(true);
    sweep();
  });
  return moved;
}

bool DeviceContext::has_attic() {
  std::scoped_lock lock(mutex_, pool_->mutex);
  return !attic_.empty() || pool_->free.size() > kMostKept;
}

void DeviceContext::sweep() {
  std::vector<std::shared_ptr<void>> attic;
  std::vector<std::unique_ptr<cuda::Memory>> surplus;
  std::scoped_lock lock(mutex_, pool_->mutex);
  attic.swap(attic_);
  while (pool_->free.size() > kMostKept) {
    surplus.push_back(std::move(pool_->free.back()));
    pool_->free.pop_back();
  }
}

}  // namespace tutti::engine
