// A group's first device buffer.
#include "group/device_setup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/clock.hpp"
#include "group/gather_all.hpp"
#include "group/rank_group.hpp"

namespace tutti::group {

using engine::DeviceBoard;
using engine::DeviceContext;
using engine::DeviceMeeting;
using engine::DeviceSide;
using namespace std::chrono_literals;

namespace {

// A way that takes longer than this for a round does not work: a slice of the GPU's time is 2 ms.
constexpr Nanoseconds kTryFor = 2s;
constexpr int kRounds = 6;  // of which the first two do not count
constexpr int kWarmUp = 2;
// Device memory of a group for buffers that are new: one of DDP's buckets has room in it.
constexpr std::size_t kStagingBytes = 32 << 20;
constexpr std::size_t kShareForStaging = 512;

DeviceMeeting kWays[] = {DeviceMeeting::kernel, DeviceMeeting::memops, DeviceMeeting::host};

// A collective with nothing to do.
engine::DeviceWork nothing_for(const DeviceSide& side) {
  engine::DeviceWork work;
  work.phase = {};
  work.phase.ranks = side.size();
  work.phase.rank = side.rank();
  return work;
}

bool wait_for(const std::function<bool()>& over) {
  const Nanoseconds last = steady_clock().now() + kTryFor;
  while (!over()) {
    if (steady_clock().now() >= last) return false;
    std::this_thread::yield();  // there may be more ranks than cores
  }
  return true;
}

// By hosts: in this thread.
bool meet_by_host(DeviceSide& side, std::uint64_t ticket) {
  engine::DeviceWork work = nothing_for(side);
  const auto reached = [&] {
    const auto there = side.has_reached(ticket);
    return !there.ok() || *there;
  };
  if (!side.begin_by_host(work, {}, ticket).ok() || !wait_for(reached)) return false;
  side.enter_by_host(work, ticket);
  if (!wait_for([&] { return side.all_entered(ticket); })) return false;
  if (!side.work_by_host(work, Dtype::u8, ticket).ok() || !wait_for(reached)) return false;
  side.leave_by_host(ticket);
  return wait_for([&] { return side.all_left(ticket); }) &&
         side.finish_by_host(work, ticket).ok() && wait_for([&] { return side.is_done(ticket); });
}

bool meet_on_device(DeviceSide& side, std::uint64_t ticket) {
  engine::DeviceWork work = nothing_for(side);
  return side.launch(work, {}, ticket).ok() && wait_for([&] { return side.is_done(ticket); });
}

}  // namespace

DeviceCard DeviceCard::of(const Result<std::shared_ptr<cuda::Device>>& device,
                          const Config& config) {
  DeviceCard card;
  card.is_usable = device.ok();
  card.may_reach = config.cuda_reach != "staged";
  card.must_reach = config.cuda_reach == "ipc";
  card.push_from = config.cuda_push;
  for (const DeviceMeeting way : kWays)
    if (config.cuda_meet == to_string(way)) card.forced = static_cast<std::uint8_t>(way) + 1;
  if (!device.ok()) {
    device.status().message().copy(card.trouble, sizeof card.trouble - 1);
    return card;
  }
  const cuda::DeviceFacts& facts = (*device)->facts();
  card.memory_operations = facts.memory_operations;
  card.ordinal = facts.ordinal;
  card.uuid = facts.uuid;
  return card;
}

std::optional<Nanoseconds> try_meeting(DeviceSide& side, DeviceMeeting way) {
  side.use(way);
  const auto flight = side.context().begin_flight();
  Nanoseconds best = Nanoseconds::max();
  bool works = true;
  // All ranks count all rounds, whatever becomes of them: tickets are the same everywhere.
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t ticket = side.next_ticket();
    if (!works) continue;
    const Nanoseconds began = steady_clock().now();
    works = way == DeviceMeeting::host ? meet_by_host(side, ticket) : meet_on_device(side, ticket);
    if (round >= kWarmUp) best = std::min(best, steady_clock().now() - began);
  }
  return works ? std::optional(best) : std::nullopt;
}

// ---- the group's part

