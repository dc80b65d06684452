// The memory in which ranks of one host meet: made, shared and tried before it is used.
#include <cstring>
#include <random>
#include <thread>

#include "engine/host_memory.hpp"
#include "group/gather_all.hpp"
#include "group/rank_group.hpp"

namespace tutti::group {
namespace {

using engine::HostMemory;
using engine::RankMemory;

void prepare(RankMemory& memory) {
  std::random_device random;
  memory.magic = engine::kHostMemoryMagic;
  memory.token = std::uint64_t{random()} << 32 | random();
  memory.address = reinterpret_cast<std::uintptr_t>(&memory);
}

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

Status RankGroup::share_host_memory() {
  if (size() < 2 || size() > schedule::kMostHostRanks) return {};
  // A part of joining, which may take longer than an operation.
  const CallOptions call = internal_call(setting_.config->join_timeout);
  auto beside = all_say_yes(*this, static_cast<int>(mapped_members().size()) == size() - 1, call);
  if (!beside.ok()) return beside.status();
  if (!*beside) return {};
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
      others.push_back(channel_->options().members[static_cast<std::size_t>(peer)]);
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
  const schedule::HostFacts facts{.crowded = !*roomy, .readable = *all_readable};
  channel_->meet_in(std::make_unique<HostMemory>(rank(), std::move(members), std::move(others),
                                                 world_->engine().endpoint(), shared->memory.owner,
                                                 facts));
  return {};
}

}  // namespace tutti::group
