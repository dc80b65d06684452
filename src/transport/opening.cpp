// The first step of Endpoint's making: listeners and the address that leads to them. The second
// step, connect, is Joining's.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "core/auth.hpp"
#include "transport/address.hpp"
#include "transport/endpoint.hpp"
#include "transport/joining.hpp"
#include "transport/linked_endpoint.hpp"
#include "transport/tcp/listeners.hpp"

namespace tutti::transport {
namespace {

std::string random_name() {
  std::string name = "@tutti-";
  for (const char byte : random_bytes(12))
    name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return name;
}

class ListeningOpening final : public Opening {
 public:
  ListeningOpening(OpeningOptions options, Address self)
      : options_(std::move(options)), self_(std::move(self)) {}

  Status listen();
  std::string address() const override { return self_.encode(); }
  Result<std::unique_ptr<Endpoint>> connect(const std::vector<std::string>& addresses,
                                            std::chrono::nanoseconds timeout) override;

 private:
  Result<Party> gather(const std::vector<std::string>& addresses) const;
  Result<std::shared_ptr<Window>> make_window(Party& party, std::size_t lanes);
  void close() {
    local_.reset();
    tcp_ = {};
  }

  OpeningOptions options_;
  Address self_;
  Descriptor local_;
  TcpListeners tcp_;
};

Status ListeningOpening::listen() {
  if (options_.size == 1) return {};  // nobody will come
  const int backlog = std::clamp(options_.size, 1024, 65535);
  if (self_.allowed.inproc || self_.allowed.shm) {
    const std::string name = random_name();
    auto address = SocketAddress::parse(name);
    if (!address.ok()) return address.status();
    auto listener = listen_on(*address, backlog);
    if (!listener.ok()) return listener.status();
    local_ = std::move(*listener);
    self_.local = name;
  }
  if (self_.allowed.tcp) {
    auto listeners = TcpListeners::open(options_.config, backlog);
    if (!listeners.ok()) return listeners.status();
    tcp_ = std::move(*listeners);
    self_.tcp_loopback = tcp_.loopback_address;
    self_.tcp_outward = tcp_.outward_address;
  }
  return {};
}

Result<Party> ListeningOpening::gather(const std::vector<std::string>& addresses) const {
  if (addresses.size() != static_cast<std::size_t>(options_.size))
    return Status(Code::invalid_argument,
                  fmt::format("{} addresses for {} ranks", addresses.size(), options_.size));
  Party party{options_.rank, options_.epoch, options_.secret, {}, nullptr};
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    auto address = Address::decode(addresses[rank]);
    if (!address.ok()) return address.status().annotate(fmt::format("address of rank {}", rank));
    if (address->rank != static_cast<int>(rank))
      return Status(Code::mismatch, fmt::format("rank {} gave its address as that of rank {}",
                                                address->rank, rank));
    party.addresses.push_back(std::move(*address));
  }
  return party;
}

// Shared memory only if another process is going to map it. Without room for it there are no memory
// links, and tcp takes their place.
Result<std::shared_ptr<Window>> ListeningOpening::make_window(Party& party, std::size_t lanes) {
  const WindowShape shape = WindowShape::of(static_cast<int>(lanes), options_.config.segment_bytes);
  // Which kinds the pairs would use does not depend on the window but on there being one.
  auto plain = Window::create(options_.rank, shape, false);
  if (!plain.ok()) return plain.status();
  party.window = *plain;
  bool shared = false;
  for (int peer = 0; peer < party.size(); ++peer)
    if (peer != party.rank) shared |= party.local_kind(peer) == LinkKind::shm;
  if (!shared) return plain;
  auto window = Window::create(options_.rank, shape, true);
  if (window.ok())
    party.window = *window;
  else {
    options_.log.warn(Subsystem::shm, "no memory links: {}", window.status().message());
    party.window = nullptr;
    return plain;
  }
  return window;
}

Result<std::unique_ptr<Endpoint>> ListeningOpening::connect(
    const std::vector<std::string>& addresses, std::chrono::nanoseconds timeout) {
  auto party = gather(addresses);
  if (!party.ok()) return party.status();
  std::vector<int> lanes;  // everybody on this host computes the same list
  for (const Address& address : party->addresses)
    if (address.host_id == self_.host_id) lanes.push_back(address.rank);
  auto window = make_window(*party, lanes.size());
  if (!window.ok()) return window.status();

  LinkedEndpoint::Parts parts;
  parts.rank = options_.rank;
  parts.size = options_.size;
  parts.window = *window;
  parts.log = options_.log;
  for (const Address& address : party->addresses)
    parts.whereabouts.push_back(address.whereabouts());
  auto endpoint = LinkedEndpoint::create(std::move(parts));
  if (!endpoint.ok()) return endpoint.status();

  Joining joining(*party, local_, tcp_, **endpoint, std::move(lanes), options_.config,
                  options_.log);
  Status joined = joining.run(timeout);
  close();
  if (!joined.ok()) return joined;
  return std::unique_ptr<Endpoint>(std::move(*endpoint));
}

}  // namespace

Result<std::unique_ptr<Opening>> Opening::open(OpeningOptions options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    return Status(Code::invalid_argument,
                  fmt::format("there is no rank {} among {} ranks", options.rank, options.size));
  auto allowed = Allowed::parse(options.config.transport);
  if (!allowed.ok()) return allowed.status();
  Address self;
  self.rank = options.rank;
  self.pid = ::getpid();
  self.host = this_host_name();
  self.host_id = this_host_id();
  self.allowed = *allowed;
  self.streams = std::clamp(options.config.streams, 1, kMaxStreams);
  auto opening = std::make_unique<ListeningOpening>(std::move(options), std::move(self));
  if (Status status = opening->listen(); !status.ok()) return status;
  return std::unique_ptr<Opening>(std::move(opening));
}

}  // namespace tutti::transport