namespace {

// Where ranks meet inside kernels: flags and posts of all of them, in memory of the first one's GPU.
struct ControlBlock {
  std::uint64_t entered[cuda::kMostRanks * cuda::kFlagStride];
  std::uint64_t left[cuda::kMostRanks * cuda::kFlagStride];
  cuda::Post posts[cuda::kMostRanks * cuda::kMostRanks];
};

struct ControlCard {
  std::uint8_t is_there = 0;
  std::uint64_t address = 0;
  cuda::IpcHandle handle{};
};

Result<cuda::Memory> zeroed_memory(cuda::Device& device, std::size_t bytes) {
  auto memory = device.allocate(bytes);
  if (!memory.ok()) return memory;
  auto stream = device.make_stream();
  if (!stream.ok()) return stream.status();
  Status status = device.fill(memory->address(), 0, bytes, stream->get());
  if (status.ok()) status = device.synchronize(stream->get());
  return status.ok() ? std::move(memory) : status;
}

ControlCard make_control(cuda::Device& device, std::shared_ptr<void>& owner) {
  ControlCard card;
  auto memory = zeroed_memory(device, sizeof(ControlBlock));
  if (!memory.ok()) return card;
  const auto allocation = device.allocation_of(memory->address());
  const auto handle = allocation.ok() ? device.export_allocation(*allocation)
                                      : Result<cuda::IpcHandle>(allocation.status());
  // Ranks of this process need no handle.
  card.is_there = 1;
  card.address = memory->address();
  if (handle.ok()) card.handle = *handle;
  owner = std::make_shared<cuda::Memory>(*std::move(memory));
  return card;
}

}  // namespace

Status RankGroup::prepare_device(int ordinal, std::chrono::nanoseconds patience) {
  if (const auto& side = channel_->device()) {
    const int used = side->device().facts().ordinal;
    if (ordinal < 0 || ordinal == used) return {};
    return {
        Code::invalid_argument,
        fmt::format("a buffer is on cuda:{}, but this rank's groups work on cuda:{}; a rank uses "
                    "one GPU",
                    ordinal, used)};
  }
  // Who does not come at all is missed as soon as in the operation itself; the rest takes as long as it takes.
  const CallOptions call = internal_call(setting_.config->join_timeout);
  const CallOptions first =
      internal_call(patience.count() > 0 ? patience : setting_.config->timeout);
  Result<std::shared_ptr<DeviceContext>> context = open_device(ordinal);
  const Result<std::shared_ptr<cuda::Device>> device =
      context.ok() ? Result((*context)->shared_device()) : context.status();
  DeviceCard own = DeviceCard::of(device, *setting_.config);
  own.is_beside_all = static_cast<int>(mapped_members().size()) == size() - 1;
  own.streams_are_apart = context.ok() && (*context)->streams_are_apart();
  auto cards = gather_all(*this, own, first);
  if (!cards.ok()) return cards.status();
  if (Status status = check_cards(*cards); !status.ok()) return status;
  bool near = size() <= cuda::kMostRanks;
  for (const DeviceCard& card : *cards) near = near && card.is_beside_all && card.may_reach;
  engine::DeviceSideOptions options;
  options.context = *context;
  options.push_from = cards->front().push_from;
  options.streams_are_apart = std::all_of(cards->begin(), cards->end(), [](const DeviceCard& card) {
    return card.streams_are_apart != 0;
  });
  if (near && size() == world_->engine().endpoint().size())
    options.ranks_on_gpu =
        static_cast<int>(std::count_if(cards->begin(), cards->end(), [&](const DeviceCard& card) {
          return card.uuid == own.uuid;
        }));
  auto side = make_device_side(std::move(options), near, call);
  if (!side.ok()) return side.status();
  if (size() == 1)
    (*side)->use(own.memory_operations ? DeviceMeeting::memops : DeviceMeeting::host);
  if ((*side)->reaches_all() && size() > 1)
    if (Status status = choose_meeting(**side, *cards, call); !status.ok()) return status;
  setting_.device_reaches_all = (*side)->reaches_all();
  channel_->use_device(*std::move(side));
  return share_staging(*channel_->device(), call);
}

// What was measured in a group holds for a part of it.
Status RankGroup::inherit_device(const RankGroup& parent) {
  const auto& theirs = parent.channel_->device();
  if (!theirs) return {};
  const CallOptions call = internal_call(setting_.config->join_timeout);
  engine::DeviceSideOptions options;
  options.context = world_->engine().device_context();
  options.streams_are_apart = theirs->streams_are_apart();
  options.push_from = theirs->push_from();
  if (size() == parent.size()) options.ranks_on_gpu = theirs->ranks_on_gpu();
  auto side = make_device_side(std::move(options), theirs->reaches_all(), call);
  if (!side.ok()) return side.status();
  if ((*side)->reaches_all()) {
    const bool by_kernel = theirs->way() == DeviceMeeting::kernel;
    if (!(*side)->streams_are_apart())
      (*side)->use(DeviceMeeting::host);
    else
      (*side)->use(by_kernel && size() == 1 ? DeviceMeeting::memops : theirs->way());
  }
  setting_.device_reaches_all = (*side)->reaches_all();
  channel_->use_device(*std::move(side));
  return share_staging(*channel_->device(), call);
}

