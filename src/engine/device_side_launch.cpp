// A collective whose ranks meet on the device: from the caller's stream to the end, in one go.
#include <algorithm>
#include <utility>

#include "engine/device_side.hpp"

namespace tutti::engine {
namespace {

// What one block goes through before another one is worth its while, where ranks meet inside the kernel
// and latency counts; and the most blocks that wait there, so that those of all ranks and of several
// groups fit the GPU together (132 SMs of 2048 threads take 528 blocks: 16 ranks, 4 groups).
constexpr std::size_t kFusedBlockBytes = 8 * 1024;
constexpr int kFusedBlocks = 8;
// Up to here it pays to meet, work and leave in one kernel whose blocks are so few.
constexpr std::size_t kFusedBytes = 256 * 1024;
// The same for each block where a rank's whole share of the GPU may wait: a block for each multiprocessor, all
// ranks' together. They fold nearly as fast as many do (H200, 4 and 8 ranks: 2 % slower), and half of the GPU stays
// free for others that wait; from here on those 2 % are more than the kernel that would meet before.
constexpr std::size_t kShareBlockBytes = (2 << 20) - 1;
// Blocks of a kernel that waits for nobody, for each multiprocessor: 4 reach 95 % of what copies reach
// (H200, 2026-11-17: docs/gpu.md).
constexpr int kBlocksPerMultiprocessor = 4;

}  // namespace

// At the call, not at the launch: by then the caller's stream may wait for this very collective.
Result<std::shared_ptr<cuda::Event>> DeviceSide::mark(cuda::StreamHandle stream) {
  cuda::Event event;
  {
    std::scoped_lock lock(marks_->mutex);
    if (!marks_->free.empty()) {
      event = std::move(marks_->free.back());
      marks_->free.pop_back();
    }
  }
  if (event.get() == nullptr) {
    auto made = device().make_event();
    if (!made.ok()) return made.status();
    event = *std::move(made);
  }
  if (Status status = device().record(event.get(), stream); !status.ok()) return status;
  return std::shared_ptr<cuda::Event>(new cuda::Event(std::move(event)),
                                      [marks = marks_](cuda::Event* back) {
                                        std::scoped_lock lock(marks->mutex);
                                        marks->free.push_back(std::move(*back));
                                        delete back;
                                      });
}

bool DeviceSide::may_run_in_stream(const Launch& launch) const {
  return way_ != DeviceMeeting::host && reaches_all() && options_.urgency == Urgency::normal &&
         !launch.after;
}

// The stream goes on behind the caller's, and behind what the group has in another one: collectives run one
// after the other. (Of two streams with one handle the first may be gone, and still have work.)
Status DeviceSide::follow(const Launch& launch, cuda::StreamHandle stream) {
  Status status;
  if (launch.before) status = device().wait(stream, launch.before->get());
  const bool same = last_stream_ == stream_.get() && stream == stream_.get();
  if (status.ok() && last_launched_ != 0 && !same && !is_done(last_launched_))
    status = device().wait(stream, after(last_launched_));
  for (cuda::EventHandle ready : launch.ready)
    if (status.ok()) status = device().wait(stream, ready);
  return status;
}

Status DeviceSide::copy_staged(const DeviceWork& work, bool in, cuda::StreamHandle stream) {
  for (const StagedChunk& chunk : in ? work.in : work.out)
    for (std::size_t done = 0; done < chunk.pieces.bytes();) {
      const Piece piece = chunk.pieces.at(done);
      const std::uint64_t there = work.staging_base + chunk.at + done;
      const std::uint64_t here = address_of(piece.data);
      if (Status status = device().copy(in ? there : here, in ? here : there, piece.bytes, stream);
          !status.ok())
        return status;
      done += piece.bytes;
    }
  return {};
}

int DeviceSide::blocks_for(const DeviceWork& work) const {
  return blocks_for(work, cuda::kTileBytes,
                    kBlocksPerMultiprocessor * device().facts().multiprocessors);
}
int DeviceSide::blocks_for(const DeviceWork& work, std::size_t bytes, int most) {
  return static_cast<int>(std::clamp<std::size_t>((work.work_bytes + bytes - 1) / bytes, 1,
                                                  static_cast<std::size_t>(most)));
}

// What waits takes room from those who compute. A caller that blocks has nothing to compute meanwhile: for its
// call a rank may have its share of the GPU wait, once at a time, where it is known who else is there.
int DeviceSide::waiting_blocks(const DeviceWork& work, const Launch& launch, std::uint64_t ticket) {
  if (!launch.in_stream || options_.ranks_on_gpu == 0) return kFusedBlocks;
  const int share = device().facts().multiprocessors / options_.ranks_on_gpu;
  const bool is_worth_it =
      share > kFusedBlocks && work.work_bytes <= kShareBlockBytes * static_cast<std::size_t>(share);
  return is_worth_it && context().take_share(own().done, ticket) ? share : kFusedBlocks;
}

Status DeviceSide::launch(DeviceWork& work, const Launch& launch, std::uint64_t ticket) {
  const cuda::StreamHandle stream = launch.in_stream ? launch.stream : stream_.get();
  Status status = follow(launch, stream);
  if (times_) times_->begin(ticket, stream);
  if (status.ok()) status = copy_staged(work, true, stream);
  if (!status.ok()) return status;
  cuda::Phase& phase = work.phase;
  phase.ticket = ticket;
  phase.fault = reinterpret_cast<std::uint64_t*>(&own().fault);
  const bool written = way_ == DeviceMeeting::kernel && work.out.empty();
  phase.done = written ? reinterpret_cast<std::uint64_t*>(&own().done) : nullptr;
  phase.begun = reinterpret_cast<std::uint64_t*>(&own().entered);
  status = way_ == DeviceMeeting::kernel
               ? launch_by_kernel(work, launch.dtype, waiting_blocks(work, launch, ticket), stream)
               : launch_by_memops(work, launch.dtype, ticket, stream);
  if (status.ok()) status = copy_staged(work, false, stream);
  return status.ok() ? finish(ticket, written, stream) : status;
}

// `most`: blocks that may wait.
Status DeviceSide::launch_by_kernel(DeviceWork& work, Dtype dtype, int most,
                                    cuda::StreamHandle stream) {
  cuda::Phase& phase = work.phase;
  phase.meeting = options_.meeting;
  phase.leave = cuda::Leave::meet;
  const bool fused = work.work_bytes <= kFusedBytes || most > kFusedBlocks;
  phase.enter = fused ? cuda::Enter::meet : cuda::Enter::met;
  // Only one small block waits for the others; those that work come when there is work to do.
  if (!fused)
    if (Status status = device().launch_meet(phase, stream); !status.ok()) return status;
  const int blocks = fused ? blocks_for(work, kFusedBlockBytes, most) : blocks_for(work);
  return device().launch(phase, dtype, blocks, stream);
}

Status DeviceSide::launch_by_memops(DeviceWork& work, Dtype dtype, std::uint64_t ticket,
                                    cuda::StreamHandle stream) {
  post(work, ticket);
  cuda::Phase& phase = work.phase;
  phase.enter = cuda::Enter::posted;
  phase.leave = cuda::Leave::by_stream;
  phase.posts = own().posts[ticket % kDeviceRing];
  phase.handout = reinterpret_cast<cuda::Handout*>(private_.address() + kHandoutAt);
  phase.meeting.abort = options_.meeting.abort;
  Status status = meet_by_memops(ticket, true, stream);
  if (status.ok()) status = device().launch(phase, dtype, blocks_for(work), stream);
  return status.ok() ? meet_by_memops(ticket, false, stream) : status;
}

void DeviceSide::post(const DeviceWork& work, std::uint64_t ticket) {
  for (int peer = 0; peer < size(); ++peer)
    board(peer)->posts[ticket % kDeviceRing][rank()] = work.phase.mine[peer];
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

Status DeviceSide::meet_by_memops(std::uint64_t ticket, bool entering, cuda::StreamHandle stream) {
  std::array<cuda::MemoryOperation, cuda::kMostRanks> operations;
  std::size_t count = 0;
  const auto word = [&](int peer) {
    return address_of(entering ? &board(peer)->entered : &board(peer)->left);
  };
  operations[count++] = {cuda::MemoryOperation::Kind::write, word(rank()), ticket};
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank())
      operations[count++] = {cuda::MemoryOperation::Kind::wait, word(peer), ticket};
  return device().operate(std::span(operations.data(), count), stream);
}

Status DeviceSide::finish(std::uint64_t ticket, bool done_is_written, cuda::StreamHandle stream) {
  if (times_) times_->end(ticket, stream);
  if (!done_is_written && device().facts().memory_operations) {
    const cuda::MemoryOperation done{cuda::MemoryOperation::Kind::write, address_of(&own().done),
                                     ticket};
    if (Status status = device().operate({&done, 1}, stream); !status.ok()) return status;
  }
  if (Status status = device().record(after(ticket), stream); !status.ok()) return status;
  last_launched_ = ticket;
  last_stream_ = stream;
  launched_.store(ticket, std::memory_order_release);
  return {};
}

Status DeviceSide::capture(DeviceWork& work, const Launch& launch) {
  work.phase.ticket = 0;
  work.phase.fault = reinterpret_cast<std::uint64_t*>(&own().fault);
  Status status = copy_staged(work, true, launch.stream);
  if (status.ok()) status = launch_by_kernel(work, launch.dtype, kFusedBlocks, launch.stream);
  return status.ok() ? copy_staged(work, false, launch.stream) : status;
}

}  // namespace tutti::engine
