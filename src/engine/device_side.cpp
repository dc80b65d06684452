#include "engine/device_side.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

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

constexpr std::size_t kHandoutAt = 1024;  // in the private memory, behind epoch and counter

}  // namespace

std::string_view to_string(DeviceMeeting way) noexcept {
  switch (way) {
    case DeviceMeeting::host: return "host";
    case DeviceMeeting::memops: return "memops";
    case DeviceMeeting::kernel: return "kernel";
  }
  return "?";
}

Result<std::shared_ptr<DeviceSide>> DeviceSide::create(DeviceSideOptions options) {
  std::shared_ptr<DeviceSide> side(new DeviceSide(std::move(options)));
  if (Status status = side->open(); !status.ok()) return status;
  return side;
}

Status DeviceSide::open() {
  auto stream = make_stream();
  if (!stream.ok()) return stream.status();
  stream_ = *std::move(stream);
  for (cuda::Event& event : after_) {
    auto made = device().make_event();
    if (!made.ok()) return made.status();
    event = *std::move(made);
  }
  auto memory = device().allocate(kHandoutAt + sizeof(cuda::Handout));
  if (!memory.ok()) return memory.status();
  private_ = *std::move(memory);
  if (Status status = device().fill(private_.address(), 0, private_.bytes(), stream_.get());
      !status.ok())
    return status;
  options_.meeting.epoch = reinterpret_cast<std::uint64_t*>(private_.address());
  options_.meeting.finished = reinterpret_cast<std::uint32_t*>(private_.address() + 128);
  options_.meeting.abort = reinterpret_cast<const std::uint32_t*>(&own().abort);
  return device().synchronize(stream_.get());
}

// Whatever is under way ends by itself, or was aborted; memory goes when nobody waits any more.
DeviceSide::~DeviceSide() {
  for (cuda::Memory* memory : {&private_, &staging_}) context().put_away(std::move(*memory));
  for (cuda::Memory& memory : captured_) context().put_away(std::move(memory));
  context().forget_share(own().done);
  context().put_away(std::move(options_.meeting_owner));
  context().put_away(std::move(options_.board_owner));
}

// ---- what is called

void DeviceSide::publish(std::uint64_t ticket, std::uint64_t sequence, const Launch& launch) {
  DeviceCall& entry = own().call(ticket);
  entry.sequence = sequence;
  entry.call = launch.fingerprint;
  for (std::size_t peer = 0; peer < options_.members.size(); ++peer) {
    entry.to[peer] = launch.to_peer.empty() ? 0 : launch.to_peer[peer];
    entry.from[peer] = launch.from_peer.empty() ? 0 : launch.from_peer[peer];
  }
  // seq_cst: of two that publish and then look, one sees the other.
  entry.ticket.store(ticket, std::memory_order_seq_cst);
}

int DeviceSide::find_difference(std::uint64_t ticket) const {
  const DeviceCall& mine = own().call(ticket);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank() || !has_called(peer, ticket)) continue;
    const DeviceCall& theirs = of(peer).call(ticket);
    if (theirs.sequence != mine.sequence || !agree(mine.for_peer(peer), theirs.for_peer(rank())))
      return peer;
  }
  return -1;
}

std::optional<Fingerprint> DeviceSide::called(int peer, std::uint64_t sequence) const {
  for (const DeviceCall& entry : of(peer).calls) {
    const std::uint64_t ticket = entry.ticket.load(std::memory_order_acquire);
    if (ticket != 0 && entry.sequence == sequence) return entry.call;
  }
  return std::nullopt;
}

// ---- preparing

Result<std::uint64_t> DeviceSide::staging(std::size_t bytes, bool for_good) {
  if (for_good) {
    const cuda::RelaxedCapture relaxed;
    auto memory = device().allocate(bytes);
    if (!memory.ok()) return memory.status();
    captured_.push_back(*std::move(memory));
    return captured_.back().address();
  }
  return bytes <= staging_.bytes() ? staging_.address()
                                   : make_staging(std::max(bytes, 2 * staging_.bytes()));
}

