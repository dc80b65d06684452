// engine/device_side.hpp - a group on the GPU: the stream that its collectives run on, and how ranks
// meet there.
//
// A collective is put into the group's stream behind what its caller's stream has so far. Ranks meet
// before and after the work, in one of these ways, the same on all ranks (group/device_setup.cpp
// measures and agrees):
//
//   kernel   flags in device memory, raised and watched by kernels: quickest where contexts of all ranks run
//            at the same time (MPS, a GPU each, ranks as threads); can be captured in a graph
//   memops   words of the boards, written and waited for by the stream itself: nothing occupies the GPU
//   host     by the boards, in the hands of whoever steps the group; nothing waits on the device
//
// Failure        abort() lets every stream of the group pass, here and on the others: what comes behind
//                it finds the abort word and touches nothing.
// Thread-safety  launching and stepping: the baton's holder. Waiting and aborting: any thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cuda/device.hpp"
#include "engine/dependencies.hpp"
#include "engine/device_board.hpp"
#include "engine/device_context.hpp"
#include "engine/device_plan.hpp"
#include "engine/device_times.hpp"
#include "tutti/status.hpp"

namespace tutti::engine {

enum class DeviceMeeting : std::uint8_t { host, memops, kernel };
std::string_view to_string(DeviceMeeting way) noexcept;

struct DeviceSideOptions {
  std::shared_ptr<DeviceContext> context;
  std::uint32_t channel = 0;
  int rank = 0;
  std::vector<int> members;           // world rank of each rank
  bool reaches_all = false;           // every device reaches every other one's memory
  bool streams_are_apart = false;     // on all ranks: DeviceContext::streams_are_apart
  int ranks_on_gpu = 0;               // the job's, all of them of this group; 0: there may be more
  std::size_t push_from = 0;          // bytes shown from which owners push, on all ranks alike
  Urgency urgency = Urgency::normal;  // of the group: which priority its streams have
  std::vector<DeviceBoard*> boards;   // of each rank, as mapped here; null: it is not
  std::shared_ptr<void> board_owner;  // keeps them
  cuda::Meeting meeting{};            // of all ranks; entered is null: none
  std::shared_ptr<void> meeting_owner;
};

class DeviceSide {
 public:
  static Result<std::shared_ptr<DeviceSide>> create(DeviceSideOptions options);
  ~DeviceSide();

  int rank() const { return options_.rank; }
  int size() const { return static_cast<int>(options_.members.size()); }
  const std::vector<int>& members() const { return options_.members; }
  std::uint32_t channel() const { return options_.channel; }
  DeviceContext& context() const { return *options_.context; }
  // Its streams go before compute, and before those of groups that are less urgent.
  Result<cuda::Stream> make_stream() const {
    return device().make_stream(static_cast<int>(Urgency::urgent) -
                                static_cast<int>(options_.urgency));
  }
  cuda::Device& device() const { return options_.context->device(); }
  DeviceBoard& own() const { return *board(rank()); }
  const DeviceBoard& of(int peer) const { return *board(peer); }
  // Ranks of other hosts have none here.
  bool has_board(int peer) const { return board(peer) != nullptr; }
  // Whether ranks can work on each other's memory: all share a host, and their devices reach each other.
  bool reaches_all() const { return options_.reaches_all; }
  // Whether its streams may wait on the device for other ranks; else what those ranks need, in this group
  // or in another one, may stand behind the wait, in a queue that streams of one process share.
  bool streams_are_apart() const { return options_.streams_are_apart; }
  int ranks_on_gpu() const { return options_.ranks_on_gpu; }
  // Bytes that all ranks show together from which those whose they are write them (schedule/host/push.hpp).
  std::size_t push_from() const { return options_.push_from; }
  bool can_meet_in_kernels() const { return options_.meeting.entered != nullptr; }
  DeviceMeeting way() const { return way_; }
  void use(DeviceMeeting way) { way_ = way; }

  // From here on events are put around every collective, for a trace.
  void time_with(std::shared_ptr<DeviceTimes> times) { times_ = std::move(times); }

  // How far a caller's stream has come, for Launch::before. Any thread.
  Result<std::shared_ptr<cuda::Event>> mark(cuda::StreamHandle stream);
  // Whether a collective that its caller's stream waits for at once may run in that stream: where something has
  // to happen first that only hosts do, and where a priority was asked for, it takes the group's own.
  bool may_run_in_stream(const Launch& launch) const;

  // ---- one collective, step by step
  std::uint64_t next_ticket() { return ++begun_; }
  std::uint64_t last_ticket() const { return begun_; }
  // Whether its turn of the ring is free.
  bool has_room(std::uint64_t ticket) const {
    return is_done(ticket - std::min(ticket, kDeviceRing));
  }
  // Tells the others what this rank calls. Then, and whenever nothing moves: the peer that calls something
  // else, or -1.
  void publish(std::uint64_t ticket, std::uint64_t sequence, const Launch& launch);
  int find_difference(std::uint64_t ticket) const;
  bool has_called(int peer, std::uint64_t ticket) const {
    return of(peer).call(ticket).ticket.load(std::memory_order_acquire) == ticket;
  }
  // What a peer has called as collective `sequence`, if that was one of the last on its device.
  std::optional<Fingerprint> called(int peer, std::uint64_t sequence) const;

