#include "transport/tcp/socket_options.hpp"

#include <linux/sockios.h>
#include <linux/tcp.h>  // the C library's has no tcpi_min_rtt
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>

#include "core/retransmission.hpp"

namespace tutti::transport {
namespace {

void set(int socket, int level, int option, int value) {
  (void)::setsockopt(socket, level, option, &value, sizeof value);
}

std::size_t count_of(int socket, unsigned long what) {
  int bytes = 0;
  return ::ioctl(socket, what, &bytes) == 0 && bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace

void leave_silence_to_us(int socket, Nanoseconds dead_after) {
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 0);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
  retransmit_evenly(socket, dead_after);
}

std::optional<std::uint64_t> bytes_received(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  const bool known =
      ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
      size >= offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received;
  if (!known) return std::nullopt;
  return info.tcpi_bytes_received;
}

std::size_t unread_bytes(int socket) { return count_of(socket, SIOCINQ); }

std::size_t unacknowledged_bytes(int socket) { return count_of(socket, SIOCOUTQ); }

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

bool poll_busily(int socket, int microseconds) {
  return microseconds == 0 ||
         ::setsockopt(socket, SOL_SOCKET, SO_BUSY_POLL, &microseconds, sizeof microseconds) == 0;
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
