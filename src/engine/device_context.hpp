// engine/device_context.hpp - what the groups of one rank share on its GPU.
//
// What is to be freed or closed is put into the attic, and swept out while nothing of this process waits
// on the device (cuda/traffic.hpp).
//
// Thread-safety  any thread, any method.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/clock.hpp"
#include "cuda/device.hpp"
#include "engine/device_reach.hpp"

namespace tutti::engine {

// A word that streams wait for and the host writes. Used again and again, with ever growing values: a
// stream that waits for an old one is never held up by a new one.
struct GateWord {
  std::atomic<std::uint64_t>* word = nullptr;
  std::uint64_t value = 0;

  void open() const { word->store(value, std::memory_order_seq_cst); }
  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(word); }
};

class DeviceContext;

// Holds a gate, and opens it once.
class GateKeeper {
 public:
  explicit GateKeeper(std::shared_ptr<DeviceContext> context);
  ~GateKeeper() { open(); }
  GateKeeper(const GateKeeper&) = delete;
  GateKeeper& operator=(const GateKeeper&) = delete;

  void open();
  // Puts a wait for it into a stream; false: nothing may wait for it there.
  Result<bool> wait_on(cuda::StreamHandle stream) const;

 private:
  std::shared_ptr<DeviceContext> context_;
  GateWord gate_;
  std::atomic<bool> is_open_{false};
};

class DeviceContext {
 public:
  static Result<std::shared_ptr<DeviceContext>> create(std::shared_ptr<cuda::Device> device,
                                                       transport::Endpoint& endpoint);

  cuda::Device& device() { return *device_; }
  const std::shared_ptr<cuda::Device>& shared_device() const { return device_; }
  DeviceReach& reach() { return reach_; }
  // Whether a stream that waits leaves the others of this process alone. Where it does not, nothing may
  // wait on the device for what is put there later.
  bool streams_are_apart() const { return streams_are_apart_; }
  // Whether a stream may be made to wait for what this process's host has still to put on the device. A
  // thread that loads a kernel or a library waits until no stream does, and keeps others from the driver
  // meanwhile: the host would never come to it. So only where whoever started the process says that
  // kernels are loaded at the start (CUDA_MODULE_LOADING=EAGER).
  bool may_gate() const { return may_gate_; }
  // Groups that work on the device.
  // For copies of messages. Nothing in it ever waits.
  cuda::StreamHandle message_stream() const { return message_stream_.get(); }

  // To be held from before something is put on the device that may wait for peers, until it is over.
  cuda::DeviceTraffic::Flight begin_flight() {
    return cuda::DeviceTraffic::Flight(device_->traffic());
  }

  // A gate that is shut; null word: all are in use. It is to be given back open.
  GateWord take_gate();
  void give_back(const GateWord& gate);
  // Pinned memory of at least that size, from a pool; it goes back there by itself.
  Result<std::shared_ptr<cuda::Memory>> pinned(std::size_t bytes);

  // A rank's share of the GPU, in blocks that wait for peers: one launch has it at a time, until its group's
  // `done` is at its ticket, so that those of all ranks fit the GPU together. False: another launch has it.
  bool take_share(const std::atomic<std::uint64_t>& done, std::uint64_t ticket);
  // That group is over.
  void forget_share(const std::atomic<std::uint64_t>& done);

  // To be let go of when nothing is under way.
  void put_away(std::shared_ptr<void> thing);
  // The same of memory that peers may have mapped: when they have closed it.
  void put_away(cuda::Memory memory);
  // Maps what peers have shown; frees and closes what is to go, if now is the time. True if anything
  // moved.
  bool step();

 private:
  DeviceContext(std::shared_ptr<cuda::Device> device, transport::Endpoint& endpoint)
      : device_(std::move(device)), reach_(device_, endpoint) {}
  Status open();
  bool probe_streams();
  std::optional<bool> try_streams(Nanoseconds patience);
  bool has_attic();
  void sweep();

  struct Pool {
    std::mutex mutex;
    std::vector<std::unique_ptr<cuda::Memory>> free;
  };

  std::shared_ptr<cuda::Device> device_;
  DeviceReach reach_;
  bool streams_are_apart_ = false;
  bool may_gate_ = false;
  cuda::Stream message_stream_;
  cuda::Memory gate_words_;
  std::shared_ptr<Pool> pool_ = std::make_shared<Pool>();
  std::mutex mutex_;
  const std::atomic<std::uint64_t>* share_done_ = nullptr;  // of whose launch has it
  std::uint64_t share_ticket_ = 0;
  std::vector<GateWord> gates_;
  std::vector<std::shared_ptr<void>> attic_;
};

}  // namespace tutti::engine
