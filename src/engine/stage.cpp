#include "engine/stage.hpp"

#include <sys/uio.h>

namespace tutti::engine {

Stage::Stage(int rank, std::vector<Seat> seats, std::vector<int> others,
             const transport::Endpoint& endpoint, std::shared_ptr<void> memory)
    : rank_(rank),
      seats_(std::move(seats)),
      others_(std::move(others)),
      endpoint_(endpoint),
      memory_(std::move(memory)),
      their_regions_(seats_.size()),
      own_(seats_[static_cast<std::size_t>(rank)].stand) {}

void Stage::publish(std::uint64_t sequence, const Fingerprint& call, std::uint32_t print) {
  const std::size_t turn = sequence % 2;
  Line& line = own_->lines[turn];
  line.print = print;
  // Usually the same call as the last time: then it stands there already.
  if (written_prints_[turn] != print) {
    own_->details[turn] = call;
    written_prints_[turn] = print;
  }
  // seq_cst, and only then a look at the doorbells: a sleeper sets its bell first and then looks at
  // the lines, so one of the two sees the other.
  line.sequence.exchange(sequence, std::memory_order_seq_cst);
  rouse_others();
}

void Stage::retract(std::uint64_t sequence) {
  line(sequence).sequence.exchange(0, std::memory_order_seq_cst);
}

transport::MemoryRef Stage::locate(const std::byte* data, std::size_t bytes) {
  const std::uint64_t version = endpoint_.regions_version();
  Known& known = own_region_;
  // Only what was asked for is known to be inside: the next question may reach further.
  if (known.version != version || data < known.data || data + bytes > known.data + known.bytes) {
    const transport::MemoryRef found = endpoint_.find_region(data, bytes, others_);
    if (found.region == 0) return {};
    known = {version, found.region, const_cast<std::byte*>(data) - found.offset,
             found.offset + bytes};
  }
  return {known.region, static_cast<std::uint64_t>(data - known.data)};
}

std::byte* Stage::reach(int peer, const transport::MemoryRef& ref, std::size_t bytes) {
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

void Stage::set_mark(std::uint64_t mark) {
  mark_ = mark;
  own_->mark.exchange(mark, std::memory_order_seq_cst);
  rouse_others();
}

void Stage::rouse_others() {
  for (const Seat& seat : seats_)
    if (seat.link != nullptr) seat.link->rouse();
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
