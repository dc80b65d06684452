#include "store/server_state.hpp"

#include <algorithm>
#include <utility>

namespace tutti::store {
namespace {

Response failure(const Status& status) { return {status.code(), 0, status.message()}; }

// Clients check too; a server that believed them would grow without bound.
Status check_bounds(const StoreRequest& request) {
  if (request.expected.size() > Store::kMaxValueBytes)
    return Status(Code::invalid_argument, "the expected value is longer than any value can be");
  return check_value(request.key, request.value);
}

}  // namespace

void ServerState::connected(ConnectionId id, const std::string& address, Nanoseconds now) {
  if (strangers_.count() == strangers_.places())
    turn_away(*strangers_.least_claim(), "it had proved nothing when others came");
  Connection& connection = connections_[id];
  connection.handshake = Handshake::server(secret_, {kRoleStore, -1, epoch_});
  strangers_.admit(id, address);
  set_deadline(id, connection, deadline_after(now, kHandshakeTimeout));
}

void ServerState::bind(ConnectionId id, std::string connection) {
  const auto found = connections_.find(id);
  if (found != connections_.end() && found->second.handshake)
    found->second.handshake->bind(std::move(connection));
}

bool ServerState::make_room() {
  const auto out = strangers_.least_claim();
  if (out) turn_away(*out, "this process is short of descriptors");
  return out.has_value();
}

void ServerState::turn_away(ConnectionId id, const std::string& why) {
  refusals_.push_back({strangers_.address_of(id), why});
  end(id, connections_.at(id));
}

void ServerState::received(ConnectionId id, std::string_view bytes, Nanoseconds now) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.ended) return;
  Connection& connection = found->second;
  while (connection.handshake && !bytes.empty() && !connection.ended)
    feed_handshake(id, connection, bytes);
  if (connection.ended || bytes.empty()) return;
  connection.inbox.append(bytes);
  read_requests(id, connection, now);
}

void ServerState::feed_handshake(ConnectionId id, Connection& connection, std::string_view& bytes) {
  Handshake& handshake = *connection.handshake;
  const std::size_t wanted = std::min(handshake.wants(), bytes.size());
  const Status status = handshake.feed(bytes.substr(0, wanted));
  bytes.remove_prefix(wanted);
  connection.outbox += handshake.take_output();
  if (!connection.outbox.empty()) active_.insert(id);
  if (!status.ok()) return turn_away(id, status.message());
  if (!connection.outbox.empty()) strangers_.spoke(id);
  if (!handshake.done()) return;
  connection.handshake.reset();
  strangers_.leave(id);
  set_deadline(id, connection, Nanoseconds::max());
}

// Serves what is whole. A connection that waits for a key is not read on: one request at a time.
void ServerState::read_requests(ConnectionId id, Connection& connection, Nanoseconds now) {
  while (!connection.ended && !connection.parked && connection.inbox.size() >= kLengthBytes) {
    auto length = frame_length(std::string_view(connection.inbox).substr(0, kLengthBytes));
    if (!length.ok()) return end(id, connection);
    if (connection.inbox.size() < kLengthBytes + *length) return;
    auto request =
        StoreRequest::decode(std::string_view(connection.inbox).substr(kLengthBytes, *length));
    connection.inbox.erase(0, kLengthBytes + *length);
    if (!request.ok()) return end(id, connection);
    serve(id, connection, *request, now);
  }
  // Nobody who keeps to the protocol has more than one request under way.
  if (connection.inbox.size() > kLengthBytes + kMaxFrameBytes) end(id, connection);
}

