// The memory in which ranks of one host meet: made, shared and tried before it is used.
#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "engine/host_memory.hpp"
#include "group/gather_all.hpp"
#include "group/rank_group.hpp"
#include "transport/window.hpp"

namespace tutti::group {
namespace {

using engine::HostMemory;
using engine::RankMemory;

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

void prepare(RankMemory& memory) {
  std::random_device random;
  memory.magic = engine::kHostMemoryMagic;
  memory.token = std::uint64_t{random()} << 32 | random();
  memory.address = reinterpret_cast<std::uintptr_t>(&memory);
}

// What a rank says of its place among the others.
struct Seating {
  bool beside = false;    // it shares memory with all of them
  bool has_heap = false;  // its process has a shared heap
};

// The process that its peer names may be another one here (process namespaces differ), or closed to
// us: only its token tells.
bool can_read(const HostMemory::Member& member) {
  if (member.link == nullptr) return true;
  if (member.process == 0) return false;
  std::uint64_t token = 0;
  return engine::read_memory(member.process, member.memory->address + offsetof(RankMemory, token),
                             &token, sizeof token) &&
         token == member.memory->token;
}

}  // namespace

// Hands this process's heap, if it has one, to all members of the host that are linked.
bool RankGroup::share_heap() {
  bool has_heap = false;
  world_->engine().between_polls(
      [&](transport::Endpoint& endpoint) { has_heap = endpoint.share_heap(mapped_members()); });
  return has_heap;
}

// Until all have everybody's, so that the first call goes the way of all others. A rank that could not map one
// has said so; whoever it belongs to lends nothing of it here.
Status RankGroup::await_heaps(const std::vector<bool>& has_heap, const CallOptions& call) {
  if (std::find(has_heap.begin(), has_heap.end(), true) == has_heap.end()) return {};
  transport::Endpoint& endpoint = world_->engine().endpoint();
  const std::vector<int>& members = channel_->options().members;
  std::vector<int> others, owners;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    others.push_back(members[at(peer)]);
    if (has_heap[at(peer)]) owners.push_back(members[at(peer)]);
  }
  const auto all_of = [](const std::vector<int>& peers, const auto& is_true) {
    return std::all_of(peers.begin(), peers.end(), is_true);
  };
  const auto wait = [&](const std::function<bool()>& over) {
    world_->engine().drive(
        *channel_, [&] { return !health().ok() || over(); }, call.timeout);
  };
  wait([&] {
    return all_of(owners,
                  [&](int peer) { return endpoint.region_has_come(peer, transport::kHeapRegion); });
  });
  const bool mapped = all_of(owners, [&](int peer) {
    return endpoint.link(peer)->reach({transport::kHeapRegion, 0}, 1) != nullptr;
  });
  auto all_mapped = all_say_yes(*this, mapped, call);
  if (!all_mapped.ok()) return all_mapped.status();
  if (*all_mapped && has_heap[at(rank())]) wait([&] { return endpoint.heap_is_mapped_by(others); });
  return health();
}

Status RankGroup::share_host_memory() {
  const bool has_heap = share_heap();
  if (size() < 2 || size() > schedule::kMostHostRanks) return {};
  // A part of joining, which may take longer than an operation.
  const CallOptions call = internal_call(setting_.config->join_timeout);
  const Seating mine{.beside = static_cast<int>(mapped_members().size()) == size() - 1,
                     .has_heap = has_heap};
  auto seating = gather_all(*this, mine, call);
  if (!seating.ok()) return seating.status();
  if (!std::all_of(seating->begin(), seating->end(), [](const Seating& s) { return s.beside; }))
    return {};
  // Before the group's own memory, which goes the same way: when that has come, so has the heap.
  if (Status status = open_links(mapped_members(), call.timeout); !status.ok()) return status;
  share_heap();
  auto shared = share_memory(sizeof(RankMemory), call);
  if (!shared.ok()) {
    if (shared.status().code() != Code::out_of_memory) return shared.status();
    // All ranks have heard of it: messages serve as well, only slower.
    if (rank() == 0)
      world_->engine().log().warn(Subsystem::shm, "group '{}' has no memory to meet in: {}", name(),
                                  shared.status().message());
    return {};
  }
  auto* own = static_cast<RankMemory*>(shared->memory.data);
  prepare(*own);
  if (Status status = barrier(call); !status.ok()) return status;
  std::vector<HostMemory::Member> members;
  std::vector<int> others;
  bool readable = true;
  for (int peer = 0; peer < size(); ++peer) {
    HostMemory::Member member;
    member.memory = own;
    if (peer != rank()) {
      others.push_back(channel_->options().members[at(peer)]);
      member.link = &channel_->link_to(peer);
      member.process = member.link->process();
      std::byte* theirs = member.link->reach({shared->id, 0}, sizeof(RankMemory));
      member.memory = reinterpret_cast<RankMemory*>(theirs);
      if (theirs == nullptr || member.memory->magic != engine::kHostMemoryMagic)
        return {Code::corrupt, "the shared memory of another rank does not look like tutti's"};
    }
    readable = can_read(member) && readable;
    members.push_back(member);
  }
  auto all_readable = all_say_yes(*this, readable, call);
  if (!all_readable.ok()) return all_readable.status();
  auto roomy =
      all_say_yes(*this, static_cast<int>(std::thread::hardware_concurrency()) >= size(), call);
  if (!roomy.ok()) return roomy.status();
  std::vector<bool> has_heaps;
  for (const Seating& each : *seating) has_heaps.push_back(each.has_heap);
  if (Status status = await_heaps(has_heaps, call); !status.ok()) return status;
  const schedule::HostFacts facts{.crowded = !*roomy, .readable = *all_readable};
  channel_->meet_in(std::make_unique<HostMemory>(rank(), std::move(members), std::move(others),
                                                 world_->engine().endpoint(), shared->memory.owner,
                                                 facts));
  return {};
}

}  // namespace tutti::group