Result<std::uint64_t> DeviceSide::make_staging(std::size_t bytes) {
  auto memory = device().allocate(bytes);
  if (!memory.ok()) return memory.status();
  // What is under way still uses the old one.
  context().put_away(std::exchange(staging_, *std::move(memory)));
  return staging_.address();
}

// All or nothing: an address is put in another's terms once.
Result<bool> DeviceSide::translate(DeviceWork& work, const DeviceReach::View& known) {
  DeviceReach& reach = context().reach();
  std::vector<DeviceReach::View> views;  // mostly one allocation, or two
  // What all peers have seen stays so.
  if (known.can_be_shown && known.sight == DeviceReach::Sight::seen) views.push_back(known);
  const auto view_of = [&](std::uint64_t address) -> DeviceReach::View& {
    for (DeviceReach::View& view : views)
      if (view.holds(address)) return view;
    views.push_back(reach.find(address, options_.members));
    reach.show(views.back(), options_.members, options_.channel);
    return views.back();
  };
  const auto each = [&](const auto& visit) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      cuda::Post& post = work.phase.mine[peer];
      if (post.source != 0) visit(peer, post.source);
      if (post.target != 0) visit(peer, post.target);
    }
  };
  auto sight = DeviceReach::Sight::seen;
  each([&](int, std::uint64_t& address) { sight = std::max(sight, view_of(address).sight); });
  if (sight == DeviceReach::Sight::hidden)
    return Status(Code::io,
                  fmt::format("device memory of rank {} cannot be mapped by another rank", rank()),
                  {rank(), rank(), 0});
  if (sight != DeviceReach::Sight::seen) return false;
  each([&](int peer, std::uint64_t& address) {
    address = view_of(address).at(static_cast<std::size_t>(peer), address);
  });
  return true;
}

// ---- launching

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

// ---- where hosts meet

Status DeviceSide::begin_by_host(DeviceWork& work, const Launch& launch, std::uint64_t ticket) {
  Status status = follow(launch, stream_.get());
  if (times_) times_->begin(ticket, stream_.get());
  if (status.ok()) status = copy_staged(work, true, stream_.get());
  return status.ok() ? device().record(after(ticket), stream_.get()) : status;
}

Result<bool> DeviceSide::has_reached(std::uint64_t ticket) const {
  return device().has_happened(after(ticket));
}

void DeviceSide::enter_by_host(const DeviceWork& work, std::uint64_t ticket) {
  post(work, ticket);
  own().entered.store(ticket, std::memory_order_seq_cst);
}

bool DeviceSide::all_entered(std::uint64_t ticket) const {
  for (int peer = 0; peer < size(); ++peer)
    if (of(peer).entered.load(std::memory_order_acquire) < ticket) return false;
  return true;
}

// All addresses are known by now, and all calls were compared.
Status DeviceSide::work_by_host(DeviceWork& work, Dtype dtype, std::uint64_t ticket) {
  cuda::Phase& phase = work.phase;
  const cuda::Post* posts = own().posts[ticket % kDeviceRing];
  const auto resolve = [&](cuda::Place& place, bool target) {
    if (place.peer < 0) return;
    place.at += target ? posts[place.peer].target : posts[place.peer].source;
    place.peer = -1;
  };
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank() && posts[peer].tag != phase.tags[peer])
      return {Code::mismatch, "another call", {rank(), peer, 0}};
  for (int c = 0; c < phase.copy_count; ++c) resolve(phase.copies[c].from, false);
  for (int o = 0; o < phase.fold.operand_count; ++o) resolve(phase.fold.operands[o], false);
  for (int t = 0; t < phase.fold.target_count; ++t) resolve(phase.fold.targets[t], true);
  phase.enter = cuda::Enter::resolved;
  phase.leave = cuda::Leave::by_stream;
  Status status = device().launch(phase, dtype, blocks_for(work), stream_.get());
  return status.ok() ? device().record(after(ticket), stream_.get()) : status;
}

