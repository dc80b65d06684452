// inproc: ranks that are threads of one process (docs/transports/inproc.md).
#include "transport/linked_endpoint.hpp"
#include "transport/memory_greeting.hpp"

namespace tutti::transport {
namespace {

class Inproc final : public Transport {
 public:
  std::string_view name() const override { return "inproc"; }
  Door door() const override { return Door::local; }
  bool links_late() const override { return true; }
  bool shares_memory() const override { return true; }
  std::size_t eager_bytes() const override { return kSmallBytes; }
  Result<std::string> viable(const Config&) const override { return std::string(); }
  bool can_link(const Address& a, const Address& b) const override { return a.shares_process(b); }

  std::unique_ptr<Greeting> greet(const Party& party, const NewPeer& peer) const override {
    return std::make_unique<MemoryGreeting>(party, peer, true);
  }
  Status link(LinkedEndpoint& endpoint, const Party& party, int peer,
              std::vector<Connection> connections) const override {
    auto& greeting = static_cast<MemoryGreeting&>(*connections.front().greeting);
    endpoint.add_memory({.name = name(),
                         .same_process = true,
                         .peer = peer,
                         .theirs = greeting.take_window(),
                         .lane_of_peer = party.lane_of(peer),
                         .lane_of_self = party.lane_of(party.rank)});
    return {};
  }
};

}  // namespace

const Transport& inproc_transport() {
  static const Inproc inproc;
  return inproc;
}

}  // namespace tutti::transport
