#include "tool/run/keeper_words.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tutti::tool {
namespace {

constexpr std::size_t kMostDescriptors = 16;

// Both ends block: the other one answers at once, or is gone.
bool put_all(int socket, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    // bounded: kPatience, or the launcher's life.
    const ssize_t put = ::send(socket, at, bytes, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    bytes -= static_cast<std::size_t>(put);
  }
  return true;
}

bool take_all(int socket, void* data, std::size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    // bounded: likewise.
    const ssize_t got = ::recv(socket, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

template <class T>
void append(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
void take(std::string_view& text, T& value) {
  std::memcpy(&value, text.data(), sizeof value);
  text.remove_prefix(sizeof value);
}

void append_words(std::string& text, const std::vector<std::string>& words) {
  append(text, words.size());
  for (const std::string& word : words) text.append(word.c_str(), word.size() + 1);
}

std::vector<std::string> take_words(std::string_view& text) {
  std::size_t count = 0;
  take(text, count);
  std::vector<std::string> words;
  for (; count > 0; --count) {
    words.emplace_back(text.data());
    text.remove_prefix(words.back().size() + 1);
  }
  return words;
}

}  // namespace

std::string to_text(const SpawnOptions& launch, const std::vector<std::string>& environment) {
  std::string text;
  append(text, launch.signal_mask);
  append(text, launch.open_files);
  append(text, launch.inherited.size());
  for (const int number : launch.inherited) append(text, number);
  append_words(text, {launch.path});
  append_words(text, launch.arguments);
  append_words(text, environment);
  return text;
}

void read_text_of(const std::string& text, SpawnOptions& launch,
                  std::vector<std::string>& environment) {
  std::string_view rest = text;
  take(rest, launch.signal_mask);
  take(rest, launch.open_files);
  std::size_t inherited = 0;
  take(rest, inherited);
  launch.inherited.resize(inherited);
  for (int& number : launch.inherited) take(rest, number);
  launch.path = take_words(rest).front();
  launch.arguments = take_words(rest);
  environment = take_words(rest);
}

bool send_request(int socket, KeeperRequest request, const std::string& text,
                  const std::vector<int>& descriptors) {
  request.bytes = text.size();
  iovec part{&request, sizeof request};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const std::size_t bytes = descriptors.size() * sizeof(int);
    message.msg_control = room.data();
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(head), descriptors.data(), bytes);
  }
  ssize_t put = 0;
  // bounded: likewise.
  while ((put = ::sendmsg(socket, &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  if (put <= 0) return false;
  const auto sent = static_cast<std::size_t>(put);
  return put_all(socket, reinterpret_cast<const char*>(&request) + sent, sizeof request - sent) &&
         put_all(socket, text.data(), text.size());
}

bool take_request(int socket, KeeperRequest& request, std::string& text,
                  std::vector<Descriptor>& descriptors) {
  iovec part{&request, sizeof request};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  ssize_t got = 0;
  // bounded: likewise.
  while ((got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (got <= 0) return false;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head))
    for (std::size_t at = 0; CMSG_LEN(at) < head->cmsg_len; at += sizeof(int)) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(head) + at, sizeof number);
      descriptors.emplace_back(number);
    }
  const auto taken = static_cast<std::size_t>(got);
  if (!take_all(socket, reinterpret_cast<char*>(&request) + taken, sizeof request - taken))
    return false;
  text.resize(request.bytes);
  return take_all(socket, text.data(), text.size());
}

bool send_answer(int socket, const KeeperAnswer& answer) {
  return put_all(socket, &answer, sizeof answer);
}

bool take_answer(int socket, KeeperAnswer& answer) {
  return take_all(socket, &answer, sizeof answer);
}

}  // namespace tutti::tool
