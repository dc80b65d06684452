// extending/unix_link.hpp - a toy link, as docs/extending.md shows it: frames through a Unix socket.
//
// Everything is copied, nothing is lent: a frame is a Header and its payload, and what the socket
// does not take waits in a string.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "transport/message_link.hpp"

namespace tutti::toys {

using namespace transport;

class UnixLink final : public MessageLink, private EventSource {
 public:
  UnixLink(int self, int peer, Descriptor socket)
      : self_(self), peer_(peer), socket_(std::move(socket)) {}

  std::string_view name() const override { return "unix"; }
  std::size_t eager_bytes() const override { return kFrameBytes; }
  Sent send(const Header& header, const void* payload, std::size_t bytes, std::uint64_t) override;
  void release(std::uint64_t lease) override;
  bool poll(MessageSink& sink) override;
  void forget(std::uint32_t) override {}  // nothing is lent, and places are filled at once

  Status watch(Reactor& reactor) override { return reactor.add(socket_.get(), *this); }
  bool ready() const override { return readable_ || wants_room(); }
  void suppose_readable() override { readable_ = true; }
  bool wants_room() const override { return backlog_; }
  bool flush() override;
  void abandon() noexcept override { socket_.reset(); }

 private:
  static constexpr std::size_t kFrameBytes = 64 * 1024;    // the most of data and bulk in a frame
  static constexpr std::size_t kQueueBytes = 1024 * 1024;  // beyond that only control is taken

  void on_ready(std::uint32_t) override { readable_ = true; }
  void write_queue();
  bool read_socket();
  void deliver(MessageSink& sink, const Header& header, const char* data);

  int self_;
  int peer_;
  Descriptor socket_;
  bool readable_ = true;  // poll only, like the next three
  bool ended_ = false;
  bool reported_ = false;
  std::string in_;

  std::mutex mutex_;  // the next two
  std::string out_;
  std::map<std::uint64_t, std::string> leased_;
  std::uint64_t leases_ = 0;
  std::atomic<bool> backlog_{false};  // out_ holds something
};

}  // namespace tutti::toys