void ServerState::serve(ConnectionId id, Connection& connection, const StoreRequest& request,
                        Nanoseconds now) {
  if (Status status = check_bounds(request); !status.ok())
    return reply(id, connection, failure(status));
  switch (request.kind) {
    case RequestKind::set:
      table_.set(request.key, request.value);
      reply(id, connection, {});
      return wake_waiters(request.key);
    case RequestKind::get:
    case RequestKind::wait: {
      const std::string* value = table_.find(request.key);
      if (!value) return park(id, connection, request, now);
      return reply(id, connection,
                   {Code::ok, 0, request.kind == RequestKind::get ? *value : std::string()});
    }
    case RequestKind::add: {
      auto sum = table_.add(request.key, request.number);
      if (!sum.ok()) return reply(id, connection, failure(sum.status()));
      reply(id, connection, {Code::ok, *sum, {}});
      return wake_waiters(request.key);
    }
    case RequestKind::compare_set: {
      bool changed = false;
      reply(
          id, connection,
          {Code::ok, 0, table_.compare_set(request.key, request.expected, request.value, changed)});
      if (changed) wake_waiters(request.key);
      return;
    }
    case RequestKind::remove:
      return reply(id, connection, {Code::ok, table_.remove(request.key) ? 1 : 0, {}});
  }
}

void ServerState::park(ConnectionId id, Connection& connection, const StoreRequest& request,
                       Nanoseconds now) {
  connection.parked = request;
  waiters_[request.key].insert(id);
  set_deadline(id, connection, wait_deadline(now, std::chrono::milliseconds(request.number)));
}

void ServerState::unpark(ConnectionId id, Connection& connection) {
  if (!connection.parked) return;
  const auto found = waiters_.find(connection.parked->key);
  if (found != waiters_.end()) {  // there was memory for all of park
    found->second.erase(id);
    if (found->second.empty()) waiters_.erase(found);
  }
  connection.parked.reset();
  set_deadline(id, connection, Nanoseconds::max());
}

void ServerState::wake_waiters(const std::string& key) {
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  const std::set<ConnectionId> woken = found->second;  // unpark changes the original
  const std::string value = *table_.find(key);
  for (ConnectionId id : woken) {
    Connection& connection = connections_.at(id);
    const bool wants_value = connection.parked->kind == RequestKind::get;
    unpark(id, connection);
    reply(id, connection, {Code::ok, 0, wants_value ? value : std::string()});
  }
}

void ServerState::reply(ConnectionId id, Connection& connection, const Response& response) {
  connection.outbox += response.encode();
  active_.insert(id);
}

void ServerState::end(ConnectionId id, Connection& connection) {
  forget(id, connection);
  connection.inbox = {};
  connection.ended = true;
  active_.insert(id);
}

// Takes no memory: whoever could not have any is forgotten like anybody else.
void ServerState::forget(ConnectionId id, Connection& connection) {
  unpark(id, connection);
  strangers_.leave(id);
  set_deadline(id, connection, Nanoseconds::max());
}

void ServerState::disconnected(ConnectionId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  forget(id, found->second);
  active_.erase(id);
  connections_.erase(found);
}

void ServerState::advance(Nanoseconds now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const ConnectionId id = deadlines_.begin()->second;
    Connection& connection = connections_.at(id);
    if (!connection.parked) {
      turn_away(id, "no handshake within 5 s");
      continue;
    }
    const StoreRequest request = *connection.parked;
    unpark(id, connection);
    reply(id, connection,
          failure(missing_key(request.key, std::chrono::milliseconds(request.number))));
  }
}

Nanoseconds ServerState::next_deadline() const {
  return deadlines_.empty() ? Nanoseconds::max() : deadlines_.begin()->first;
}

std::vector<ConnectionId> ServerState::take_active() {
  std::vector<ConnectionId> ids(active_.begin(), active_.end());
  active_.clear();
  return ids;
}

std::string ServerState::take_output(ConnectionId id) {
  const auto found = connections_.find(id);
  return found == connections_.end() ? std::string() : std::exchange(found->second.outbox, {});
}

bool ServerState::ended(ConnectionId id) const {
  const auto found = connections_.find(id);
  return found == connections_.end() || found->second.ended;
}

void ServerState::set_deadline(ConnectionId id, Connection& connection, Nanoseconds deadline) {
  if (connection.deadline != Nanoseconds::max()) deadlines_.erase({connection.deadline, id});
  connection.deadline = deadline;
  if (deadline != Nanoseconds::max()) deadlines_.insert({deadline, id});
}

}  // namespace tutti::store
