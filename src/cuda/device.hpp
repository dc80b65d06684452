// cuda/device.hpp - one GPU as this process uses it: its primary context, memory, streams and kernels.
//
// The driver is loaded at run time (driver.hpp): where there is none, or this build has no CUDA, `open`
// says so and nothing else of this room is ever called. No CUDA header is needed to use this one.
//
// Context        every call makes the device's primary context current in the calling thread for as
//                long as it takes, and leaves the thread as it found it.
// Blocking       what is marked *slow* may wait until no stream of this process waits for anything any
//                more (measured: docs/gpu.md): never call it while a rank's launch may be waiting for a
//                peer. All else returns at once.
// Thread-safety  any thread, any method.
// Failure        Code::unsupported: it cannot be done here; out_of_memory; io: the device or its context
//                is broken, for good. Messages name the driver's call and its word for what happened.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/job.hpp"
#include "cuda/traffic.hpp"
#include "cuda/update_job.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::cuda {

using Address = std::uint64_t;
using StreamHandle = void*;  // a CUstream; null: the legacy default stream
using EventHandle = void*;   // a CUevent

struct DeviceFacts {
  std::string name;
  std::array<std::byte, 16> uuid{};
  int ordinal = 0;
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
  int compute_major = 0, compute_minor = 0;
  bool memory_operations = false;  // streams can wait for 64-bit words
  bool under_mps = false;          // contexts of several processes run together
};

// The allocation that an address lies in. `id` is never used again, also when the address is.
struct Allocation {
  Address base = 0;
  std::size_t bytes = 0;
  std::uint64_t id = 0;
};

// By which another process can map an allocation.
using IpcHandle = std::array<std::byte, 64>;

// One of several things a stream does to 64-bit words, in order. A wait also ends when the word is
// kPoison (job.hpp); words are compared as if counted in a circle, so no number may lie 2^63 behind.
struct MemoryOperation {
  enum class Kind : std::uint8_t { write, wait };  // wait: until the word is `value` or more
  Kind kind = Kind::write;
  Address word = 0;
  std::uint64_t value = 0;
};

class Device;

// Owners; each frees what it holds, and keeps its device open. Memory is freed when nothing of the process
// waits on the device: that is *slow*.
class Stream {
 public:
  Stream() = default;
  Stream(std::shared_ptr<Device> device, StreamHandle handle)
      : device_(std::move(device)), handle_(handle) {}
  Stream(Stream&& other) noexcept { swap(other); }
  Stream& operator=(Stream&& other) noexcept { return swap(other), *this; }
  ~Stream();
  StreamHandle get() const { return handle_; }

 private:
  void swap(Stream& other) { std::swap(device_, other.device_), std::swap(handle_, other.handle_); }
  std::shared_ptr<Device> device_;
  StreamHandle handle_ = nullptr;
};
class Event {
 public:
  Event() = default;
  Event(std::shared_ptr<Device> device, EventHandle handle)
      : device_(std::move(device)), handle_(handle) {}
  Event(Event&& other) noexcept { swap(other); }
  Event& operator=(Event&& other) noexcept { return swap(other), *this; }
  ~Event();
  EventHandle get() const { return handle_; }

 private:
  void swap(Event& other) { std::swap(device_, other.device_), std::swap(handle_, other.handle_); }
  std::shared_ptr<Device> device_;
  EventHandle handle_ = nullptr;
};
// Of the device, or of the host and pinned there.
class Memory {
 public:
  enum class Kind : std::uint8_t { device, pinned };
  Memory() = default;
  Memory(std::shared_ptr<Device> device, Kind kind, Address address, std::size_t bytes)
      : device_(std::move(device)), kind_(kind), address_(address), bytes_(bytes) {}
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept { return swap(other), *this; }
  ~Memory();
  Address address() const { return address_; }
  std::size_t bytes() const { return bytes_; }
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }  // pinned: on the host

 private:
  void swap(Memory& other);
  std::shared_ptr<Device> device_;
  Kind kind_ = Kind::device;
  Address address_ = 0;
  std::size_t bytes_ = 0;
};

// How many GPUs there are; unsupported, with the reason, where there is no driver or no GPU.
Result<int> count_devices();
// Whether this build has CUDA at all.
bool is_built_in();
// What a GPU is, and whether one may be let reach another's memory. Neither uses it: no context is made.
Result<DeviceFacts> look_at(int ordinal);
bool may_reach(int from, int to);
// The calling thread's own, or the first.
int current_device();
// On which one an address lies; -1: it is not device memory, or nothing in this process has used the
// driver yet, so that there can be none. unsupported: this build has no CUDA.
Result<int> device_of(const void* address);

