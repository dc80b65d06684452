// The first step of Endpoint's making: doors and the address that leads to them. The second step,
// connect, is Joining's.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "core/limits.hpp"
#include "transport/doors.hpp"
#include "transport/endpoint.hpp"
#include "transport/late_links.hpp"
#include "transport/linked_endpoint.hpp"
#include "transport/overlay.hpp"
#include "transport/transport.hpp"

namespace tutti::transport {
namespace {

// Of connections that have proved nothing, beyond those that ranks may make.
constexpr std::size_t kMostPlaces = 512;
constexpr std::size_t kFewestPlaces = 8;
// Worlds of more ranks than this make message links at their first use, hosts with more than that make
// memory links so: on fewer a link to everybody costs little, and none is waited for later.
constexpr int kMostEagerRanks = 16;
constexpr std::size_t kMostEagerBeside = 64;
// The program's own, and what a rank opens besides its links.
constexpr std::size_t kDescriptorsToSpare = 16;

class ListeningOpening final : public Opening {
 public:
  explicit ListeningOpening(OpeningOptions options) : options_(std::move(options)) {}

  // Says who this rank is, and opens the doors of the transports that this machine can use.
  Status begin();
  std::string address() const override { return self_.encode(); }
  Result<std::unique_ptr<Endpoint>> connect(const std::vector<std::string>& addresses,
                                            std::chrono::nanoseconds timeout,
                                            const Watch& watch) override;

 private:
  Status choose_transports();
  Status open_doors();
  Result<Party> gather(const std::vector<std::string>& addresses) const;
  Status prepare(Party& party) const;
  void close_needless_doors(const Party& party);
  Result<std::size_t> places_for_strangers(const Party& party) const;
  void choose_first(Party& party) const;
  Result<std::unique_ptr<Endpoint>> join(Party party, std::size_t places,
                                         LinkedEndpoint::Parts parts, Nanoseconds timeout,
                                         const Watch& watch);

