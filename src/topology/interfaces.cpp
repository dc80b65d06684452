// The network interfaces of this machine, from getifaddrs and /sys.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <memory>

#include "core/files.hpp"
#include "topology/discover.hpp"

namespace tutti::topology {
namespace {

// Virtual interfaces say -1 or refuse to be read.
std::optional<int> speed_of(const std::string& name) {
  const auto megabits = first_number(read_text("/sys/class/net/" + name + "/speed"));
  if (!megabits || *megabits <= 0) return std::nullopt;
  return static_cast<int>(*megabits);
}

std::optional<std::string> address_text(const sockaddr* address) {
  if (address == nullptr) return std::nullopt;
  char text[INET6_ADDRSTRLEN] = {};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET)
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  if (address->sa_family == AF_INET6)
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (bytes == nullptr || inet_ntop(address->sa_family, bytes, text, sizeof text) == nullptr)
    return std::nullopt;
  return text;
}

// The interface of that name, added at the end when it is new.
Interface& named(std::vector<Interface>& interfaces, const ifaddrs& entry) {
  const auto is_it = [&](const Interface& known) { return known.name == entry.ifa_name; };
  const auto it = std::find_if(interfaces.begin(), interfaces.end(), is_it);
  if (it != interfaces.end()) return *it;
  Interface fresh;
  fresh.name = entry.ifa_name;
  fresh.up = (entry.ifa_flags & IFF_UP) != 0;
  fresh.loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  fresh.megabits_per_s = speed_of(fresh.name);
  return interfaces.emplace_back(std::move(fresh));
}

}  // namespace

// getifaddrs gives one entry per interface and address family; they are put together by name.
std::vector<Interface> discover_interfaces() {
  std::vector<Interface> interfaces;
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return interfaces;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, &freeifaddrs);
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    Interface& interface = named(interfaces, *entry);
    if (auto address = address_text(entry->ifa_addr)) interface.addresses.push_back(*address);
  }
  return interfaces;
}

}  // namespace tutti::topology
