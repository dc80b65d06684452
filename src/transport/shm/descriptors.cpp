#include "transport/shm/descriptors.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "core/check.hpp"

namespace tutti::transport {
namespace {

struct alignas(cmsghdr) Ancillary {
  char bytes[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
};

}  // namespace

bool send_descriptors(int socket, const void* record, std::size_t bytes,
                      std::span<const int> descriptors) {
  TUTTI_CHECK(descriptors.size() <= kMaxDescriptors);
  iovec body{const_cast<void*>(record), bytes};
  Ancillary space{};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = space.bytes;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

ssize_t receive_descriptors(int socket, void* record, std::size_t bytes,
                            std::span<Descriptor> descriptors) {
  iovec body{record, bytes};
  Ancillary space{};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = space.bytes;
  message.msg_controllen = sizeof space.bytes;
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return got;

  std::size_t wanted = 0;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(head) + i * sizeof(int), sizeof number);
      Descriptor owned(number);
      if (wanted < descriptors.size()) descriptors[wanted++] = std::move(owned);
    }
  }
  return got;
}

}  // namespace tutti::transport
