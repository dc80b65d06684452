// ofi: ranks that a fabric joins, by libfabric (docs/transports/ofi.md).
#include <algorithm>

#include "core/words.hpp"
#include "transport/linked_endpoint.hpp"
#include "transport/ofi/greeting.hpp"
#include "transport/ofi/providers.hpp"
#include "transport/transport.hpp"

namespace tutti::transport {
namespace {

constexpr std::size_t kLeastLanding = 64 * 1024;  // a whole eager message
constexpr std::size_t kMostLanding = std::size_t{8} << 20;
constexpr std::string_view kOneHost = "shm";

bool was_asked_for(const Config& config) {
  const auto words = split_words(config.transport, ',');
  return !config.ofi_provider.empty() ||
         std::find(words.begin(), words.end(), "ofi") != words.end();
}

Result<ofi::Provider> provider_for(const Config& config) {
  auto all = ofi::providers(config.ofi_provider);
  if (all.ok() && all->empty()) all = ofi::providers();  // to say which there are
  if (!all.ok()) return all.status();
  auto chosen = ofi::choose_provider(config, std::move(*all));
  if (chosen.ok() && !chosen->hardware && !was_asked_for(config))
    return Status(Code::unsupported, "no provider of libfabric here is hardware");
  return chosen;
}

class Ofi final : public Transport {
 public:
  std::string_view name() const override { return "ofi"; }
  // The ranks meet by tcp, and the connection stays beside the fabric.
  Door door() const override { return Door::network; }
  bool keeps_connections() const override { return true; }

  // The note is the provider: both sides need the same.
  Result<std::string> viable(const Config& config) const override {
    if (config.tls)
      return Status(Code::unsupported,
                    "TUTTI_TLS=1 asks for encryption, which fabrics do not have");
    if (!was_asked_for(config) && !ofi::has_fabric_hardware())
      return Status(Code::unsupported,
                    "there is no fabric in /sys/class (TUTTI_TRANSPORT=ofi uses what there is)");
    auto provider = provider_for(config);
    if (!provider.ok()) return provider.status();
    return provider->name;
  }
  bool can_link(const Address& a, const Address& b) const override {
    const std::string& provider = *a.note_of(name());
    return provider == *b.note_of(name()) && (provider != kOneHost || a.shares_host(b));
  }

  Status prepare(Party& party) const override {
    const auto provider = provider_for(party.config);
    if (!provider.ok()) return provider.status();
    const std::size_t landing_bytes =
        std::clamp(2 * party.config.segment_bytes / 64 * 64, kLeastLanding, kMostLanding);
    auto fabric =
        ofi::FabricPort::open(*provider, party.size(), landing_bytes, party.config.busy_poll == 0);
    if (!fabric.ok()) return fabric.status();
    party.fabric = *std::move(fabric);
    return {};
  }
  std::unique_ptr<Greeting> greet(const Party& party, const NewPeer& peer) const override {
    return std::make_unique<ofi::OfiGreeting>(party, peer.rank);
  }
  Status link(LinkedEndpoint& endpoint, const Party& party, int peer,
              std::vector<Connection> connections) const override {
    Connection& connection = connections.front();
    auto& greeting = static_cast<ofi::OfiGreeting&>(*connection.greeting);
    auto made = ofi::OfiLink::create(
        party.fabric, {party.rank, peer, party.of(peer).whereabouts(), greeting.take_agreement()},
        std::move(connection.socket), party.config.dead_after);
    if (!made.ok()) return made.status();
    return endpoint.add_message(peer, std::move(*made));
  }
};

}  // namespace

const Transport& ofi_transport() {
  static const Ofi ofi;
  return ofi;
}

}  // namespace tutti::transport
