#include "support/transports/sim_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "core/check.hpp"

namespace tutti::transport {

namespace {
constexpr std::size_t kEagerBytes = 4096;
// Payloads up to this are copied on sending, larger ones are lent.
constexpr std::size_t kCopyBytes = 1024;
}  // namespace

class SimLink final : public Link {
 public:
  SimLink(SimNetwork& network, int self, int peer) : network_(network), self_(self), peer_(peer) {}

  std::string_view name() const override { return "sim"; }
  std::size_t eager_bytes() const override { return kEagerBytes; }
  Sent send(const Header& header, const void* payload, std::size_t bytes,
            std::uint64_t token) override {
    return network_.send(self_, peer_, header, payload, bytes, token);
  }
  void release(std::uint64_t lease) override { received_.erase(lease); }
  bool revoked(std::uint64_t) const override { return false; }
  void forget(std::uint32_t channel) override { network_.forget(self_, peer_, channel); }
  MemoryRef share(const void*, std::size_t) const override { return {}; }
  std::byte* reach(const MemoryRef&, std::size_t) const override { return nullptr; }

  bool poll(MessageSink& sink) override {
    bool moved = give_back(sink);
    auto& incoming = network_.pipe(peer_, self_);
    const bool is_cut = network_.clock_.now() >= incoming.cut_at;
    while (!down_ && !is_cut && !incoming.frames.empty() &&
           incoming.frames.front().due <= network_.clock_.now()) {
      SimNetwork::Frame frame = std::move(incoming.frames.front());
      incoming.frames.pop_front();
      deliver(frame, incoming, sink);
      moved = true;
    }
    const Nanoseconds died = network_.died_[static_cast<std::size_t>(peer_)];
    if (!down_ && died != Nanoseconds::max() && incoming.frames.empty() &&
        network_.clock_.now() >= died + network_.options_.death_notice) {
      down_ = moved = true;
      sink.on_down(peer_,
                   {Code::peer_lost, fmt::format("rank {} was killed", peer_), {self_, peer_, 0}});
    }
    if (!down_ && network_.clock_.now() >= network_.given_up_at(self_, peer_)) {
      down_ = moved = true;
      sink.on_down(
          peer_,
          {Code::peer_lost, fmt::format("nothing was heard of rank {}", peer_), {self_, peer_, 0}});
    }
    return moved;
  }

 private:
  bool give_back(MessageSink& sink) {
    auto& outgoing = network_.pipe(self_, peer_);
    const bool any = !outgoing.sent.empty();
    for (; !outgoing.sent.empty(); outgoing.sent.pop_front()) sink.on_sent(outgoing.sent.front());
    return any;
  }

  void deliver(SimNetwork::Frame& frame, SimNetwork::Pipe& pipe, MessageSink& sink) {
    const std::size_t bytes = frame.header.bytes;
    pipe.in_flight -= bytes;
    if (frame.lent != nullptr) {
      frame.copy.assign(frame.lent, frame.lent + bytes);
      pipe.sent.push_back(frame.token);
    }
    Payload payload;
    if (bytes <= kInlineBytes) {
      payload.data = frame.copy.data();
      sink.on_message(peer_, frame.header, payload);
      return;
    }
    payload.lease = ++leases_;
    auto& kept = received_[payload.lease] = std::move(frame.copy);
    payload.data = kept.data();
    sink.on_message(peer_, frame.header, payload);
  }

  SimNetwork& network_;
  int self_;
  int peer_;
  bool down_ = false;
  std::uint64_t leases_ = 0;
  std::map<std::uint64_t, std::vector<std::byte>> received_;
};

class SimEndpoint final : public Endpoint {
 public:
  SimEndpoint(SimNetwork& network, int rank) : network_(network), rank_(rank) {
    for (int peer = 0; peer < size(); ++peer)
      links_.push_back(peer == rank ? nullptr : std::make_unique<SimLink>(network, rank, peer));
  }

  int rank() const override { return rank_; }
  int size() const override { return network_.options_.ranks; }
  Link* link(int peer) override { return links_[static_cast<std::size_t>(peer)].get(); }
  bool poll(MessageSink& sink) override {
    bool moved = false;
    for (auto& link : links_)
      if (link) moved |= link->poll(sink);
    return moved;
  }
  // Nobody sleeps in a simulation: whoever steps it moves the clock.
  void sleep(Nanoseconds, bool, const std::function<bool()>&) override { TUTTI_CHECK(false); }
  void wake() override {}
  Result<MemoryRegion> allocate_region(std::uint64_t, std::size_t,
                                       const std::vector<int>&) override {
    return Status(Code::unsupported, "simulated links share no memory");
  }
  bool region_has_come(int, std::uint64_t) const override { return false; }
  void free_region(std::uint64_t) override {}
  std::string whereabouts(int rank) const override { return fmt::format("simulated {}", rank); }

