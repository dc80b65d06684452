#include "transport/tcp/socket_options.hpp"

#include <linux/tcp.h>  // the C library's has no tcpi_min_rtt
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace tutti::transport {
namespace {

void set(int socket, int level, int option, int value) {
  (void)::setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

void watch_for_silence(int socket) {
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 5);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 15'000);
}

bool choose_congestion_control(int socket, const std::string& wanted) {
  if (wanted == "system") return true;
  std::string name = wanted;
  if (wanted == "auto") {
    char now[16] = {};
    socklen_t size = sizeof now;
    if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, now, &size) != 0) return true;
    if (std::string(now, ::strnlen(now, sizeof now)) != "bbr") return true;
    name = "cubic";
  }
  const int refused = ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                                   static_cast<socklen_t>(name.size()));
  return refused == 0 || wanted == "auto";
}

void bound_unsent(int socket, std::size_t bytes) {
  set(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, static_cast<int>(bytes));
}

void set_send_buffer(int socket, std::size_t bytes) {
  set(socket, SOL_SOCKET, SO_SNDBUF, static_cast<int>(bytes / 2));  // the kernel doubles it
}

Nanoseconds shortest_round_trip(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  const bool known = ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
                     size >= offsetof(tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt;
  return known ? Nanoseconds(std::chrono::microseconds(info.tcpi_min_rtt)) : Nanoseconds::max();
}

}  // namespace tutti::transport
