#include "transport/listeners.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>
#include <vector>

namespace tutti::transport {
namespace {

struct Interface {
  std::string name;
  SocketAddress address;  // port 0
};

bool is_link_local(const sockaddr* address) {
  if (address->sa_family != AF_INET6) return false;
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

// Interfaces that are up, IPv4 first; loopback ones only if asked by name.
Result<std::vector<Interface>> find_interfaces(const std::string& wanted) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return errno_status("cannot list network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::vector<Interface> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
      if (it->ifa_addr == nullptr || it->ifa_addr->sa_family != family) continue;
      if ((it->ifa_flags & IFF_UP) == 0 || is_link_local(it->ifa_addr)) continue;
      if (wanted.empty() ? (it->ifa_flags & IFF_LOOPBACK) != 0 : wanted != it->ifa_name) continue;
      Interface interface {
        it->ifa_name, {}
      };
      interface.address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&interface.address.storage, it->ifa_addr, interface.address.length);
      found.push_back(std::move(interface));
    }
  }
  return found;
}

Status listen_at(const SocketAddress& wanted, int backlog, Descriptor& socket,
                 std::string& address) {
  auto listener = listen_on(wanted, backlog);
  if (!listener.ok()) return listener.status();
  auto bound = local_address(listener->get());
  if (!bound.ok()) return bound.status();
  socket = std::move(*listener);
  address = bound->to_string();
  return {};
}

}  // namespace

Result<TcpListeners> TcpListeners::open(const Config& config, int backlog) {
  TcpListeners listeners;
  auto loopback = SocketAddress::parse("127.0.0.1:0");
  if (!loopback.ok()) return loopback.status();
  // A fresh network namespace may have no loopback; then the other one has to do.
  (void)listen_at(*loopback, backlog, listeners.loopback, listeners.loopback_address);

  if (!config.host.empty()) {
    const bool v6 = config.host.find(':') != std::string::npos;
    auto wanted = SocketAddress::parse(v6 ? "[" + config.host + "]:0" : config.host + ":0");
    if (!wanted.ok()) return wanted.status().annotate("TUTTI_HOST");
    if (Status status = listen_at(*wanted, backlog, listeners.outward, listeners.outward_address);
        !status.ok())
      return Status(Code::invalid_argument,
                    "TUTTI_HOST must be an address of this host: " + status.message());
    return listeners;
  }
  auto interfaces = find_interfaces(config.interface);
  if (!interfaces.ok()) return interfaces.status();
  Status failure;
  for (const Interface& interface : *interfaces) {
    failure = listen_at(interface.address, backlog, listeners.outward, listeners.outward_address);
    if (failure.ok()) return listeners;
  }
  if (!config.interface.empty())
    return Status(Code::invalid_argument,
                  fmt::format("TUTTI_INTERFACE={}: {}", config.interface,
                              failure.ok() ? "there is no such interface with an address that is up"
                                           : failure.message()));
  if (!listeners.loopback) return Status(Code::unsupported, "no network interface is up");
  return listeners;
}

}  // namespace tutti::transport
