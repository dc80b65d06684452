// transport/tcp/tcp_link.hpp - a message link over one authenticated TCP connection.
//
// Frames are a Header and its payload (docs/formats/wire.md). A send tries the socket at once; what
// it does not take is queued: copied up to 16 KiB, lent above. The queue is bounded; control
// messages are few and pass the bound.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "core/sockets.hpp"
#include "core/spin_lock.hpp"
#include "transport/buffer_pool.hpp"
#include "transport/link.hpp"
#include "transport/reactor.hpp"
#include "transport/tcp/frame_queue.hpp"
#include "transport/tcp/frame_reader.hpp"

namespace tutti::transport {

class TcpLink final : public Link, public Source {
 public:
  // `socket` is connected, authenticated and non-blocking.
  TcpLink(int self, int peer, Descriptor socket, std::size_t segment_bytes,
          std::string whereabouts);
  ~TcpLink() override;

  LinkKind kind() const override { return LinkKind::tcp; }
  std::size_t eager_bytes() const override;
  Sent send(const Header& header, const void* payload, std::size_t bytes,
            std::uint64_t token) override;
  void release(std::uint64_t lease) override { pool_.release(lease); }
  bool revoked(std::uint64_t) const override { return false; }
  bool poll(Sink& sink) override;
  void forget(std::uint32_t channel) override;
  MemoryRef share(const void*, std::size_t) const override { return {}; }
  std::byte* reach(const MemoryRef&, std::size_t) const override { return nullptr; }

  // The endpoint's calls.
  int descriptor() const { return socket_.get(); }
  void on_ready(std::uint32_t events) override;
  // Whether poll would find something to do.
  bool ready() const;
  // Writes what the socket takes. True when nothing is left.
  bool flush();
  // Closes the socket, in a child of fork().
  void abandon() noexcept { socket_.reset(); }

 private:
  bool write_queued();
  bool complete(Sink& sink);
  bool receive(Sink& sink);
  void go_down(Sink& sink, Code code, const std::string& why);

  int self_;
  int peer_;
  Descriptor socket_;
  std::size_t segment_bytes_;
  std::string whereabouts_;
  BufferPool pool_;
  FrameReader reader_;    // poll only
  bool readable_ = true;  // poll and sleep only
  bool writable_ = false;

  SpinLock lock_;  // the next two
  FrameQueue queue_;
  std::vector<Completion> completed_;

  std::atomic<bool> has_completed_{false};
  std::atomic<bool> write_failed_{false};
  std::atomic<bool> down_{false};
};

}  // namespace tutti::transport