Result<std::shared_ptr<DeviceContext>> RankGroup::open_device(int ordinal) {
  engine::Engine& engine = world_->engine();
  if (auto context = engine.device_context()) {
    const int used = context->device().facts().ordinal;
    if (ordinal < 0 || ordinal == used) return context;
    return Status(Code::invalid_argument,
                  fmt::format("a buffer is on cuda:{}, but this rank's groups work on cuda:{}",
                              ordinal, used));
  }
  auto device = cuda::Device::open(ordinal < 0 ? cuda::current_device() : ordinal);
  if (!device.ok()) return device.status();
  auto context = DeviceContext::create(*device, engine.endpoint());
  if (!context.ok()) return context;
  for (int peer = 0; peer < engine.endpoint().size(); ++peer)
    if (const transport::Link* link = engine.endpoint().link(peer))
      (*context)->reach().introduce(peer, link->shares_memory() && link->process() == 0);
    else
      (*context)->reach().introduce(peer, true);
  engine.set_device_context(*context);
  return context;
}

Status RankGroup::check_cards(const std::vector<DeviceCard>& cards) const {
  for (int rank = 0; rank < size(); ++rank) {
    const DeviceCard& card = cards[static_cast<std::size_t>(rank)];
    if (!card.is_usable)
      return {
          Code::unsupported,
          fmt::format("{} cannot use its GPU: {}", where(rank),
                      std::string_view(card.trouble, ::strnlen(card.trouble, sizeof card.trouble))),
          {this->rank(), rank, 0}};
    if (card.forced != cards[0].forced)
      return {Code::invalid_argument,
              fmt::format("TUTTI_CUDA_MEET differs between {} and {}", where(0), where(rank)),
              {this->rank(), rank, 0}};
    if (card.must_reach && (!card.is_beside_all || size() > cuda::kMostRanks))
      return {
          Code::unsupported,
          fmt::format("TUTTI_CUDA_REACH=ipc, but {} does not share a host with all ranks of group "
                      "'{}', or they are more than {}",
                      where(rank), name(), cuda::kMostRanks),
          {this->rank(), rank, 0}};
  }
  return {};
}

// Boards for all ranks of one host, or one for this rank alone. `near`: the former may be tried.
Result<std::shared_ptr<DeviceSide>> RankGroup::make_device_side(engine::DeviceSideOptions options,
                                                                bool near,
                                                                const CallOptions& call) {
  options.channel = channel_->options().id;
  options.rank = rank();
  options.urgency = urgency();
  options.members = channel_->options().members;
  options.boards.resize(static_cast<std::size_t>(size()));
  if (near) {
    if (Status status = share_boards(options, call); !status.ok()) return status;
    if (Status status = share_control(options, call); !status.ok()) return status;
  }
  if (!options.reaches_all)
    if (Status status = make_own_board(options); !status.ok()) return status;
  auto side = DeviceSide::create(std::move(options));
  auto made = all_say_yes(*this, side.ok(), call);
  if (!made.ok()) return made.status();
  if (*made) return side;
  return side.ok() ? Status(Code::io, "another rank could not prepare its GPU") : side.status();
}

Status RankGroup::make_own_board(engine::DeviceSideOptions& options) {
  auto memory = options.context->device().allocate_pinned(sizeof(DeviceBoard));
  if (!memory.ok()) return memory.status();
  auto owner = std::make_shared<cuda::Memory>(*std::move(memory));
  std::fill(options.boards.begin(), options.boards.end(), nullptr);
  options.boards[static_cast<std::size_t>(rank())] = new (owner->data()) DeviceBoard{};
  options.board_owner = owner;
  return {};
}

// All have it, or nobody: `reaches_all` says which. A failure is one of the group.
Status RankGroup::share_boards(engine::DeviceSideOptions& options, const CallOptions& call) {
  auto shared = share_memory(sizeof(DeviceBoard), call);
  if (!shared.ok() && shared.status().code() != Code::out_of_memory) return shared.status();
  if (!shared.ok()) return {};
  cuda::Device& device = options.context->device();
  auto* own = static_cast<DeviceBoard*>(shared->memory.data);
  own->magic = engine::kDeviceBoardMagic;
  bool registered = true;
  for (int peer = 0; peer < size(); ++peer) {
    std::byte* board = reinterpret_cast<std::byte*>(own);
    if (peer != rank()) board = channel_->link_to(peer).reach({shared->id, 0}, sizeof(DeviceBoard));
    registered =
        registered && board != nullptr && device.register_host(board, sizeof(DeviceBoard)).ok();
    options.boards[static_cast<std::size_t>(peer)] = reinterpret_cast<DeviceBoard*>(board);
  }
  // Given back in this order: the device's hold on them, then the memory itself.
  options.board_owner =
      std::shared_ptr<void>(own, [device = options.context->shared_device(),
                                  boards = options.boards, memory = shared->memory.owner](void*) {
        for (DeviceBoard* board : boards)
          if (board != nullptr) device->unregister_host(board);
      });
  auto agreed = all_say_yes(*this, registered, call);
  if (!agreed.ok()) return agreed.status();
  options.reaches_all = *agreed;
  return {};
}

