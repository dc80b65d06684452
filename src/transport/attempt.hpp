// transport/attempt.hpp - one connection on its way to become a link, or one of a link's.
//
//   connected ─▶ handshake (core/auth) ─▶ the connecting side says by which transport, and which of
//                its connections this is ─▶ the transport's own greeting ─▶ linked
//
// A state machine over a non-blocking socket: step it when the socket has one of its `events`. A stranger
// gets no further than the handshake.
#pragma once

#include <memory>

#include "core/auth.hpp"
#include "core/byte_stream.hpp"
#include "core/clock.hpp"
#include "transport/transport.hpp"

namespace tutti::transport {

class Attempt {
 public:
  // Says whether a rank that has come may go on: two that connect to each other need one link.
  class Gate {
   public:
    virtual ~Gate() = default;
    virtual bool admits(int peer) = 0;
  };
  enum class State : std::uint8_t { running, linked, failed };
  // What a connection that this side makes is for.
  struct Purpose {
    int peer = 0;
    const Transport* transport = nullptr;
    int number = 0;  // of the pair's connections
  };
  // `socket` is on its way to `address` (begin_connect).
  Attempt(const Party& party, Door door, Descriptor socket, const SocketAddress& address,
          Nanoseconds deadline, const Purpose& purpose);
  // Somebody has connected to us, from `whence`.
  Attempt(const Party& party, Door door, Descriptor socket, std::string whence,
          Nanoseconds deadline, Gate* gate = nullptr);

  // Goes on as far as it can without blocking.
  State step();
  State state() const { return state_; }
  const Status& failure() const { return failure_; }
  // Ends a running one.
  void fail(Status why);

  bool outgoing() const { return outgoing_; }
  Door door() const { return door_; }
  bool authenticated() const { return stage_ > HandshakeStage::handshake; }
  bool spoke() const { return spoke_; }  // it has said hello in proper form
  bool reached() const { return stage_ > HandshakeStage::connecting; }
  bool refused() const { return refused_; }  // nobody listens where this one was to connect
  const std::string& whence() const { return whence_; }
  // Of poll(2), over which it waits.
  short events() const;
  int peer() const { return purpose_.peer; }      // -1: not known yet
  int number() const { return purpose_.number; }  // like the next: when it is known
  const Transport* transport() const { return purpose_.transport; }
  int descriptor() const { return socket_.get(); }
  Nanoseconds deadline() const { return deadline_; }

  // When linked.
  Connection take_connection() { return {std::move(socket_), std::move(greeting_)}; }

 private:
  enum class HandshakeStage : std::uint8_t { connecting, encrypting, handshake, intent, greeting };

  bool reach();
  bool encrypt();
  bool shake_hands();
  bool know_process();
  bool send_intent();
  bool take_intent();
  bool greet();
  bool send(const void* data, std::size_t bytes);
  ssize_t receive(void* data, std::size_t bytes);
  bool stop(Status why);

  const Party& party_;
  Door door_;
  bool outgoing_;
  Gate* gate_ = nullptr;
  Purpose purpose_;
  ByteStream socket_;
  std::string whence_;  // the other end, for people
  Nanoseconds deadline_;
  Handshake handshake_;
  HandshakeStage stage_ = HandshakeStage::handshake;
  State state_ = State::running;
  Status failure_;
  std::string inbox_;  // of the intent
  pid_t process_ = 0;  // of the peer, where the door tells
  std::unique_ptr<Greeting> greeting_;
  bool spoke_ = false;
  bool refused_ = false;
};

}  // namespace tutti::transport
