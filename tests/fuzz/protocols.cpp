// What strangers can say before and after they have proved who they are.
#include <algorithm>

#include "core/auth.hpp"
#include "core/check.hpp"
#include "fuzz/targets.hpp"
#include "store/protocol.hpp"
#include "store/server_state.hpp"

namespace tutti::fuzz {
namespace {

const std::string kSecret(32, 's');

// Feeds as much as is asked for, so long as there is any.
template <class Feed>
void in_pieces(Input input, std::size_t most, const Feed& feed) {
  while (!input.empty()) {
    const std::size_t bytes = std::min(input.size(), most);
    if (!feed(text_of(input.first(bytes)))) return;
    input = input.subspan(bytes);
  }
}

// A client of the store that knows the secret, as far as its proof.
void introduce(store::ServerState& server, store::ConnectionId id) {
  server.connected(id, "10.0.0.7", Nanoseconds(1));
  Handshake client = Handshake::client(kSecret, {.role = kRoleStore});
  for (int turn = 0; turn < 8; ++turn) {
    server.received(id, client.take_output(), Nanoseconds(1));
    if (client.done()) return;
    const std::string answer = server.take_output(id);
    for (std::string_view rest = answer; !rest.empty() && client.wants() > 0;) {
      const std::size_t bytes = std::min(rest.size(), client.wants());
      TUTTI_CHECK(client.feed(rest.substr(0, bytes)).ok());
      rest.remove_prefix(bytes);
    }
  }
}

}  // namespace

// Nobody who does not know the secret is ever believed.
void handshake(Input input) {
  const bool is_client = take<std::uint8_t>(input) % 2 == 0;
  Handshake side = is_client ? Handshake::client(kSecret, {kRoleData, 1, 7})
                             : Handshake::server(kSecret, {kRoleData, 0, 7});
  in_pieces(input, 50, [&](std::string_view bytes) {
    bytes = bytes.substr(0, std::min(bytes.size(), side.wants()));
    const Status status = side.feed(bytes);
    (void)side.take_output();
    TUTTI_CHECK(!side.done());
    return status.ok();
  });
  // Nor by a knock.
  TUTTI_CHECK(input.size() < kKnockBytes || !check_knock(kSecret, text_of(input)).ok());
  (void)read_knock_refusal(text_of(input));
}

// Requests by a known client in the presence of a second one, and both sides' messages by themselves.
void store(Input input) {
  if (auto request = store::StoreRequest::decode(text_of(input)); request.ok())
    TUTTI_CHECK(request->encode().substr(store::kLengthBytes) == text_of(input));
  if (auto response = store::Response::decode(text_of(input)); response.ok())
    TUTTI_CHECK(response->encode().substr(store::kLengthBytes) == text_of(input));
  store::ServerState server(kSecret);
  introduce(server, 1);
  introduce(server, 2);
  std::uint64_t turn = 0;
  in_pieces(input, 1 + take<std::uint8_t>(input), [&](std::string_view bytes) {
    const store::ConnectionId id = 1 + turn++ % 2;
    server.received(id, bytes, Nanoseconds(turn));
    server.advance(Nanoseconds(turn));
    for (const store::ConnectionId active : server.take_active()) (void)server.take_output(active);
    return !server.ended(1) || !server.ended(2);
  });
  for (const store::ConnectionId id : {1, 2}) server.disconnected(id);
  TUTTI_CHECK(server.connections() == 0);
}

}  // namespace tutti::fuzz
