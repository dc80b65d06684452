// fake_cuda/fake.hpp - what the parts of the emulated driver share.
//
// State is never freed at the end of a process: threads of streams may still run then.
#pragma once

// The driver's functions are what this library is for; all else is hidden.
#pragma GCC visibility push(default)
#include <cuda.h>
#undef cuEventElapsedTime  // the version that tutti calls is not declared under its own name
extern "C" CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to);
#pragma GCC visibility pop

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>

#include "support/fake_cuda/steering.hpp"

namespace fake_cuda {

// ---- calls and contexts (contexts.cpp)

// Begins every call: the n-th and later ones fail as in a lost context, once one is to be lost.
CUresult begin_call();
// The same, of a call that needs a current context.
CUresult begin_call_in_context();
// The same, of a call that must not be made while somebody captures (graphs.cpp says when).
CUresult begin_unsafe_call();
bool is_lost();
void lose_context();
int current_device();  // of the calling thread; -1: no context is current

// ---- work that is under way (channels.cpp)

using Task = std::function<void()>;

// A queue and the thread that works through it.
class Channel;
std::shared_ptr<Channel> make_channel();
void push(const std::shared_ptr<Channel>& channel, Task task);
void close(const std::shared_ptr<Channel>& channel);  // when all is done, its thread ends

// Until no stream of this process has anything to do: what slow calls wait for.
void wait_until_idle();
// One look and the next at something that somebody else writes; gives up when the context is lost.
void poll_until(const std::function<bool()>& done);

// With FAKE_CUDA_HELD_BY_COPIES: waits while another thread copies to memory that is not pinned, which waits for its stream.
// As measured on an H200, of copies in the default stream, for what makes, records and copies.
std::shared_lock<std::shared_mutex> behind_copies();

// ---- streams, events, capture (streams.cpp, events.cpp, graphs.cpp)

struct Stream;

// What a stream or event of a capture comes after: how many steps of each stream.
using Clock = std::map<const Stream*, std::size_t>;

struct Capture {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::uint64_t thread = 0;  // that began it
  const Stream* origin = nullptr;
  std::vector<Task> steps;  // of all its streams, as they were recorded
  std::set<Stream*> streams;
  bool valid = true;
};

struct Stream {
  int device = 0;
  std::shared_ptr<Channel> channel;
  std::shared_ptr<Capture> capture;  // null: none
  Clock clock;
  int priority = 0;
};

struct Event {
  std::mutex mutex;
  std::uint64_t recorded = 0;  // how often
  std::uint64_t happened = 0;
  double seconds = 0;  // when it last happened
  bool timed = false;
  std::weak_ptr<Capture> capture;  // that it was last recorded in
  bool captured = false;
  Clock clock;
};

// Guards captures and clocks, and the lists of what there is.
std::mutex& state_mutex();
// Null where there is no such stream, or it is another device's.
std::shared_ptr<Stream> find_stream(CUstream handle);
// Into the stream's queue, or into the capture that it takes part in.
CUresult enqueue(CUstream handle, Task task);
// Of the calling thread: whether some capture forbids it an unsafe call, which then spoils the capture.
bool is_forbidden_by_capture();

// ---- memory (memory.cpp)

enum class Kind { device, pool, imported, pinned, registered };
struct Allocation {
  Kind kind = Kind::device;
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
  std::uint64_t id = 0;  // never used again
  int device = 0;
  int file = -1;
  std::uint64_t inode = 0;
  int opened = 1;  // imported: how often
  int owner = 0;   // imported: the process that made it, and where it has it
  std::uintptr_t there = 0;

  bool on_device() const { return kind != Kind::pinned && kind != Kind::registered; }
};

// All of this process by address, under a lock of its own.
class Allocations {
 public:
  void add(Allocation allocation);
  bool find(std::uintptr_t address, Allocation& found) const;
  // The one that begins at `base`, taken out if it is of this kind.
  bool remove(std::uintptr_t base, Kind kind, Allocation& removed);
  bool overlaps(std::uintptr_t base, std::size_t bytes) const;
  // Another opening of what is imported already: its address; 0: it is not.
  std::uintptr_t open_again(std::uint64_t inode);
  // Whether memory that a process has freed, and made again at the same address, is still open here.
  bool has_stale(int owner, std::uintptr_t there, std::uint64_t inode) const;
  // Whether this was the last of its openings.
  bool close_once(std::uintptr_t base);
  std::size_t bytes_on(int device) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Allocation> by_base_;
  std::uint64_t last_id_ = 0;
};
Allocations& allocations();

}  // namespace fake_cuda
