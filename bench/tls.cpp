// bench/tls.cpp - what does TLS cost? (docs/security.md)
//
//   build/bin/bench_tls
//
// One connection over loopback, both ends in this thread: what is counted is the processor's time, of
// both ends together, so that a busy machine tells the same as an idle one.
#include <cstdio>
#include <vector>

#include "bench/protocol.hpp"
#include "core/byte_stream.hpp"

namespace {

using tutti::ByteStream;
using tutti::bench::cpu_s;

constexpr std::size_t kLarge = std::size_t{1} << 30;
constexpr int kSmall = 100'000;
constexpr std::size_t kSmallBytes = 64;

struct Ends {
  ByteStream client, server;
};

Ends connect(bool tls) {
  tutti::Config config;
  config.tls = tls;
  auto context = *tutti::TlsContext::create(config, "a secret of thirty-two bytes ...");
  auto listener = tutti::listen_on(*tutti::SocketAddress::parse("127.0.0.1:0"));
  const auto deadline = tutti::steady_clock().now() + std::chrono::seconds(5);
  auto client = tutti::connect_to(*tutti::local_address(listener->get()), deadline);
  auto server = tutti::accept_from(listener->get());
  return {ByteStream(std::move(*client), context, tutti::TlsSide::client),
          ByteStream(std::move(*server), context, tutti::TlsSide::server)};
}

double open_us(Ends& ends) {
  const double begin = cpu_s();
  for (bool done = false; !done;) {
    const bool first = *ends.client.step();
    done = *ends.server.step() && first;
  }
  return (cpu_s() - begin) * 1e6;
}

double large_ns_per_byte(Ends& ends) {
  const std::vector<char> out(128 << 10, 'x');
  std::vector<char> in(256 << 10);
  const double begin = cpu_s();
  for (std::size_t sent = 0, got = 0; got < kLarge;) {
    const ssize_t put = sent < kLarge ? ends.client.send(out.data(), out.size()) : 0;
    if (put > 0) sent += static_cast<std::size_t>(put);
    const ssize_t came = ends.server.receive(in.data(), in.size());
    if (came > 0) got += static_cast<std::size_t>(came);
  }
  return (cpu_s() - begin) * 1e9 / static_cast<double>(kLarge);
}

double small_us(Ends& ends) {
  char bytes[kSmallBytes] = {};
  const double begin = cpu_s();
  for (int i = 0; i < kSmall; ++i) {
    (void)ends.client.send(bytes, sizeof bytes);
    while (ends.server.receive(bytes, sizeof bytes) <= 0) {
    }
  }
  return (cpu_s() - begin) * 1e6 / kSmall;
}

}  // namespace

int main() {
  std::printf("        opening (us)   large (ns/B)   64 B (us)\n");
  for (const bool tls : {false, true}) {
    Ends ends = connect(tls);
    const double opening = open_us(ends);
    const double small = small_us(ends);
    std::printf("%-5s   %12.0f   %12.2f   %9.2f\n", tls ? "tls" : "plain", opening,
                large_ns_per_byte(ends), small);
  }
}