  OpeningOptions options_;
  Address self_;
  std::vector<const Transport*> transports_;
  Doors doors_;
};

Status ListeningOpening::begin() {
  self_.rank = options_.rank;
  self_.pid = ::getpid();
  self_.pid_space = this_pid_space();
  self_.host = this_host_name();
  self_.host_id = this_host_id();
  if (Status status = choose_transports(); !status.ok()) return status;
  return options_.size == 1 ? Status() : open_doors();  // to one alone nobody will come
}

Status ListeningOpening::choose_transports() {
  const auto all =
      options_.transports.empty() ? built_in_transports() : std::span(options_.transports);
  auto named = named_transports(options_.config.transport, all);
  if (!named.ok()) return named.status();
  std::string reasons;
  for (const Transport* transport : *named) {
    auto note = transport->viable(options_.config);
    if (note.ok()) {
      transports_.push_back(transport);
      self_.ready.push_back({std::string(transport->name()), *std::move(note)});
      continue;
    }
    options_.log.info(Subsystem::init, "this machine cannot use {}: {}", transport->name(),
                      note.status().message());
    reasons += fmt::format("; {}: {}", transport->name(), note.status().message());
  }
  if (!transports_.empty()) return {};
  return {Code::unsupported,
          fmt::format("this machine can use none of the transports '{}' (TUTTI_TRANSPORT){}",
                      options_.config.transport, reasons)};
}

Status ListeningOpening::open_doors() {
  // Strangers queue here too: a queue that is full makes ranks wait for whole seconds.
  const int backlog = std::clamp(options_.size, 4096, 65535);
  const auto is_used = [&](Door door) {
    return std::any_of(transports_.begin(), transports_.end(),
                       [&](const Transport* transport) { return transport->door() == door; });
  };
  if (is_used(Door::local))
    if (Status status = doors_.open_local(backlog); !status.ok()) return status;
  if (is_used(Door::network))
    if (Status status = doors_.open_network(options_.config, backlog); !status.ok()) return status;
  self_.local = doors_.local_address;
  self_.tcp_loopback = doors_.network.loopback_address;
  self_.tcp_outward = doors_.network.outward_address;
  return {};
}

Result<Party> ListeningOpening::gather(const std::vector<std::string>& addresses) const {
  if (addresses.size() != static_cast<std::size_t>(options_.size))
    return Status(Code::invalid_argument,
                  fmt::format("{} addresses for {} ranks", addresses.size(), options_.size));
  Party party;
  party.rank = options_.rank;
  party.epoch = options_.epoch;
  party.secret = options_.secret;
  auto tls = TlsContext::create(options_.config, options_.secret);
  if (!tls.ok()) return tls.status();
  party.tls = *std::move(tls);
  party.config = options_.config;
  party.transports = transports_;
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    auto address = Address::decode(addresses[rank]);
    if (!address.ok()) return address.status().annotate(fmt::format("address of rank {}", rank));
    if (address->rank != static_cast<int>(rank))
      return Status(Code::mismatch, fmt::format("rank {} gave its address as that of rank {}",
                                                address->rank, rank));
    // Everybody on this host computes the same list.
    if (address->shares_host(self_)) party.lanes.push_back(address->rank);
    party.addresses.push_back(std::move(*address));
  }
  return party;
}

// Which links are made while ranks join.
void ListeningOpening::choose_first(Party& party) const {
  const std::string& wish = options_.config.links;
  if (wish == "eager" || (wish == "auto" && party.size() <= kMostEagerRanks)) return;
  party.lazy = true;
  party.first = overlay_neighbours(party.rank, party.size(), [](int) { return false; });
  for (int peer = 0; peer < party.size(); ++peer) {
    if (peer == party.rank) continue;
    const auto routes = party.routes(peer);
    const bool is_crowd = party.lanes.size() > kMostEagerBeside;
    const bool is_late = !routes.empty() && routes.front()->links_late() &&
                         (is_crowd || !routes.front()->shares_memory());
    if (!is_late) party.first.push_back(peer);
  }
  std::sort(party.first.begin(), party.first.end());
  party.first.erase(std::unique(party.first.begin(), party.first.end()), party.first.end());
}

// Only what some pair is going to use: shared memory, for one, is not free.
Status ListeningOpening::prepare(Party& party) const {
  auto window = Window::create(
      party.rank,
      WindowShape::of(static_cast<int>(party.lanes.size()), options_.config.segment_bytes), false);
  if (!window.ok()) return window.status();
  party.window = *std::move(window);
  std::vector<const Transport*> used;
  for (int peer = 0; peer < party.size(); ++peer)
    if (const auto routes = party.routes(peer); peer != party.rank && !routes.empty())
      used.push_back(routes.front());
  for (const Transport* transport : transports_) {
    if (std::find(used.begin(), used.end(), transport) == used.end()) continue;
    if (Status status = transport->prepare(party); !status.ok())
      options_.log.warn(Subsystem::init, "no {} links: {}", transport->name(), status.message());
  }
  return {};
}

// Where all ranks are on one host nobody else is to come, and loopback will do.
void ListeningOpening::close_needless_doors(const Party& party) {
  const bool all_here = party.lanes.size() == party.addresses.size();
  if (all_here && doors_.network.loopback) doors_.network.outward.reset();
  if (party.lanes.size() == 1) {
    doors_.local.reset();
    if (doors_.network.outward) doors_.network.loopback.reset();
  }
}

// Descriptors for every link must be there; what is left beyond them, up to kMostPlaces, is for those
// who have proved nothing. A rank needs one place for each connection that may be made to it.
Result<std::size_t> ListeningOpening::places_for_strangers(const Party& party) const {
  std::size_t needed = open_descriptors() + kDescriptorsToSpare;
  std::size_t expected = 0;
  std::size_t later = 0;
  for (int peer = 0; peer < party.size(); ++peer) {
    const auto routes = party.routes(peer);
    if (peer == party.rank || routes.empty()) continue;
    const auto connections =
        static_cast<std::size_t>(routes.front()->connections(party.self(), party.of(peer)));
    // Beside the connection a link on one host has a bell and a process to watch.
    const std::size_t descriptors = routes.front()->door() == Door::local ? 3 : connections;
    (party.is_eager(peer) ? needed : later) += descriptors;
    if (peer > party.rank) expected += connections;
  }
  const std::uint64_t limit = allow_descriptors(needed + later + expected + kMostPlaces);
  if (limit < needed)
    return Status(
        Code::out_of_memory,
        fmt::format("rank {} needs {} descriptors for its links to {} ranks, and its limit "
                    "is {} (RLIMIT_NOFILE; ulimit -n, or the container's)",
                    party.rank, needed, party.size() - 1, limit),
        {party.rank, party.rank, 0});
  const auto rest = static_cast<std::size_t>(std::min<std::uint64_t>(limit - needed, kMostPlaces));
  return expected + std::max(rest / 2, kFewestPlaces);
}

Result<std::unique_ptr<Endpoint>> ListeningOpening::connect(
    const std::vector<std::string>& addresses, std::chrono::nanoseconds timeout,
    const Watch& watch) {
  auto party = gather(addresses);
  if (!party.ok()) return party.status();
  choose_first(*party);
  close_needless_doors(*party);
  auto places = places_for_strangers(*party);
  if (!places.ok()) return places.status();
  if (Status status = prepare(*party); !status.ok()) return status;

  LinkedEndpoint::Parts parts;
  parts.rank = options_.rank;
  parts.size = options_.size;
  parts.window = party->window;
  parts.log = options_.log;
  for (const Address& address : party->addresses)
    parts.whereabouts.push_back(address.whereabouts());
  return join(*std::move(party), *places, std::move(parts), timeout, watch);
}

Result<std::unique_ptr<Endpoint>> ListeningOpening::join(Party party, std::size_t places,
                                                         LinkedEndpoint::Parts parts,
                                                         Nanoseconds timeout, const Watch& watch) {
  auto endpoint = LinkedEndpoint::create(std::move(parts));
  if (!endpoint.ok()) return endpoint.status();
  const bool lazy = party.lazy;
  auto links = std::make_unique<LateLinks>(std::move(party), std::move(doors_), places, **endpoint,
                                           options_.log);
  doors_ = {};
  Status joined = links->joining().run(timeout, watch);
  if (joined.ok() && lazy) joined = (*endpoint)->keep_open(std::move(links));
  links.reset();
  if (joined.ok()) joined = (*endpoint)->start_pulse(options_.config.dead_after);
  if (!joined.ok()) return joined;
  return std::unique_ptr<Endpoint>(std::move(*endpoint));
}

}  // namespace

Result<std::unique_ptr<Opening>> Opening::open(OpeningOptions options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    return Status(Code::invalid_argument,
                  fmt::format("there is no rank {} among {} ranks", options.rank, options.size));
  auto opening = std::make_unique<ListeningOpening>(std::move(options));
  if (Status status = opening->begin(); !status.ok()) return status;
  return std::unique_ptr<Opening>(std::move(opening));
}

}  // namespace tutti::transport