  // Makes memory for staged chunks, that the others are then to map.
  Result<std::uint64_t> make_staging(std::size_t bytes);
  std::size_t staging_bytes() const { return staging_.bytes(); }
  // Where staged chunks lie: in memory that the next collective uses again, or `for_good`.
  Result<std::uint64_t> staging(std::size_t bytes, bool for_good);
  // Puts the addresses of peers in place of the own ones in `work.phase.mine`. False: some peer has not
  // mapped something yet, or (failure) cannot. `known`: an allocation that was looked up already.
  Result<bool> translate(DeviceWork& work, const DeviceReach::View& known);
  // Everything at once, where the device meets: from the caller's stream to the end.
  Status launch(DeviceWork& work, const Launch& launch, std::uint64_t ticket);
  // The same into a stream that is captured; ranks must meet in kernels.
  Status capture(DeviceWork& work, const Launch& launch);
  // Where hosts meet, in this order, each when the one before has come about on all ranks.
  Status begin_by_host(DeviceWork& work, const Launch& launch, std::uint64_t ticket);
  Result<bool> has_reached(std::uint64_t ticket) const;  // the caller's stream has come there
  void enter_by_host(const DeviceWork& work, std::uint64_t ticket);
  bool all_entered(std::uint64_t ticket) const;
  Status work_by_host(DeviceWork& work, Dtype dtype, std::uint64_t ticket);
  void leave_by_host(std::uint64_t ticket);
  bool all_left(std::uint64_t ticket) const;
  Status finish_by_host(const DeviceWork& work, std::uint64_t ticket);

  // One that went through host memory is over, its results are there.
  void end_on_host(std::uint64_t ticket);

  // ---- waiting
  bool is_launched(std::uint64_t ticket) const {
    return launched_.load(std::memory_order_acquire) >= ticket;
  }
  bool is_done(std::uint64_t ticket) const;
  // Whether the own stream has come to a collective; a peer's.
  bool has_entered(int peer, std::uint64_t ticket) const;
  // Makes a stream wait for a collective. False: nothing may wait for it before it is launched.
  Result<bool> try_wait_on(cuda::StreamHandle stream, std::uint64_t ticket);
  // Makes the group's own stream wait for works that a collective comes after. False: not for all yet.
  Result<bool> follow(Dependencies& works) { return works.put_before(stream_.get()); }
  // What a kernel has found, and in which collective; none: nothing.
  struct Finding {
    cuda::Fault fault = cuda::Fault::none;
    int peer = -1;
    std::uint64_t ticket = 0;
  };
  Finding finding() const;
  // An error of the device's own that came up while its works were under way.
  Status trouble(std::uint64_t ticket) const;

  void abort();
  bool is_aborted() const;  // by whomever
  // After all ranks have settled: as if nothing had been. The way that did not work is not taken again.
  void reset();
  // After abort(): until the own stream is through with what was launched, at most so long.
  void settle(Nanoseconds patience);

 private:
  explicit DeviceSide(DeviceSideOptions options) : options_(std::move(options)) {}
  Status open();
  DeviceBoard* board(int rank) const { return options_.boards[static_cast<std::size_t>(rank)]; }
  static std::uint64_t address_of(const void* word) {
    return reinterpret_cast<std::uintptr_t>(word);
  }

  Status follow(const Launch& launch, cuda::StreamHandle stream);
  Status copy_staged(const DeviceWork& work, bool in, cuda::StreamHandle stream);
  Status meet_by_memops(std::uint64_t ticket, bool entering, cuda::StreamHandle stream);
  Status launch_by_memops(DeviceWork& work, Dtype dtype, std::uint64_t ticket,
                          cuda::StreamHandle stream);
  int waiting_blocks(const DeviceWork& work, const Launch& launch, std::uint64_t ticket);
  Status launch_by_kernel(DeviceWork& work, Dtype dtype, int most, cuda::StreamHandle stream);
  void post(const DeviceWork& work, std::uint64_t ticket);
  Status finish(std::uint64_t ticket, bool done_is_written, cuda::StreamHandle stream);
  int blocks_for(const DeviceWork& work) const;
  static int blocks_for(const DeviceWork& work, std::size_t bytes, int most);
  cuda::EventHandle after(std::uint64_t ticket) const { return after_[ticket % kDeviceRing].get(); }

  DeviceSideOptions options_;
  DeviceMeeting way_ = DeviceMeeting::host;
  cuda::Stream stream_;
  struct Marks {
    std::mutex mutex;
    std::vector<cuda::Event> free;
  };
  std::shared_ptr<Marks> marks_ = std::make_shared<Marks>();
  std::array<cuda::Event, kDeviceRing> after_;     // a collective
  std::shared_ptr<DeviceTimes> times_;             // null: there is no trace
  cuda::Memory private_;                           // epoch, counters and handout of this rank
  static constexpr std::size_t kHandoutAt = 1024;  // in it
  cuda::Memory staging_;
  std::vector<cuda::Memory> captured_;  // staging of what was captured
  std::uint64_t begun_ = 0;
  // The last one that was launched, 0: none; and where.
  std::uint64_t last_launched_ = 0;
  cuda::StreamHandle last_stream_ = nullptr;
  std::atomic<std::uint64_t> launched_{0};
};

}  // namespace tutti::engine
