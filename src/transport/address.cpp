#include "transport/address.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "core/auth.hpp"
#include "core/bytes.hpp"
#include "core/files.hpp"
#include "core/words.hpp"

namespace tutti::transport {
namespace {

constexpr std::uint32_t kAddressMagic = 0x64644174;  // "tAdd"

}  // namespace

Result<Allowed> Allowed::parse(const std::string& transports) {
  static constexpr std::array<std::string_view, 4> kWords{"auto", "inproc", "shm", "tcp"};
  Allowed allowed{false, false, false};
  for (const std::string_view word : split_words(transports, ',')) {
    if (word == "auto")
      allowed = Allowed{};
    else if (word == "inproc")
      allowed.inproc = true;
    else if (word == "shm")
      allowed.shm = true;
    else if (word == "tcp")
      allowed.tcp = true;
    else
      return Status(Code::invalid_argument,
                    "TUTTI_TRANSPORT: " + unknown_word("transport", word, kWords));
  }
  if (!allowed.inproc && !allowed.shm && !allowed.tcp) return Allowed{};  // nothing was said
  return allowed;
}

std::string Address::encode() const {
  ByteWriter out;
  out.put(kAddressMagic);
  out.put(kProtocolVersion);
  out.put(rank);
  out.put(pid);
  out.put(static_cast<std::uint32_t>(allowed.inproc | allowed.shm << 1 | allowed.tcp << 2));
  out.put(streams);
  for (const std::string* text : {&host, &host_id, &local, &tcp_loopback, &tcp_outward})
    out.put_string(*text);
  return out.take();
}

Result<Address> Address::decode(const std::string& bytes) {
  ByteReader in(bytes);
  Address address;
  std::uint32_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t allowed = 0;
  if (!in.get(magic) || !in.get(version) || magic != kAddressMagic)
    return Status(Code::corrupt, fmt::format("{} bytes that are no rank's address", bytes.size()));
  if (version != kProtocolVersion)
    return Status(Code::mismatch,
                  fmt::format("a rank speaks protocol {}, this one {}; all ranks must use the same "
                              "build",
                              version, kProtocolVersion));
  bool whole =
      in.get(address.rank) && in.get(address.pid) && in.get(allowed) && in.get(address.streams);
  for (std::string* text : {&address.host, &address.host_id, &address.local, &address.tcp_loopback,
                            &address.tcp_outward})
    whole = whole && in.get_string(*text);
  if (!whole || !in.empty()) return Status(Code::corrupt, "a rank's address is cut short");
  if (address.streams < 1 || address.streams > kMaxStreams)
    return Status(Code::corrupt, fmt::format("a rank wants {} streams", address.streams));
  address.allowed = {(allowed & 1) != 0, (allowed & 2) != 0, (allowed & 4) != 0};
  return address;
}

std::string Address::whereabouts() const { return fmt::format("host {}, pid {}", host, pid); }

std::string this_host_id() {
  const std::string boot_id(first_word(read_text("/proc/sys/kernel/random/boot_id")));
  struct stat space {};
  if (::stat("/proc/thread-self/ns/net", &space) != 0) return boot_id;
  return fmt::format("{}/{}/{}", boot_id, space.st_dev, space.st_ino);
}

std::string this_host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

}  // namespace tutti::transport
