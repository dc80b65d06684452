// transport/ofi/incoming_table.hpp - messages on their way in: where their payloads go, and that each channel's are handed
// on in order, though large payloads come when they like.
//
// Thread-safety  one thread at a time: whoever polls.
#pragma once

#include <array>
#include <list>

#include "transport/buffer_pool.hpp"
#include "transport/link.hpp"
#include "transport/ofi/fabric_port.hpp"

namespace tutti::transport::ofi {

class IncomingTable {
 public:
  IncomingTable(int peer, FabricPort& fabric) : peer_(peer), fabric_(fabric) {}

  // A small message with its payload.
  void take(const Header& header, const std::byte* payload, MessageSink& sink);
  // A large one is announced; what to tell its sender.
  Result<Grant> make_place(const Header& header, const LargeNotice& announcement,
                           MessageSink& sink);
  // All of it is here. `what` as in FabricPort::expect.
  void land(void* what, MessageSink& sink);
  // Nothing placed for `channel` is touched any more.
  void forget(std::uint32_t channel);
  // Whether something is on its way that was announced.
  bool expects() const { return landing_ > 0; }
  // Nothing is handed on any more; what is on its way still has its place.
  void close();
  void release(std::uint64_t lease);

 private:
  struct Arrival {
    Header header;
    std::byte* target = nullptr;      // where the sink wants it; null: it gets a view
    Place landing;                    // of a large one: a landing of ours, or symmetric memory
    const std::byte* view = nullptr;  // what is in the pool, under `lease`
    std::uint64_t lease = 0;
    bool in_line = false;  // its payload is in `bytes`
    bool here = false;
    bool direct = false;  // `landing` is the target itself
    alignas(16) std::array<std::byte, kInlineBytes> bytes;
  };
  bool must_wait(std::uint32_t channel) const;
  void hand_on(Arrival& arrival, MessageSink& sink);
  void hand_on_waiting(MessageSink& sink);
  void settle(Arrival& arrival);
  void copy_to_pool(Arrival& arrival, const std::byte* from);

  int peer_;
  FabricPort& fabric_;
  BufferPool pool_;
  std::list<Arrival> waiting_;  // in order; an element stays where it is
  std::size_t landing_ = 0;     // of them, not here yet
  bool closed_ = false;
};

}  // namespace tutti::transport::ofi
