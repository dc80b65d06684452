#include "engine/host_memory.hpp"

#include <sys/uio.h>

#include <utility>

namespace tutti::engine {

HostMemory::HostMemory(int rank, std::vector<Member> members, std::vector<int> others,
                       transport::Endpoint& endpoint, std::shared_ptr<void> owner,
                       const schedule::HostFacts& facts)
    : rank_(rank),
      members_(std::move(members)),
      others_(std::move(others)),
      endpoint_(endpoint),
      owner_(std::move(owner)),
      facts_(facts),
      their_regions_(members_.size()),
      own_(members_[static_cast<std::size_t>(rank)].memory) {
  for (const Member& member : members_)
    if (const auto* bell = member.link != nullptr ? member.link->doorbell() : nullptr)
      neighbours_.push_back({bell, member.link});
}

void HostMemory::publish(std::uint64_t sequence, const Fingerprint& call, std::uint32_t call_hash) {
  const std::size_t turn = turn_of(sequence);
  Line& line = own_->lines[turn];
  line.call_hash = call_hash;
  // Usually the same call as the last time: then it stands there already.
  if (written_hashes_[turn] != call_hash) {
    own_->details[turn] = call;
    written_hashes_[turn] = call_hash;
  }
  // seq_cst, and only then a look at the doorbells: a sleeper sets its bell first and then looks at
  // the lines, so one of the two sees the other.
  line.sequence.exchange(sequence, std::memory_order_seq_cst);
  wake_others();
}

std::optional<Fingerprint> HostMemory::called(int peer, std::uint64_t sequence) const {
  const RankMemory& theirs = of(peer);
  for (std::size_t turn = 0; turn < 2; ++turn)
    if (theirs.lines[turn].sequence.load(std::memory_order_acquire) == sequence)
      return theirs.details[turn];
  return std::nullopt;
}

void HostMemory::retract(std::uint64_t sequence) {
  line(sequence).sequence.exchange(0, std::memory_order_seq_cst);
}

transport::MemoryRef HostMemory::locate(const std::byte* data, std::size_t bytes) {
  const std::uint64_t version = endpoint_.regions_version();
  transport::SharedStretch& known = own_stretch_.stretch;
  if (own_stretch_.version != version || data < known.data ||
      data + bytes > known.data + known.bytes) {
    const transport::SharedStretch found = endpoint_.find_region(data, bytes, others_);
    if (found.ref.region == 0) return {};
    own_stretch_ = {version, found};
  }
  return {known.ref.region, known.ref.offset + static_cast<std::uint64_t>(data - known.data)};
}

std::byte* HostMemory::reach(int peer, const transport::MemoryRef& ref, std::size_t bytes) {
  const std::uint64_t version = endpoint_.regions_version();
  Known& known = their_regions_[static_cast<std::size_t>(peer)];
  if (known.version != version || known.region != ref.region || ref.offset > known.bytes ||
      bytes > known.bytes - ref.offset) {
    std::byte* at = link_to(peer).reach(ref, bytes);
    if (at == nullptr) return nullptr;
    known = {version, ref.region, at - ref.offset, ref.offset + bytes};
  }
  return known.data + ref.offset;
}

void HostMemory::set_mark(std::uint64_t mark) {
  mark_ = mark;
  own_->mark.exchange(mark, std::memory_order_seq_cst);
  wake_others();
}

void HostMemory::wake_others() {
  for (const Neighbour& neighbour : neighbours_)
    if (transport::is_asleep(*neighbour.bell)) neighbour.link->rouse();
}

bool read_memory(std::int64_t process, std::uint64_t address, void* to, std::size_t bytes) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const iovec local{at, bytes};
    const iovec remote{reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), bytes};
    const ssize_t got = ::process_vm_readv(static_cast<pid_t>(process), &local, 1, &remote, 1, 0);
    if (got <= 0) return false;
    at += got;
    address += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace tutti::engine
