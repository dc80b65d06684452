#include "transport/shm/lifeline.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "transport/shm/descriptors.hpp"

namespace tutti::transport {
namespace {

struct RegionRecord {
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
};

}  // namespace

Lifeline::Lifeline(int peer, MemoryLink& link, Descriptor socket, pid_t pid)
    : peer_(peer),
      link_(link),
      socket_(std::move(socket)),
      // Fails in another pid namespace, or between threads: then the socket has to do.
      process_(pid > 0 && pid != ::getpid() ? static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))
                                            : -1) {}

Status Lifeline::watch(Reactor& reactor) {
  if (process_)
    if (Status status = reactor.add(process_.get(), process_watch_); !status.ok()) return status;
  return reactor.add(socket_.get(), *this);
}

void Lifeline::on_ready(std::uint32_t) { ready_ = true; }

void Lifeline::send(RegionParcel parcel) {
  outbox_.push_back(std::move(parcel));
  flush();
}

void Lifeline::flush() {
  for (; !outbox_.empty(); outbox_.pop_front()) {
    const RegionParcel& parcel = outbox_.front();
    const RegionRecord record{parcel.id, parcel.bytes};
    const int file = parcel.file->get();
    if (!send_descriptors(socket_.get(), &record, sizeof record, {&file, 1})) return;
  }
}

bool Lifeline::is_cut() const {
  pollfd watched[2] = {{socket_.get(), POLLRDHUP, 0}, {process_.get(), POLLIN, 0}};
  return ::poll(watched, 2, 0) > 0 &&
         ((watched[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0 || watched[1].revents != 0);
}

std::optional<RegionParcel> Lifeline::receive() {
  RegionRecord record;
  Descriptor file;
  const auto got = receive_descriptors(socket_.get(), &record, sizeof record, {&file, 1});
  if (got == sizeof record)
    return RegionParcel{record.id, record.bytes,
                        std::make_shared<const Descriptor>(std::move(file))};
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    ready_ = false;
    return std::nullopt;
  }
  // The end of the stream, an error, or something that is not a record: the peer is no peer any
  // more.
  ended_ = true;
  ready_ = false;
  return std::nullopt;
}

}  // namespace tutti::transport
