// shm: processes of one host (docs/transports/shm.md).
#include "transport/linked_endpoint.hpp"
#include "transport/mapping.hpp"
#include "transport/memory_greeting.hpp"
#include "transport/shm/lifeline.hpp"

namespace tutti::transport {
namespace {

constexpr std::size_t kTrialBytes = 4096;

class Shm final : public Transport {
 public:
  std::string_view name() const override { return "shm"; }
  Door door() const override { return Door::local; }
  bool links_late() const override { return true; }
  bool shares_memory() const override { return true; }
  std::size_t eager_bytes() const override { return kSmallBytes; }
  bool keeps_connections() const override { return true; }
  Result<std::string> viable(const Config&) const override {
    if (auto trial = make_shared_memory("tutti-trial", kTrialBytes); !trial.ok())
      return trial.status();
    return std::string();
  }
  bool can_link(const Address& a, const Address& b) const override { return a.shares_host(b); }

  // A window that other processes can map, in place of one that only this process sees.
  Status prepare(Party& party) const override {
    auto window = Window::create(party.rank, party.window->shape(), true);
    if (!window.ok()) return window.status();
    party.window = *std::move(window);
    return {};
  }
  std::unique_ptr<Greeting> greet(const Party& party, const NewPeer& peer) const override {
    return std::make_unique<MemoryGreeting>(party, peer, false);
  }
  // The connection stays open as lifeline.
  Status link(LinkedEndpoint& endpoint, const Party& party, int peer,
              std::vector<Connection> connections) const override {
    auto& greeting = static_cast<MemoryGreeting&>(*connections.front().greeting);
    MemoryLink& link = endpoint.add_memory({.name = name(),
                                            .same_process = false,
                                            .peer = peer,
                                            .theirs = greeting.take_window(),
                                            .lane_of_peer = party.lane_of(peer),
                                            .lane_of_self = party.lane_of(party.rank)});
    return endpoint.add_lifeline(std::make_unique<Lifeline>(
        peer, link, connections.front().socket.take_socket(), greeting.process()));
  }
};

}  // namespace

const Transport& shm_transport() {
  static const Shm shm;
  return shm;
}

}  // namespace tutti::transport