// While it lives this thread may do what CUDA forbids a thread that captures, and all threads while one
// captures in global mode: allocate, map, ask for events. Nothing of that becomes part of the capture.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int mode_;
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  // Retains the primary context and loads the kernels, all of them: later that would be *slow*. All that
  // a process has open of one GPU is one Device.
  static Result<std::shared_ptr<Device>> open(int ordinal);
  ~Device();  // *slow*
  const DeviceFacts& facts() const { return facts_; }
  DeviceTraffic& traffic() { return traffic_; }
  // Whether this device can reach the memory of `other` of this process; switches that on.
  bool can_reach(int other);

  // ---- memory
  Result<Memory> allocate(std::size_t bytes);
  Result<Memory> allocate_pinned(std::size_t bytes);  // reachable by every device of this process
  // Memory of somebody else's, such as what ranks share; its addresses are the same on the device.
  // Registering again what is registered is no error.
  Status register_host(void* data, std::size_t bytes);
  void unregister_host(void* data);  // *slow*
  Result<Allocation> allocation_of(Address address) const;
  // unsupported: memory of this kind cannot be mapped by other processes.
  Result<IpcHandle> export_allocation(const Allocation& allocation) const;
  Result<Address> import_allocation(const IpcHandle& handle);
  void close_import(Address base);  // *slow*
  // Memory whose owners are gone and that is to be freed; frees it if nothing waits.
  bool has_to_free() const { return to_free_.load(std::memory_order_relaxed) > 0; }
  void sweep();

  // ---- streams and events
  // Does not wait for the default stream; of the highest priority there is, or so many levels below it, as
  // long as that is above the priority of plain streams.
  Result<Stream> make_stream(int levels_below = 0);
  Result<Event> make_event(bool with_time = false);
  Status record(EventHandle event, StreamHandle stream);
  Status wait(StreamHandle stream, EventHandle event);
  Result<bool> has_happened(EventHandle event) const;
  // Seconds from one to the other; both with_time, and both have happened.
  Result<double> seconds_between(EventHandle from, EventHandle to) const;
  Result<bool> is_capturing(StreamHandle stream) const;
  Status synchronize(StreamHandle stream);  // blocks

  // ---- work
  Status copy(Address to, Address from, std::size_t bytes, StreamHandle stream);
  Status fill(Address to, std::uint8_t value, std::size_t bytes, StreamHandle stream);
  Status operate(std::span<const MemoryOperation> operations, StreamHandle stream);
  // The phase, by so many blocks. `dtype` is that of the fold.
  Status launch(const Phase& phase, Dtype dtype, int blocks, StreamHandle stream);
  // Enters, with Phase's `mine` and `meeting`, and does nothing else: the launch before one with Enter::met.
  Status launch_meet(const Phase& phase, StreamHandle stream);

  // ---- an optimizer's arithmetic (update_job.hpp)
  Status update(const AdamWJob& job, StreamHandle stream);
  Status update(const SgdJob& job, StreamHandle stream);
  Status narrow(const ConvertJob& job, StreamHandle stream);
  Status widen(const ConvertJob& job, StreamHandle stream);
  Status add(const AddJob& job, StreamHandle stream);
  Status find_not_finite(const InspectJob& job, StreamHandle stream);
  Status sum_squares(const InspectJob& job, StreamHandle stream);

  // Whether it was not current in this thread; see CurrentDevice.
  bool push_current();
  void pop_current();

 private:
  friend class Stream;
  friend class Event;
  friend class Memory;
  void destroy_stream(StreamHandle stream);
  void destroy_event(EventHandle event);
  void free(Memory::Kind kind, Address address);
  void free_now(Memory::Kind kind, Address address);

  static Result<std::shared_ptr<Device>> open_anew(int ordinal);

  struct State;  // what needs CUDA's own types
  explicit Device(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  DeviceFacts facts_;
  DeviceTraffic traffic_;
  std::mutex attic_mutex_;
  std::vector<std::pair<Memory::Kind, Address>> attic_;  // to be freed
  std::atomic<std::size_t> to_free_{0};                  // of them
};

// While it lives the device's context is current in this thread: for whoever makes many calls, of which each would
// see to that and undo it, at 0.2 µs a time.
class CurrentDevice {
 public:
  explicit CurrentDevice(Device& device) : device_(device), pushed_(device.push_current()) {}
  ~CurrentDevice() {
    if (pushed_) device_.pop_current();
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  Device& device_;
  bool pushed_;
};

}  // namespace tutti::cuda
