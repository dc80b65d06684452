#include "engine/device_context.hpp"

#include <algorithm>
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
// Streams that are tried, and how long those that are not held up may take; and so often what they take where
// nothing waits, for on a GPU that many use everything takes its time.
constexpr int kTriedStreams = 8;
constexpr Nanoseconds kTryFor = std::chrono::milliseconds(100);
constexpr Nanoseconds kTryAloneFor = std::chrono::seconds(2);
constexpr int kTimesAlone = 20;
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

bool DeviceContext::probe_streams() {
  std::vector<cuda::Stream> streams;
  for (int i = 0; i <= kTriedStreams; ++i) {
    auto stream = device_->make_stream();
    if (!stream.ok()) return false;
    streams.push_back(*std::move(stream));
  }
  const auto alone = time_to_pass(streams, false, kTryAloneFor);
  return alone && time_to_pass(streams, true, kTryFor + kTimesAlone * *alone);
}

// The first stream waits for a gate, or has nothing to do; the others each open one. How long all of them take;
// absent: longer. Where they stand behind the one that waits they do not come to it.
std::optional<Nanoseconds> DeviceContext::time_to_pass(const std::vector<cuda::Stream>& streams,
                                                       bool held, Nanoseconds limit) {
  using cuda::MemoryOperation;
  std::vector<GateWord> gates;
  const Nanoseconds began = steady_clock().now();
  for (const cuda::Stream& stream : streams) {
    const bool waits = held && gates.empty();
    gates.push_back(take_gate());
    if (&stream == &streams.front() && !waits) continue;
    const MemoryOperation operation{
        waits ? MemoryOperation::Kind::wait : MemoryOperation::Kind::write, gates.back().address(),
        gates.back().value};
    (void)device_->operate({&operation, 1}, stream.get());
  }
  const auto all_open = [&] {
    return std::all_of(gates.begin() + 1, gates.end(),
                       [](const GateWord& gate) { return gate.word->load() >= gate.value; });
  };
  bool passed = false;
  while (!(passed = all_open()) && steady_clock().now() < began + limit) std::this_thread::yield();
  const Nanoseconds took = steady_clock().now() - began;
  gates.front().open();
  for (const cuda::Stream& stream : streams) (void)device_->synchronize(stream.get());
  for (const GateWord& gate : gates) give_back(gate);
  return passed ? std::optional(took) : std::nullopt;
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

bool DeviceContext::step() {
  bool moved = reach_.step(false);
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
