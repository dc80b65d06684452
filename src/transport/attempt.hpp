// transport/attempt.hpp - one connection on its way to become a link.
//
//   handshake (core/auth) ─┬─ Unix socket: offers of memory cross ─ verdicts cross ─▶ inproc, shm
//                          └─ TCP: the connecting side says which stream of the pair this is,
//                             the accepting side says welcome ──────────────────────▶ tcp
//
// A state machine over a non-blocking socket: step it when the socket is readable. A stranger gets
// no further than the handshake.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "core/auth.hpp"
#include "core/clock.hpp"
#include "core/sockets.hpp"
#include "transport/address.hpp"
#include "transport/link.hpp"
#include "transport/window.hpp"

namespace tutti::transport {

// What all attempts of one rank have in common.
struct Party {
  int rank = 0;
  std::uint64_t epoch = 0;
  std::string secret;
  std::vector<Address> addresses;
  std::shared_ptr<Window> window;  // null: no memory links

  const Address& self() const { return addresses[static_cast<std::size_t>(rank)]; }
  const Address& of(int peer) const { return addresses[static_cast<std::size_t>(peer)]; }
  int size() const { return static_cast<int>(addresses.size()); }
  // What this pair would use on one host, by what both allow; tcp: nothing there.
  LinkKind local_kind(int peer) const;
  // TCP connections between this rank and `peer`: as many as both want.
  int streams(int peer) const { return std::min(self().streams, of(peer).streams); }
};

class Attempt {
 public:
  enum class State : std::uint8_t { running, linked, failed };
  // `peer` -1: somebody has connected to us. `stream`: of a TCP connection that we make.
  Attempt(const Party& party, int peer, bool local, Descriptor socket, Nanoseconds deadline,
          int stream = 0);
  ~Attempt();

  // Goes on as far as it can without blocking.
  State step();
  State state() const { return state_; }
  const Status& failure() const { return failure_; }
  // Ends a running one.
  void fail(Status why);

  bool outgoing() const { return outgoing_; }
  bool local() const { return local_; }
  bool authenticated() const { return stage_ != Stage::handshake; }
  bool began() const { return began_; }  // has been stepped
  int peer() const { return peer_; }
  int stream() const { return stream_; }  // of an accepted one: when linked
  int descriptor() const { return socket_.get(); }
  Nanoseconds deadline() const { return deadline_; }

  // When linked.
  LinkKind kind() const { return kind_; }
  Descriptor take_socket() { return std::move(socket_); }
  std::shared_ptr<Window> take_window() { return std::move(theirs_); }
  pid_t process() const { return process_; }

 private:
  enum class Stage : std::uint8_t { handshake, offer, verdict, stream, welcome };

  bool shake_hands();
  bool begin_offer();
  bool take_offer();
  bool take_verdict();
  bool take_stream();
  bool take_welcome();
  bool send(const void* data, std::size_t bytes);
  ssize_t receive(void* data, std::size_t bytes);
  bool stop(Status why);

  const Party& party_;
  bool outgoing_;
  bool local_;
  int peer_;
  int stream_;
  Descriptor socket_;
  Nanoseconds deadline_;
  Handshake handshake_;
  Stage stage_ = Stage::handshake;
  State state_ = State::running;
  Status failure_;
  LinkKind kind_ = LinkKind::tcp;
  std::shared_ptr<Window> theirs_;
  pid_t process_ = 0;
  bool began_ = false;
  bool accepted_ = false;  // we could use what the peer offered
};

}  // namespace tutti::transport
