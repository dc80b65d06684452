// store/server_state.hpp - the server without sockets, threads and clock: bytes in, bytes out.
//
// The owner moves bytes and tells the time; so the same code runs behind epoll and in a simulation.
// A connection first does the handshake; until then it costs less than kStrangerBytes, has a deadline,
// and there are at most kMaxStrangers of its kind (core/strangers.hpp says who makes room). Waits for
// absent keys are parked here with their deadlines.
//
// Thread-safety  none.
//
//   state.connected(7, "10.0.0.7", now);  state.received(7, bytes, now);
//   for (ConnectionId id : state.take_active()) {
//     send(id, state.take_output(id));
//     if (state.ended(id)) close(id);
//   }
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/auth.hpp"
#include "core/clock.hpp"
#include "core/secret.hpp"
#include "core/strangers.hpp"
#include "store/protocol.hpp"
#include "store/table.hpp"

namespace tutti::store {

using ConnectionId = std::uint64_t;

class ServerState {
 public:
  // Several times as many as are accepted at once: whoever proves himself in time keeps his place even
  // when everybody who comes says hello.
  static constexpr std::size_t kMaxStrangers = 4 * kAcceptsAtOnce;
  static constexpr std::size_t kStrangerBytes = 4096;

  explicit ServerState(Secret secret, std::uint64_t epoch = 0)
      : secret_(std::move(secret)), epoch_(epoch) {}

  // Somebody came from `address` (a host's, or "user 1000"). Another stranger may have to go for it.
  void connected(ConnectionId id, const std::string& address, Nanoseconds now);
  // It has begun with what comes before the handshake, TLS, in proper form.
  void spoke(ConnectionId id) { strangers_.spoke(id); }
  // That is done; the handshake is to be bound to it.
  void bind(ConnectionId id, std::string connection);
  // It will not do, for a reason that the owner knows.
  void turn_away(ConnectionId id, const std::string& why);
  // Ends the stranger with least claim to its descriptor; false: there is none.
  bool make_room();
  void received(ConnectionId id, std::string_view bytes, Nanoseconds now);
  void disconnected(ConnectionId id);
  // Ends waits and handshakes whose time has come.
  void advance(Nanoseconds now);
  // When advance has something to do next; max() when never.
  Nanoseconds next_deadline() const;

  // Connections that have output or have ended since the last call.
  std::vector<ConnectionId> take_active();
  std::string take_output(ConnectionId id);
  // To be closed, once its output was tried; disconnected() is to follow.
  bool ended(ConnectionId id) const;

  // Those who were turned away since the last call, and why.
  struct Refusal {
    std::string address;
    std::string why;
  };
  std::vector<Refusal> take_refusals() { return std::exchange(refusals_, {}); }

  std::size_t connections() const { return connections_.size(); }
  std::size_t strangers() const { return strangers_.count(); }

 private:
  struct Connection {
    std::optional<Handshake> handshake;  // until it is done
    std::optional<StoreRequest> parked;  // waits for its key
    Nanoseconds deadline = Nanoseconds::max();
    std::string inbox;
    std::string outbox;
    bool ended = false;
  };

  void feed_handshake(ConnectionId id, Connection& connection, std::string_view& bytes);
  void read_requests(ConnectionId id, Connection& connection, Nanoseconds now);
  void serve(ConnectionId id, Connection& connection, const StoreRequest& request, Nanoseconds now);
  void park(ConnectionId id, Connection& connection, const StoreRequest& request, Nanoseconds now);
  void unpark(ConnectionId id, Connection& connection);
  void wake_waiters(const std::string& key);
  void reply(ConnectionId id, Connection& connection, const Response& response);
  void end(ConnectionId id, Connection& connection);
  void forget(ConnectionId id, Connection& connection);
  void set_deadline(ConnectionId id, Connection& connection, Nanoseconds deadline);

  Secret secret_;
  std::uint64_t epoch_;
  Table table_;
  std::unordered_map<ConnectionId, Connection> connections_;
  Strangers strangers_{kMaxStrangers};
  std::vector<Refusal> refusals_;
  std::unordered_map<std::string, std::set<ConnectionId>> waiters_;
  std::set<std::pair<Nanoseconds, ConnectionId>> deadlines_;
  std::set<ConnectionId> active_;
};

}  // namespace tutti::store
