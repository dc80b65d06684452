// unix - a toy transport, as docs/extending.md shows it: messages through the Unix socket by which
// ranks of one host meet.
#include "extending/toys.hpp"
#include "extending/unix_link.hpp"
#include "transport/linked_endpoint.hpp"

namespace tutti::toys {
namespace {

class Unix final : public Transport {
 public:
  std::string_view name() const override { return "unix"; }
  Door door() const override { return Door::local; }
  // Is it viable here? Wherever ranks can meet by that door. There is nothing to tell the peers.
  Result<std::string> viable(const Config&) const override { return std::string(); }
  // Can these two talk? If they are on one host.
  bool can_link(const Address& a, const Address& b) const override { return a.shares_host(b); }
  // They have met, and said welcome: the connection becomes the link.
  Status link(LinkedEndpoint& endpoint, const Party& party, int peer,
              std::vector<Connection> connections) const override {
    return endpoint.add_message(
        peer, std::make_unique<UnixLink>(party.rank, peer, connections[0].socket.take_socket()));
  }
};

}  // namespace

const Transport& unix_transport() {
  static const Unix toy;
  return toy;
}

}  // namespace tutti::toys