Status RankGroup::share_control(engine::DeviceSideOptions& options, const CallOptions& call) {
  if (!options.reaches_all || size() == 1) return {};
  cuda::Device& device = options.context->device();
  ControlCard own;
  std::shared_ptr<void> owner;
  if (rank() == 0) own = make_control(device, owner);
  auto cards = gather_all(*this, own, call);
  if (!cards.ok()) return cards.status();
  const ControlCard& control = (*cards)[0];
  std::uint64_t address = control.is_there ? control.address : 0;
  const transport::Link* link = rank() == 0 ? nullptr : &channel_->link_to(0);
  if (address != 0 && link != nullptr && link->process() != 0) {
    const auto imported = device.import_allocation(control.handle);
    address = imported.ok() ? *imported : 0;
    if (address != 0)
      owner = std::shared_ptr<void>(reinterpret_cast<void*>(address),
                                    [device = options.context->shared_device()](void* base) {
                                      device->close_import(reinterpret_cast<std::uintptr_t>(base));
                                    });
  }
  auto agreed = all_say_yes(*this, address != 0, call);
  if (!agreed.ok()) return agreed.status();
  options.reaches_all = *agreed;
  options.meeting_owner = std::move(owner);
  auto* block = reinterpret_cast<ControlBlock*>(address);
  options.meeting.entered = block->entered;
  options.meeting.left = block->left;
  options.meeting.posts = block->posts;
  return {};
}

namespace {

// `found`: a quicker way works.
bool can_meet(DeviceMeeting way, const DeviceSide& side, const std::vector<DeviceCard>& cards,
              bool found) {
  if (way == DeviceMeeting::host) return !found;
  if (!side.streams_are_apart()) return false;
  if (way == DeviceMeeting::kernel) return side.can_meet_in_kernels();
  return std::all_of(cards.begin(), cards.end(),
                     [](const DeviceCard& card) { return card.memory_operations != 0; });
}

}  // namespace

// The quickest that works on all ranks, by the slowest of them; or the one that was demanded.
Status RankGroup::choose_meeting(DeviceSide& side, const std::vector<DeviceCard>& cards,
                                 const CallOptions& call) {
  std::optional<DeviceMeeting> best;
  std::int64_t best_time = 0;
  std::string tried;
  for (const DeviceMeeting way : kWays) {
    const bool can = can_meet(way, side, cards, best.has_value());
    const bool wanted = cards[0].forced == 0 || cards[0].forced == 1 + static_cast<int>(way);
    if (!can || !wanted) continue;
    auto time = agree_on_time(side, way, call);
    if (!time.ok()) return time.status();
    tried += *time < 0
                 ? fmt::format(" {}: does not work,", to_string(way))
                 : fmt::format(" {} {:.1f} µs,", to_string(way), 1e-3 * static_cast<double>(*time));
    if (*time >= 0 && (!best || *time < best_time)) best = way, best_time = *time;
  }
  if (!best)
    return {Code::unsupported,
            fmt::format(
                "ranks of group '{}' cannot meet on their GPUs as TUTTI_CUDA_MEET={} demands:{}{}",
                name(), setting_.config->cuda_meet, tried,
                side.streams_are_apart() ? ""
                                         : " streams of a process hold each other up; "
                                           "CUDA_DEVICE_MAX_CONNECTIONS=8 sets them apart")};
  side.use(*best);
  tried.pop_back();
  if (rank() == 0)
    world_->engine().log().info(Subsystem::init, "group '{}' on {}: ranks meet by {} ({})", name(),
                                side.device().facts().name, to_string(*best), tried.substr(1));
  return {};
}