void DeviceSide::leave_by_host(std::uint64_t ticket) {
  own().left.store(ticket, std::memory_order_seq_cst);
}

bool DeviceSide::all_left(std::uint64_t ticket) const {
  for (int peer = 0; peer < size(); ++peer)
    if (of(peer).left.load(std::memory_order_acquire) < ticket) return false;
  return true;
}

Status DeviceSide::finish_by_host(const DeviceWork& work, std::uint64_t ticket) {
  if (Status status = copy_staged(work, false, stream_.get()); !status.ok()) return status;
  return finish(ticket, false, stream_.get());
}

void DeviceSide::end_on_host(std::uint64_t ticket) {
  own().done.store(ticket, std::memory_order_seq_cst);
  launched_.store(ticket, std::memory_order_release);
}

// ---- waiting

bool DeviceSide::is_done(std::uint64_t ticket) const {
  if (own().done.load(std::memory_order_acquire) >= ticket) return true;
  if (device().facts().memory_operations || !is_launched(ticket)) return false;
  const auto happened = device().has_happened(after(ticket));
  if (happened.ok() && *happened) own().done.store(ticket, std::memory_order_release);
  return own().done.load(std::memory_order_acquire) >= ticket;
}

bool DeviceSide::has_entered(int peer, std::uint64_t ticket) const {
  return of(peer).entered.load(std::memory_order_acquire) >= ticket;
}

Result<bool> DeviceSide::try_wait_on(cuda::StreamHandle stream, std::uint64_t ticket) {
  if (is_done(ticket)) return true;
  Status status;
  if (is_launched(ticket)) {
    status = device().wait(stream, after(ticket));
  } else if (context().may_gate()) {
    const cuda::MemoryOperation gate{cuda::MemoryOperation::Kind::wait, address_of(&own().done),
                                     ticket};
    status = device().operate({&gate, 1}, stream);
  } else {
    return false;
  }
  return status.ok() ? Result<bool>(true) : status;
}

DeviceSide::Finding DeviceSide::finding() const {
  const std::uint64_t word = own().fault.load(std::memory_order_acquire);
  return {cuda::fault_of(word), cuda::peer_of(word), cuda::ticket_of(word)};
}

Status DeviceSide::trouble(std::uint64_t ticket) const {
  const auto happened = device().has_happened(after(ticket));
  return happened.status();
}

// First the word that stops whoever works, then the words that let go whoever waits: in this order
// they are seen.
void DeviceSide::abort() {
  const auto each = [&](const auto& visit) {
    for (DeviceBoard* board : options_.boards)
      if (board != nullptr) visit(*board);
  };
  each([](DeviceBoard& board) { board.abort.store(1, std::memory_order_seq_cst); });
  each([](DeviceBoard& board) {
    board.entered.store(cuda::kPoison, std::memory_order_seq_cst);
    board.left.store(cuda::kPoison, std::memory_order_seq_cst);
  });
  own().done.store(cuda::kPoison, std::memory_order_seq_cst);
}

void DeviceSide::reset() {
  if (way_ == DeviceMeeting::kernel) options_.meeting.entered = nullptr;
  for (auto* word : {&own().entered, &own().left, &own().done}) word->store(begun_);
  own().fault.store(0);
  own().abort.store(0);
  launched_.store(begun_);
}

bool DeviceSide::is_aborted() const { return own().abort.load(std::memory_order_acquire) != 0; }

// What was launched still writes the words that were let go: they are let go again until the stream is
// through.
void DeviceSide::settle(Nanoseconds patience) {
  const Nanoseconds last = steady_clock().now() + patience;
  const std::uint64_t ticket = launched_.load(std::memory_order_acquire);
  while (ticket != 0) {
    const auto happened = device().has_happened(after(ticket));
    if (!happened.ok() || *happened || steady_clock().now() >= last) return;
    abort();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace tutti::engine
