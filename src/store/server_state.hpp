// store/server_state.hpp - the server without sockets, threads and clock: bytes in, bytes out.
//
// The owner moves bytes and tells the time; so the same code runs behind epoll and in a simulation.
// A connection first does the handshake; until then it costs fixed memory, has a deadline, and
// there are at most kMaxStrangers of its kind. Waits for absent keys are parked here with their
// deadlines.
//
// Thread-safety  none.
//
//   state.connected(7, now);  state.received(7, bytes, now);
//   for (ConnectionId id : state.take_active()) {
//     send(id, state.take_output(id));
//     if (state.ended(id)) close(id);
//   }
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/auth.hpp"
#include "core/clock.hpp"
#include "store/protocol.hpp"
#include "store/table.hpp"

namespace tutti::store {

using ConnectionId = std::uint64_t;

class ServerState {
 public:
  static constexpr std::size_t kMaxStrangers = 64;
  // When all places are taken, a stranger that was silent for this long makes room for the next.
  static constexpr Nanoseconds kSilenceAllowed = std::chrono::milliseconds(250);

  explicit ServerState(std::string secret) : secret_(std::move(secret)) {}

  // Whether a new connection may be let in now; makes room if it can.
  bool has_room(Nanoseconds now);
  void connected(ConnectionId id, Nanoseconds now);
  void received(ConnectionId id, std::string_view bytes, Nanoseconds now);
  void disconnected(ConnectionId id);
  // Ends waits and handshakes whose time has come.
  void advance(Nanoseconds now);
  // When advance or has_room has something to do next; max() when never.
  Nanoseconds next_deadline() const;

  // Connections that have output or have ended since the last call.
  std::vector<ConnectionId> take_active();
  std::string take_output(ConnectionId id);
  // To be closed, once its output was tried; disconnected() is to follow.
  bool ended(ConnectionId id) const;

  std::size_t connections() const { return connections_.size(); }
  std::size_t strangers() const { return strangers_.size(); }

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
  void set_deadline(ConnectionId id, Connection& connection, Nanoseconds deadline);

  std::string secret_;
  Table table_;
  std::unordered_map<ConnectionId, Connection> connections_;
  // Since when each is here. Ids grow, so the first is the oldest.
  std::map<ConnectionId, Nanoseconds> strangers_;
  std::unordered_map<std::string, std::set<ConnectionId>> waiters_;
  std::set<std::pair<Nanoseconds, ConnectionId>> deadlines_;
  std::set<ConnectionId> active_;
};

}  // namespace tutti::store