// Nanoseconds of the slowest rank; -1: it does not work on all of them.
Result<std::int64_t> RankGroup::agree_on_time(DeviceSide& side, DeviceMeeting way,
                                              const CallOptions& call) {
  if (Status status = barrier(call); !status.ok()) return status;
  const auto time = try_meeting(side, way);
  auto times = gather_all(*this, time ? time->count() : std::int64_t{-1}, call);
  if (!times.ok()) return times.status();
  if (std::find(times->begin(), times->end(), -1) == times->end())
    return *std::max_element(times->begin(), times->end());
  // Whoever still waits is let go, everywhere, before the next is tried.
  side.abort();
  side.settle(kTryFor);
  if (Status status = barrier(call); !status.ok()) return status;
  side.reset();
  if (Status status = barrier(call); !status.ok()) return status;
  return std::int64_t{-1};
}

// ---- symmetric memory

Result<SymmetricMemory> RankGroup::allocate_on_device(std::size_t bytes) {
  if (Status status = check_process(); !status.ok()) return status;
  const CallOptions call = internal_call(setting_.config->timeout);
  if (Status status = prepare_device(-1, {}); !status.ok()) return status.annotate("allocate");
  if (Status status = check_same_size(bytes, call); !status.ok()) return status;
  if (bytes == 0) return SymmetricMemory{};
  const std::shared_ptr<DeviceSide> side = channel_->device();
  auto memory = zeroed_memory(side->device(), bytes);
  auto made = all_say_yes(*this, memory.ok(), call);
  if (!made.ok()) return made.status();
  if (!*made)
    return memory.ok() ? Status(Code::out_of_memory,
                                fmt::format("allocate: a rank has no {} bytes on its GPU", bytes))
                       : memory.status();
  const auto address = memory->address();
  auto held = std::make_shared<cuda::Memory>(*std::move(memory));
  SymmetricMemory symmetric;
  symmetric.data = reinterpret_cast<void*>(address);
  symmetric.bytes = bytes;
  // Peers close it when they can; then, when nothing waits on this device, it is freed.
  const std::shared_ptr<DeviceContext> context = world_->engine().device_context();
  symmetric.owner = std::shared_ptr<void>(
      symmetric.data, [context, held](void*) { context->put_away(std::move(*held)); });
  if (Status status = show_to_all(*side, address, call); !status.ok()) return status;
  return symmetric;
}

std::string RankGroup::describe() const {
  const auto& side = channel_->device();
  if (!side) return world_->describe();
  const cuda::DeviceFacts& facts = side->device().facts();
  const std::string how = side->reaches_all()
                              ? fmt::format("ranks meet by {}", to_string(side->way()))
                              : "through host memory";
  return fmt::format("{}\n  device memory: cuda:{} ({}{}), {}", world_->describe(), facts.ordinal,
                     facts.name, facts.under_mps ? ", under MPS" : "", how);
}

void RankGroup::forget(const void* allocation) {
  if (world_->is_foreign()) return;
  if (const std::shared_ptr<DeviceContext> context = world_->engine().device_context())
    context->reach().forget(reinterpret_cast<std::uintptr_t>(allocation), 100ms);
}

// Memory for what is used for the first time, that all have mapped from the start. A rank that has none
// waits at such uses instead.
Status RankGroup::share_staging(DeviceSide& side, const CallOptions& call) {
  if (!side.reaches_all() || size() == 1) return {};
  const std::size_t bytes =
      std::min(kStagingBytes, side.device().facts().memory_bytes / kShareForStaging);
  auto address = side.make_staging(bytes);
  auto made = all_say_yes(*this, address.ok(), call);
  if (!made.ok()) return made.status();
  return *made ? show_to_all(side, *address, call) : Status();
}

// So that nobody has to wait at its first use.
Status RankGroup::show_to_all(DeviceSide& side, std::uint64_t address, const CallOptions& call) {
  bool seen = true;
  if (side.reaches_all() && size() > 1) {
    engine::DeviceReach& reach = side.context().reach();
    auto view = reach.find(address, side.members());
    const auto is_over = [&] {
      reach.show(view, side.members(), channel_->options().id);
      return view.sight != engine::DeviceReach::Sight::coming || !channel_->health().ok();
    };
    world_->engine().drive(*channel_, is_over, call.timeout);
    seen = view.sight == engine::DeviceReach::Sight::seen;
  }
  const auto agreed = all_say_yes(*this, seen, call);
  if (!agreed.ok() || *agreed) return agreed.status();
  // It goes through memory that they have mapped, as any other that they cannot map.
  const Status why = side.context().reach().trouble();
  world_->engine().log().warn(Subsystem::init,
                              "group '{}': not all ranks could map each other's device memory{}{}",
                              name(), why.ok() ? "" : ": ", why.ok() ? "" : why.message());
  return {};
}

}  // namespace tutti::group
