#include "transport/memory_greeting.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "transport/shm/descriptors.hpp"

namespace tutti::transport {
namespace {

enum OfferKind : std::uint32_t { kSameProcess = 0, kSharedMemory = 1, kNothing = 2 };

struct Offer {
  std::uint32_t kind = kNothing;
  std::uint32_t lanes = 0;
  std::int64_t pid = 0;
  std::uint64_t window = 0;
  std::uint64_t bytes = 0;
};

constexpr char kYes = 'y';
constexpr char kNo = 'n';

bool is_not_there_yet() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

MemoryGreeting::MemoryGreeting(const Party& party, const NewPeer& peer, bool same_process)
    : party_(party), peer_(peer), same_process_(same_process) {
  // The kernel, too, must say that it is the same process.
  offers_ = same_process ? peer.process == ::getpid() : party.window->memory() >= 0;
}

Result<bool> MemoryGreeting::step(ByteStreamRef stream) {
  const int socket = stream.get();
  while (true) {
    Result<bool> moved = false;
    switch (stage_) {
      case GreetingStage::begin: moved = send_offer(socket); break;
      case GreetingStage::offer: moved = take_offer(socket); break;
      case GreetingStage::verdict: moved = take_verdict(socket); break;
      case GreetingStage::over: return true;
    }
    if (!moved.ok() || !*moved) return moved;
  }
}

Result<bool> MemoryGreeting::send_offer(int socket) {
  Offer offer;
  offer.pid = ::getpid();
  int descriptors[2] = {-1, -1};
  if (offers_) {
    const Window& window = *party_.window;
    offer.kind = same_process_ ? kSameProcess : kSharedMemory;
    offer.lanes = window.shape().lanes;
    offer.bytes = window.bytes();
    offer.window = window.number();
    descriptors[0] = window.memory();
    descriptors[1] = window.bell();
  }
  const std::size_t count = offer.kind == kSharedMemory ? 2 : 0;
  if (!send_descriptors(socket, &offer, sizeof offer, {descriptors, count}))
    return errno_status("cannot offer memory");
  stage_ = GreetingStage::offer;
  return true;
}

Result<bool> MemoryGreeting::take_offer(int socket) {
  Offer offer;
  Descriptor descriptors[2];
  const ssize_t got = receive_descriptors(socket, &offer, sizeof offer, descriptors);
  if (got < 0 && is_not_there_yet()) return false;
  if (got != sizeof offer)
    return Status(Code::io, fmt::format("rank {} hung up before it offered memory", peer_.rank));

  const bool agreed = offers_ && offer.lanes == party_.window->shape().lanes;
  if (agreed && same_process_ && offer.kind == kSameProcess && offer.pid == ::getpid()) {
    theirs_ = Window::created_here(offer.window);
  } else if (agreed && !same_process_ && offer.kind == kSharedMemory && descriptors[0] &&
             descriptors[1]) {
    auto window = Window::attach(std::move(descriptors[0]), std::move(descriptors[1]), offer.bytes,
                                 peer_.rank, offer.lanes);
    if (window.ok())
      theirs_ = std::move(*window);
    else
      failure_ = window.status();
  }
  stage_ = GreetingStage::verdict;
  if (::send(socket, theirs_ ? &kYes : &kNo, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) return true;
  return errno_status("cannot write to a new connection");
}

Result<bool> MemoryGreeting::take_verdict(int socket) {
  char verdict = 0;
  const ssize_t got = ::recv(socket, &verdict, 1, MSG_DONTWAIT);
  if (got < 0 && is_not_there_yet()) return false;
  if (got != 1)
    return Status(Code::io, fmt::format("rank {} hung up before there was a link", peer_.rank));
  stage_ = GreetingStage::over;
  if (theirs_ && verdict == kYes) return true;
  // Whatever was wrong with the memory of the two, something else may link them.
  return Status(Code::unsupported,
                failure_.ok() ? "the two cannot map each other's memory" : failure_.message());
}

}  // namespace tutti::transport
