// cuda/traffic.hpp - what of this process waits on a device, or may come to wait there.
//
// Some calls of the driver wait until no stream of the process waits for anything (device.hpp: *slow*). A
// rank that made one while something waits for another rank might keep that one waiting in turn, for
// ever. So whatever may wait on the device is a flight, from before it is put there until it is over, and
// slow calls are made between flights.
//
// The other way round, a thread of the caller's that waits in the driver for a stream, such as in a copy to
// pageable memory, keeps the others of its process from copying, recording and making events (measured: docs/gpu.md).
// Where a thread of this process has something to do on the device for another rank that is no operation of the
// caller's (a *duty*), no stream of the caller's is to be made to wait for peers meanwhile: the host waits instead.
//
// Thread-safety  any thread, any method.
#pragma once

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

namespace tutti::cuda {

class DeviceTraffic {
 public:
  class Flight {
   public:
    Flight() = default;
    explicit Flight(DeviceTraffic& traffic) : traffic_(&traffic) {
      std::shared_lock lock(traffic.quiet_);
      traffic.flights_.fetch_add(1, std::memory_order_relaxed);
    }
    Flight(Flight&& other) noexcept : traffic_(std::exchange(other.traffic_, nullptr)) {}
    Flight& operator=(Flight&& other) noexcept {
      return std::swap(traffic_, other.traffic_), *this;
    }
    ~Flight() {
      if (traffic_ != nullptr) traffic_->flights_.fetch_sub(1, std::memory_order_release);
    }

   private:
    DeviceTraffic* traffic_ = nullptr;
  };

  class Duty {
   public:
    Duty() = default;
    explicit Duty(DeviceTraffic& traffic) : traffic_(&traffic) { traffic.duties_.fetch_add(1); }
    Duty(Duty&& other) noexcept : traffic_(std::exchange(other.traffic_, nullptr)) {}
    Duty& operator=(Duty&& other) noexcept { return std::swap(traffic_, other.traffic_), *this; }
    ~Duty() {
      if (traffic_ != nullptr) traffic_->duties_.fetch_sub(1);
    }

   private:
    DeviceTraffic* traffic_ = nullptr;
  };
  bool has_duties() const { return duties_.load() != 0; }

  // Runs `slow` if nothing is under way; nothing begins meanwhile. False: now is not the time. May be
  // called by what it runs.
  template <class Slow>
  bool while_quiet(const Slow& slow) {
    if (holder_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
      slow();
      return true;
    }
    if (flights_.load(std::memory_order_acquire) != 0) return false;
    std::unique_lock lock(quiet_, std::try_to_lock);
    if (!lock || flights_.load(std::memory_order_acquire) != 0) return false;
    holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    slow();
    holder_.store({}, std::memory_order_relaxed);
    return true;
  }

 private:
  std::shared_mutex quiet_;
  std::atomic<int> flights_{0};
  std::atomic<int> duties_{0};
  std::atomic<std::thread::id> holder_{};  // of quiet_
};

}  // namespace tutti::cuda
