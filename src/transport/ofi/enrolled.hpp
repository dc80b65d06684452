// transport/ofi/enrolled.hpp - memory that the rails of a rank may reach: registered once, for as long as it
// lives, so that no message waits for a registration.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/spin_lock.hpp"
#include "transport/mapping.hpp"
#include "transport/ofi/rail.hpp"

namespace tutti::transport::ofi {

using Rails = std::vector<std::unique_ptr<Rail>>;

// A mapping, known to all rails. Must go before they do.
class Enrolled {
 public:
  static Result<std::shared_ptr<Enrolled>> make(const Rails& rails, Mapping mapping);

  std::byte* data() const { return mapping_.data(); }
  std::size_t bytes() const { return mapping_.bytes(); }
  void* descriptor(std::size_t rail) const { return known_[rail].descriptor(); }
  // Where `at` is, for a peer that comes by that rail.
  RemoteKey remote(std::size_t rail, const std::byte* at) const;
  const RawKey& raw_key(std::size_t rail) const { return known_[rail].raw; }

 private:
  explicit Enrolled(Mapping mapping) : mapping_(std::move(mapping)) {}
  Mapping mapping_;
  std::vector<Registration> known_;  // by rail
};

// A stretch of it. Empty: `data` is null.
struct Place {
  std::byte* data = nullptr;
  std::shared_ptr<const Enrolled> memory;
  std::uint64_t slot = 0;  // in its SlotPool; 0: in none

  explicit operator bool() const { return data != nullptr; }
};

// Equal pieces of such memory, taken and given back; it grows as they are needed.
//
// Thread-safety  any thread.
class SlotPool {
 public:
  SlotPool(const Rails& rails, std::size_t slot_bytes, std::size_t slots_at_once);

  std::size_t slot_bytes() const { return slot_bytes_; }
  // Empty: this machine has no more memory to register.
  Place take();
  void release(std::uint64_t slot);

 private:
  bool grow();

  const Rails& rails_;
  const std::size_t slot_bytes_;
  const std::size_t slots_at_once_;
  SpinLock lock_;
  std::vector<std::shared_ptr<Enrolled>> chunks_;
  std::vector<std::uint64_t> free_;  // numbers, from 1 on
};

}  // namespace tutti::transport::ofi