 private:
  SimNetwork& network_;
  int rank_;
  std::vector<std::unique_ptr<SimLink>> links_;
};

SimNetwork::SimNetwork(SimOptions options, VirtualClock& clock)
    : options_(options),
      clock_(clock),
      engine_(options.seed),
      pipes_(static_cast<std::size_t>(options.ranks * options.ranks)),
      died_(static_cast<std::size_t>(options.ranks), Nanoseconds::max()) {
  for (Pipe& way : pipes_)
    way.latency = options.uneven ? latency_from_a_wide_range(engine_) : options.latency;
}

SimNetwork::~SimNetwork() = default;

std::unique_ptr<Endpoint> SimNetwork::endpoint(int rank) {
  return std::make_unique<SimEndpoint>(*this, rank);
}

SimNetwork::Pipe& SimNetwork::pipe(int from, int to) {
  return pipes_[static_cast<std::size_t>(from * options_.ranks + to)];
}
const SimNetwork::Pipe& SimNetwork::pipe(int from, int to) const {
  return pipes_[static_cast<std::size_t>(from * options_.ranks + to)];
}

std::uint64_t SimNetwork::random(std::uint64_t below) { return below == 0 ? 0 : engine_() % below; }

Sent SimNetwork::send(int from, int to, Header header, const void* payload, std::size_t bytes,
                      std::uint64_t token) {
  if (!alive(from) || !alive(to)) return {true, false, bytes};
  Pipe& way = pipe(from, to);
  const bool divisible = header.kind == MessageKind::data || header.kind == MessageKind::bulk;
  const bool refusable = divisible || header.kind == MessageKind::eager;
  if (refusable && way.in_flight > 0 && way.in_flight + bytes > options_.most_in_flight) return {};
  // Now and then only a part is taken, on a 64-byte border.
  if (divisible && bytes > 128 && random(3) == 0) bytes = 64 + random(bytes - 64) / 64 * 64;
  Frame frame;
  header.bytes = bytes;
  frame.header = header;
  const bool lend = divisible && bytes > kCopyBytes;
  if (lend) {
    frame.lent = static_cast<const std::byte*>(payload);
    frame.token = token;
  } else if (bytes > 0) {
    const auto* data = static_cast<const std::byte*>(payload);
    frame.copy.assign(data, data + bytes);
  }
  const auto wire = Nanoseconds(static_cast<std::int64_t>(
      static_cast<double>(bytes + sizeof header) / options_.bytes_per_second * 1e9));
  const Nanoseconds late(
      static_cast<std::int64_t>(random(static_cast<std::uint64_t>(options_.jitter.count()) + 1)));
  way.free_at = std::max(way.free_at, clock_.now()) + wire;
  frame.due = way.free_at + way.latency + late;
  if (!way.frames.empty()) frame.due = std::max(frame.due, way.frames.back().due);  // order is kept
  way.in_flight += bytes;
  way.frames.push_back(std::move(frame));
  return {true, lend, bytes};
}

// What was lent for `channel` is not touched any more: like the queue of a tcp link, it keeps a copy.
void SimNetwork::forget(int from, int to, std::uint32_t channel) {
  for (Frame& frame : pipe(from, to).frames) {
    if (frame.header.channel != channel || frame.lent == nullptr) continue;
    frame.copy.assign(frame.lent, frame.lent + frame.header.bytes);
    frame.lent = nullptr;
  }
}

void SimNetwork::kill(int rank) {
  died_[static_cast<std::size_t>(rank)] = clock_.now();
  for (int peer = 0; peer < options_.ranks; ++peer) {
    // What had left already may still arrive; lent memory is the dead rank's and is not read again.
    auto& frames = pipe(rank, peer).frames;
    const auto first_lent = std::find_if(frames.begin(), frames.end(),
                                         [](const Frame& frame) { return frame.lent != nullptr; });
    frames.erase(first_lent, frames.end());
  }
}

void SimNetwork::cut(int from, int to) {
  pipe(from, to).cut_at = std::min(pipe(from, to).cut_at, clock_.now());
}

Nanoseconds SimNetwork::given_up_at(int one, int other) const {
  return deadline_after(std::min(pipe(one, other).cut_at, pipe(other, one).cut_at),
                        options_.silence);
}

bool SimNetwork::alive(int rank) const {
  return died_[static_cast<std::size_t>(rank)] == Nanoseconds::max();
}

Nanoseconds SimNetwork::next_event() const {
  Nanoseconds next = Nanoseconds::max();
  for (int from = 0; from < options_.ranks; ++from)
    for (int to = 0; to < options_.ranks; ++to) {
      const Pipe& way = pipe(from, to);
      if (const Nanoseconds gone = given_up_at(from, to); gone > clock_.now())
        next = std::min(next, gone);
      if (!alive(to) || clock_.now() >= way.cut_at) continue;
      for (const Frame& frame : way.frames)
        if (frame.due > clock_.now()) {
          next = std::min(next, frame.due);
          break;
        }
    }
  for (const Nanoseconds died : died_)
    if (died != Nanoseconds::max() && died + options_.death_notice > clock_.now())
      next = std::min(next, died + options_.death_notice);
  return next;
}

}  // namespace tutti::transport
