#include "tool/run/job_socket.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tool/run/job_folder.hpp"

namespace tutti::tool {
namespace {

constexpr std::size_t kMostClients = 16;
constexpr std::size_t kLongestRequest = 64;
constexpr std::string_view kRequest = "snapshot";
// Whoever asks more often gets the same answer: looking must not cost the job anything.
constexpr std::chrono::milliseconds kFresh{10};

Result<Descriptor> listen_at(const std::string& path) {
  auto end = make_job_end(path);
  if (!end.ok()) return end.status();
  Descriptor& socket = end->socket;
  // The folder lets nobody else in, so there is no moment in which others could connect.
  if (::bind(socket.get(), end->where(), sizeof end->address) != 0)
    return errno_status(fmt::format("cannot bind {}", path));
  if (::chmod(path.c_str(), 0600) != 0 || ::listen(socket.get(), 8) != 0) {
    Status status = errno_status(fmt::format("cannot listen at {}", path));
    ::unlink(path.c_str());
    return status;
  }
  return std::move(socket);
}

}  // namespace

Result<JobSocket> JobSocket::open(std::string path) {
  // A launcher that ends at this moment may take the empty folder with it: once more, then.
  for (int attempt = 0;; ++attempt) {
    if (Status status = make_job_folder(); !status.ok()) return status;
    auto listener = listen_at(path);
    if (listener.ok()) return JobSocket(std::move(path), *std::move(listener));
    if (attempt == 2) return listener.status();
  }
}

JobSocket::~JobSocket() {
  if (listener_) remove_job_socket(path_);
}

void JobSocket::add_to(std::vector<pollfd>& events) const {
  events.push_back({listener_.get(), POLLIN, 0});
  // A client is heard again once it has taken its answer.
  for (const Client& client : clients_)
    events.push_back(
        {client.socket.get(), static_cast<short>(client.out.empty() ? POLLIN : POLLOUT), 0});
}

void JobSocket::handle(std::span<const pollfd> events,
                       const std::function<std::string()>& snapshot) {
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    if (events[i + 1].revents == 0) continue;
    Client& client = clients_[i];
    if (client.out.empty())
      hear(client);
    else
      flush(client);
    answer(client, snapshot);
  }
  std::erase_if(clients_, [](const Client& client) { return client.closed; });
  if (events[0].revents != 0) welcome();
}

void JobSocket::welcome() {
  for (;;) {
    auto socket = accept_from(listener_.get());
    if (!socket.ok() || !*socket) return;
    const auto peer = peer_credentials(socket->get());
    if (!peer.ok() || (peer->uid != ::geteuid() && peer->uid != 0)) continue;
    if (clients_.size() == kMostClients) clients_.erase(clients_.begin());
    clients_.push_back({*std::move(socket), {}, {}, false});
  }
}

void JobSocket::hear(Client& client) {
  char bytes[256];
  const ssize_t got = ::recv(client.socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    client.closed = true;
    return;
  }
  client.in.append(bytes, static_cast<std::size_t>(got));
}

// One request at a time: the next line waits until this answer is gone.
void JobSocket::answer(Client& client, const std::function<std::string()>& snapshot) {
  while (!client.closed && client.out.empty()) {
    const std::size_t end = client.in.find('\n');
    if (end == std::string::npos) {
      client.closed |= client.in.size() > kLongestRequest;
      return;
    }
    if (std::string_view(client.in).substr(0, end) != kRequest) {
      client.closed = true;
      return;
    }
    client.in.erase(0, end + 1);
    client.out = fresh(snapshot);
    flush(client);
  }
}

const std::string& JobSocket::fresh(const std::function<std::string()>& snapshot) {
  const Nanoseconds now = steady_clock().now();
  if (last_.empty() || now - last_at_ > kFresh) {
    last_ = snapshot() + "\n";
    last_at_ = now;
  }
  return last_;
}

void JobSocket::flush(Client& client) {
  const ssize_t sent = ::send(client.socket.get(), client.out.data(), client.out.size(),
                              MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) client.closed = true;
  if (sent > 0) client.out.erase(0, static_cast<std::size_t>(sent));
}

}  // namespace tutti::tool
