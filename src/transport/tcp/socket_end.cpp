#include "transport/tcp/socket_end.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace tutti::transport {
namespace {

std::optional<SocketEnd> end_of(const sockaddr_storage& storage) {
  SocketEnd end;
  end.family = storage.ss_family;
  if (storage.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &storage, sizeof v4);
    end.port = v4.sin_port;
    std::memcpy(end.address.data(), &v4.sin_addr, sizeof v4.sin_addr);
    return end;
  }
  if (storage.ss_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6{};
  std::memcpy(&v6, &storage, sizeof v6);
  end.port = v6.sin6_port;
  std::memcpy(end.address.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
  return end;
}

template <class Ask>
std::optional<SocketEnd> asked(const Ask& ask, int socket) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  if (ask(socket, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return std::nullopt;
  return end_of(storage);
}

}  // namespace

std::optional<SocketEnd> SocketEnd::of_own(int socket) { return asked(::getsockname, socket); }
std::optional<SocketEnd> SocketEnd::of_peer(int socket) { return asked(::getpeername, socket); }

}  // namespace tutti::transport
