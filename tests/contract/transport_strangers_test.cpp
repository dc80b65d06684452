// More strangers than there are places, who come back whenever they are turned away: ranks join beside
// them as if they were not there.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "contract/transport_pair.hpp"
#include "core/auth.hpp"
#include "core/limits.hpp"
#include "core/sockets.hpp"
#include "transport/address.hpp"

namespace tutti::test {
namespace {

// A process of its own that holds `count` connections to each of the doors, and makes a new one for each
// that is closed. Every second one says hello as a rank would, without knowing the secret. `scattered`:
// each from an address of its own, 127.x.x.x.
class Crowd {
 public:
  Crowd(const std::vector<std::string>& doors, std::size_t count, bool scattered) : child_(fork()) {
    if (child_ == 0) besiege(doors, count, scattered);
  }
  ~Crowd() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

 private:
  struct Visit {
    Descriptor socket;
    bool spoke = false;
  };

  static Descriptor dial_from(std::uint32_t host, const SocketAddress& where) {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(host);
    const int later = 1;  // the port: when it is known where to
    (void)setsockopt(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &later, sizeof later);
    if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0) _exit(1);
    (void)connect(socket.get(), reinterpret_cast<const sockaddr*>(&where.storage), where.length);
    return socket;
  }

  [[noreturn]] static void besiege(const std::vector<std::string>& doors, std::size_t count,
                                   bool scattered) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    allow_descriptors(doors.size() * count + 64);
    std::vector<SocketAddress> where;
    for (const std::string& door : doors) where.push_back(*SocketAddress::parse(door));
    std::vector<Visit> visits(doors.size() * count);
    for (;;) {
      std::vector<pollfd> watched;
      for (std::size_t i = 0; i < visits.size(); ++i) {
        Visit& visit = visits[i];
        if (!visit.socket && scattered) {
          const auto host = static_cast<std::uint32_t>(INADDR_LOOPBACK + 1 + i);
          visit = {dial_from(host, where[i % where.size()]), false};
        } else if (!visit.socket) {
          auto dialled = begin_connect(where[i % where.size()]);
          if (dialled.ok() && dialled->error == 0) visit = {std::move(dialled->socket), false};
        }
        if (!visit.socket) continue;
        const short events = i % 2 == 1 && !visit.spoke ? POLLIN | POLLOUT : POLLIN;
        watched.push_back({visit.socket.get(), events, 0});
      }
      (void)poll(watched.data(), watched.size(), 1);
      std::size_t next = 0;
      for (Visit& visit : visits) {
        if (!visit.socket) continue;
        const short seen = watched[next++].revents;
        char byte[64];
        if ((seen & POLLOUT) != 0) {
          const std::string hello =
              Handshake::client("not this one, of thirty-two bytes", {kRoleData, 1, 7})
                  .take_output();
          (void)!send(visit.socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
          visit.spoke = true;
        } else if (seen != 0 && recv(visit.socket.get(), byte, sizeof byte, MSG_DONTWAIT) <= 0) {
          visit.socket.reset();
        }
      }
    }
  }

  pid_t child_;
};

long resident_kib() {
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE) / 1024;
}

// Four ranks among `count` strangers for each.
void expect_joining_among(const char* transport, std::string Address::*door, std::size_t count,
                          bool scattered = false) {
  std::unique_ptr<Crowd> crowd;
  std::chrono::steady_clock::time_point began;
  const long before = resident_kib();
  {
    Ranks ranks(
        4, transport,
        [](int, OpeningOptions& options) {
          options.config.debug_file = "/dev/null";
          auto log = Log::open(options.config);
          if (log.ok()) options.log = *log;
        },
        kWaitAtMost,
        [&](const std::vector<std::string>& addresses) {
          std::vector<std::string> doors;
          for (const std::string& bytes : addresses)
            doors.push_back((*Address::decode(bytes)).*door);
          crowd = std::make_unique<Crowd>(doors, count, scattered);
          std::this_thread::sleep_for(300ms);  // they have all come before the first rank looks
          began = std::chrono::steady_clock::now();
        });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    for (const Status& status : ranks.statuses) EXPECT_TRUE(status.ok()) << status.to_string();
    std::printf("4 ranks over %s among %zu strangers at each door: %.3f s, %ld KiB more\n",
                transport, count, took.count(), resident_kib() - before);
    EXPECT_LT(took.count(), 5.0);
  }
  EXPECT_LT(resident_kib() - before, 64 * 1024);
}

TEST(Crowds, of_reconnecting_strangers_do_not_keep_ranks_from_joining_over_tcp) {
  for (const std::size_t count : {30, 300, 1000})
    expect_joining_among("tcp", &Address::tcp_loopback, count);
}

TEST(Crowds, from_as_many_addresses_do_not_keep_ranks_from_joining_either) {
  expect_joining_among("tcp", &Address::tcp_loopback, 1000, true);
}

TEST(Crowds, of_this_user_do_not_keep_ranks_from_joining_on_one_host) {
  for (const std::size_t count : {30, 300}) expect_joining_among("shm", &Address::local, count);
}

}  // namespace
}  // namespace tutti::test
