// tcp: processes anywhere (docs/transports/tcp.md).
#include <fmt/format.h>

#include <algorithm>

#include "core/files.hpp"
#include "core/words.hpp"
#include "transport/linked_endpoint.hpp"
#include "transport/tcp/socket_options.hpp"
#include "transport/tcp/tcp_link.hpp"
#include "transport/transport.hpp"

namespace tutti::transport {
namespace {

constexpr std::string_view kExpress = " express";
constexpr std::string_view kPlain = " plain";

class Tcp final : public Transport {
 public:
  std::string_view name() const override { return "tcp"; }
  Door door() const override { return Door::network; }
  bool keeps_connections() const override { return true; }
  bool links_late() const override { return true; }
  std::size_t eager_bytes() const override { return TcpLink::kEagerBytes; }
  // The note is how many connections this rank wants with each peer, whether one more for what is urgent,
  // and "plain" if it can do without checksums.
  Result<std::string> viable(const Config& config) const override {
    return fmt::format("{}{}{}", std::clamp(config.streams, 1, kMaxStreams),
                       config.tcp_express ? kExpress : "", config.tcp_checksum ? "" : kPlain);
  }
  bool can_link(const Address&, const Address&) const override { return true; }
  // As many as both want; the express is the last.
  int connections(const Address& a, const Address& b) const override {
    return std::min(streams_of(a), streams_of(b)) + (have_express(a, b) ? 1 : 0);
  }

  Status link(LinkedEndpoint& endpoint, const Party& party, int peer,
              std::vector<Connection> connections) const override {
    std::vector<ByteStream> sockets;
    for (Connection& connection : connections) {
      if (!choose_congestion_control(connection.socket.get(), party.config.tcp_congestion))
        return Status(
            Code::invalid_argument,
            fmt::format("TUTTI_TCP_CONGESTION: this kernel does not give us '{}'; "
                        "/proc/sys/net/ipv4/tcp_allowed_congestion_control lists what it has",
                        party.config.tcp_congestion),
            {party.rank, peer, 0});
      if (!poll_busily(connection.socket.get(), party.config.busy_poll))
        return Status(Code::invalid_argument,
                      fmt::format("TUTTI_BUSY_POLL: this process may not ask for {} µs; it takes "
                                  "CAP_NET_ADMIN, or net.core.busy_read of as much",
                                  party.config.busy_poll),
                      {party.rank, peer, 0});
      sockets.push_back(std::move(connection.socket));
    }
    return endpoint.add_message(
        peer, std::make_unique<TcpLink>(party.rank, peer, std::move(sockets),
                                        party.config.segment_bytes, party.of(peer).whereabouts(),
                                        !is_plain(party.self()) || !is_plain(party.of(peer)),
                                        party.config.dead_after, steady_clock(),
                                        have_express(party.self(), party.of(peer))));
  }

 private:
  int streams_of(const Address& address) const {
    const auto wanted = parse_integer(first_word(*address.note_of(name())));
    return static_cast<int>(std::clamp<std::int64_t>(wanted.ok() ? *wanted : 1, 1, kMaxStreams));
  }
  bool have_express(const Address& a, const Address& b) const {
    return a.note_of(name())->find(kExpress) != std::string::npos &&
           b.note_of(name())->find(kExpress) != std::string::npos;
  }
  // A link goes without checksums only if both sides do.
  bool is_plain(const Address& address) const { return address.note_of(name())->ends_with(kPlain); }
};

}  // namespace

const Transport& tcp_transport() {
  static const Tcp tcp;
  return tcp;
}

}  // namespace tutti::transport
