// engine/device_reach.hpp - which of this rank's device memory its peers have mapped, and where they see it.
//
// Memory of a device is mapped by whole allocations. The owner shows one to a peer when it is first
// needed there; the peer maps it and says at which address it sees it. From then on the owner can tell the
// peer about any place in it, in the peer's own addresses, without asking.
//
//   owner                           peer
//   show {allocation, handle} ───▶  maps it (step)
//                             ◀───  seen {base there}, or hidden: it cannot
//   gone {allocation}         ───▶  closes it when its device is idle
//                             ◀───  closed; before, it maps no other one at the same place
//
// Ranks of one process see each other's memory as it is.
//
// Thread-safety  any thread, any method; on_note is called from inside a poll.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/clock.hpp"
#include "cuda/device.hpp"
#include "transport/endpoint.hpp"

namespace tutti::engine {

// The payload of a message of kind `device`.
struct DeviceNote {
  enum class Word : std::uint64_t { show, seen, hidden, gone, closed, offer };
  Word word = Word::show;
  std::uint64_t allocation = 0;  // its owner's name for it; never used again
  std::uint64_t base = 0;  // show: where its owner sees it; seen: where the peer does; offer: how
                           //   far into the allocation
  std::uint64_t bytes = 0;
  cuda::IpcHandle handle{};
};

// Where in an allocation, as this rank has mapped it, a message of `bytes` lies that a peer has offered. corrupt: it
// would reach beyond.
Result<std::uint64_t> place_of(const DeviceNote& note, const cuda::Allocation& mapped,
                               std::size_t bytes);

class DeviceReach {
 public:
  DeviceReach(std::shared_ptr<cuda::Device> device, transport::Endpoint& endpoint);
  ~DeviceReach();

  // How a rank of the world is met: in this process, or in another one of this host.
  void introduce(int peer, bool same_process);

  enum class Sight : std::uint8_t { seen, coming, hidden };
  // An allocation of this rank, as some peers see it.
  struct View {
    cuda::Allocation allocation;
    bool can_be_shown = false;  // other processes could map it
    Sight sight = Sight::hidden;
    std::vector<std::uint64_t> bases;  // of each peer, in the order asked for; when seen

    bool holds(std::uint64_t address) const { return address - allocation.base < allocation.bytes; }
    std::uint64_t at(std::size_t peer, std::uint64_t address) const {
      return bases[peer] + (address - allocation.base);
    }
  };
  // The allocation at an address; can_be_shown is false where there is none.
  View find(std::uint64_t address, std::span<const int> peers);
  // Where `peers` see it. coming: some have been told of it, by messages of `channel`, and have not
  // answered yet. hidden: one of them cannot map it.
  void show(View& view, std::span<const int> peers, std::uint32_t channel);
  // For one message: what its receiver maps the memory by; absent: it cannot.
  std::optional<DeviceNote> offer(int peer, std::uint32_t channel, std::uint64_t address);
  // Where this rank sees the `bytes` that a peer has offered.
  Result<std::uint64_t> accept(int peer, const DeviceNote& note, std::size_t bytes);
  // Memory that is about to be freed: peers close it. Waits until they have, at most so long.
  void forget(std::uint64_t base, Nanoseconds patience);

  // Memory of this rank's own that is not needed any more: taken back from whoever was shown it, and kept until all
  // have closed it. What lay at the same place otherwise could not be mapped. Given back: nobody has it open.
  std::shared_ptr<cuda::Memory> give_up(std::shared_ptr<cuda::Memory> memory);
  // Such memory that everybody has closed by now.
  std::vector<std::shared_ptr<cuda::Memory>> take_closed();

  void on_note(int peer, std::uint32_t channel, const DeviceNote& note);
  // Maps what peers have shown, and closes what they have taken back if `may_close`: nothing of this
  // rank waits on the device. True if anything moved.
  bool step(bool may_close);
  bool has_to_close() const;
  // Why this rank could not map something of a peer; ok: it could.
  Status trouble() const;

 private:
  struct Guest {
    Sight sight = Sight::hidden;
    bool told = false;   // of it at all: it may have mapped it
    bool shown = false;  // it is to say where it sees it
    std::uint64_t base = 0;
  };
  // An allocation of this rank.
  struct Shown {
    cuda::Allocation allocation;
    bool exportable = false;
    cuda::IpcHandle handle{};
    std::vector<Guest> guests;           // by world rank
    int open = 0;                        // gone: guests that have not closed it
    std::shared_ptr<cuda::Memory> kept;  // gone: not to be freed before they have
  };
  struct Incoming {
    int peer = 0;
    std::uint32_t channel = 0;
    DeviceNote note;
    Nanoseconds first_tried{0};  // to map it; 0: not yet
    Nanoseconds tried{0};
  };
  struct Key {  // of a peer's allocation
    int peer = 0;
    std::uint64_t allocation = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  // A peer's allocation: where this rank sees it, and in which of the driver's blocks its owner does.
  struct Import {
    std::uint64_t here = 0;
    std::uint64_t first_block = 0;
    std::uint64_t last_block = 0;
  };

  Shown* find_shown(const cuda::Allocation& allocation);
  bool all_in_process(std::span<const int> peers) const;
  void take_back(Shown& shown);
  void send(int peer, std::uint32_t channel, const DeviceNote& note);
  // Whether it has answered.
  bool map(Incoming shown);
  bool is_in_the_way_of(const Incoming& shown) const;
  void close(const Incoming& gone);
  Result<std::uint64_t> import(int peer, const DeviceNote& note);
  void note_answer(const Incoming& incoming);

  std::shared_ptr<cuda::Device> device_;
  transport::Endpoint& endpoint_;
  std::vector<bool> same_process_;  // by world rank

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Shown> shown_;  // by base
  std::map<std::uint64_t, Shown> gone_;   // by allocation: taken back, not closed everywhere
  std::map<Key, Import> imports_;
  std::vector<std::shared_ptr<cuda::Memory>> closed_;
  std::vector<Incoming> incoming_;
  std::vector<Incoming> closing_;
  std::uint32_t last_channel_ = 0;
  Status trouble_;  // the last one
  std::atomic<Nanoseconds> in_vain_until_{Nanoseconds(0)};
};

}  // namespace tutti::engine
