// What one plain TCP stream reaches between two of the ranks: the floor of the tcp transport.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>

#include "core/sockets.hpp"
#include "tool/bench/floor.hpp"
#include "topology/discover.hpp"

namespace tutti::tool {
namespace {

constexpr Nanoseconds kPatience = std::chrono::seconds(20);
constexpr std::size_t kBlock = 256 * 1024;
constexpr int kPings = 2000;
constexpr int kBursts = 5;
constexpr double kBurstUs = 100e3;

// Where rank 1 listens; the mark tells it from a stranger.
struct Offer {
  std::array<char, 2048> addresses{};  // separated by blanks
  std::uint64_t mark = 0;
};

Nanoseconds soon() { return deadline_after(steady_clock().now(), kPatience); }

// Own addresses that others might reach, loopback last: namespaces have a loopback each.
std::vector<std::string> candidates() {
  std::vector<std::string> hosts;
  for (const auto& interface : topology::discover_interfaces())
    if (interface.up && !interface.loopback)
      for (const std::string& address : interface.addresses)
        if (address.find(':') == std::string::npos) hosts.push_back(address);
  hosts.emplace_back("127.0.0.1");
  return hosts;
}

// A listener per address, never one on all of them.
std::vector<Descriptor> listen_everywhere(Offer& offer) {
  std::vector<Descriptor> listeners;
  std::string text;
  for (const std::string& host : candidates()) {
    const auto address = SocketAddress::parse(host + ":0");
    if (!address.ok()) continue;
    auto listener = listen_on(*address);
    if (!listener.ok()) continue;
    const auto bound = local_address(listener->get());
    if (!bound.ok() || text.size() + 80 > offer.addresses.size()) continue;
    text += bound->to_string() + " ";
    listeners.push_back(*std::move(listener));
  }
  std::memcpy(offer.addresses.data(), text.data(), text.size());
  std::random_device device;
  offer.mark = static_cast<std::uint64_t>(device()) << 32 | device();
  return listeners;
}

Result<Descriptor> accept_marked(const std::vector<Descriptor>& listeners, std::uint64_t mark) {
  const Nanoseconds deadline = soon();
  while (steady_clock().now() < deadline) {
    for (const Descriptor& listener : listeners) {
      auto accepted = accept_from(listener.get());
      if (!accepted.ok() || !*accepted) continue;
      std::uint64_t word = 0;
      const Nanoseconds brief =
          deadline_after(steady_clock().now(), std::chrono::milliseconds(500));
      if (read_fully(accepted->get(), &word, sizeof word, brief).ok() && word == mark)
        return *std::move(accepted);
    }
    ::usleep(1000);
  }
  return Status(Code::timed_out, "rank 0 did not connect for the TCP floor");
}

Result<Descriptor> connect_any(const Offer& offer) {
  std::string_view rest(offer.addresses.data());
  while (!rest.empty()) {
    const std::size_t end = rest.find(' ');
    const auto address = SocketAddress::parse(std::string(rest.substr(0, end)));
    rest.remove_prefix(std::min(rest.size(), end + 1));
    if (!address.ok()) continue;
    auto socket =
        connect_to(*address, deadline_after(steady_clock().now(), std::chrono::seconds(2)));
    if (socket.ok() && write_fully(socket->get(), &offer.mark, sizeof offer.mark, soon()).ok())
      return *std::move(socket);
  }
  return Status(Code::io, "rank 0 reaches rank 1 by none of its addresses");
}

// Spins: what the wire can do, not what a wake-up costs.
Status receive_byte(int socket) {
  const Nanoseconds deadline = soon();
  char byte = 0;
  while (::recv(socket, &byte, 1, MSG_DONTWAIT) != 1)
    if (steady_clock().now() > deadline)
      return {Code::timed_out, "no answer on the stream of the TCP floor"};
  return {};
}

// Half of a spinning ping-pong, the median.
Result<double> ping(int socket, bool first) {
  std::vector<double> times;
  const char byte = 0;
  for (int i = 0; i < kPings; ++i) {
    const double t0 = bench::now_us();
    for (const bool send : {first, !first}) {
      const Status status = send ? write_fully(socket, &byte, 1, soon()) : receive_byte(socket);
      if (!status.ok()) return status;
    }
    times.push_back((bench::now_us() - t0) / 2);
  }
  return bench::median_of(times);
}

// Rank 0 sends for a while and says when it is over; rank 1 answers when all of it has come.
Result<double> burst(int socket, bool sender, std::vector<char>& block) {
  const double t0 = bench::now_us();
  double bytes = 0;
  bool last = false;
  while (!last) {
    if (sender) block[0] = bench::now_us() - t0 > kBurstUs ? 1 : 0;
    const Status status = sender ? write_fully(socket, block.data(), kBlock, soon())
                                 : read_fully(socket, block.data(), kBlock, soon());
    if (!status.ok()) return status;
    last = block[0] == 1;
    bytes += kBlock;
  }
  char answer = 0;
  const Status status =
      sender ? read_fully(socket, &answer, 1, soon()) : write_fully(socket, &answer, 1, soon());
  if (!status.ok()) return status;
  return bytes / (bench::now_us() - t0);
}

Result<LinkSpeed> use(Descriptor socket, bool sender) {
  set_no_delay(socket.get());
  const auto one_way = ping(socket.get(), sender);
  if (!one_way.ok()) return one_way.status();
  if (Status status = set_nonblocking(socket.get(), false); !status.ok()) return status;
  std::vector<char> block(kBlock);
  std::vector<double> speeds;
  for (int i = 0; i < kBursts; ++i) {
    const auto speed = burst(socket.get(), sender, block);
    if (!speed.ok()) return speed.status();
    speeds.push_back(*speed);
  }
  return LinkSpeed{*one_way, bench::median_of(speeds)};
}

}  // namespace

Result<LinkSpeed> measure_tcp(Group& group, BenchMeeting& meeting) {
  Offer offer;
  std::vector<Descriptor> listeners;
  if (group.rank() == 1) listeners = listen_everywhere(offer);
  if (Status status = group.broadcast(Buffer{&offer, sizeof offer, Dtype::u8}, 1); !status.ok())
    return status;
  Result<LinkSpeed> speed = LinkSpeed{};
  if (group.rank() < 2) {
    auto socket = group.rank() == 0 ? connect_any(offer) : accept_marked(listeners, offer.mark);
    speed = socket.ok() ? use(*std::move(socket), group.rank() == 0)
                        : Result<LinkSpeed>(socket.status());
  }
  meeting.sync_asleep();
  if (meeting.largest(speed.ok() ? 0 : 1) > 0)
    return speed.ok() ? Status(Code::io, "the TCP floor could not be measured") : speed.status();
  // Ranks 0 and 1 measured; everybody uses the same figures.
  speed->one_way_us = meeting.largest(group.rank() == 0 ? speed->one_way_us : 0);
  speed->bytes_per_us = meeting.largest(group.rank() == 0 ? speed->bytes_per_us : 0);
  return speed;
}

}  // namespace tutti::tool
