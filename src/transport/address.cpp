#include "transport/address.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/auth.hpp"
#include "core/bytes.hpp"
#include "core/files.hpp"
#include "core/words.hpp"

namespace tutti::transport {
namespace {

constexpr std::uint32_t kAddressMagic = 0x64644174;  // "tAdd"

}  // namespace

const std::string* Address::note_of(std::string_view transport) const {
  for (const ReadyTransport& each : ready)
    if (each.transport == transport) return &each.note;
  return nullptr;
}

std::string Address::encode() const {
  ByteWriter out;
  out.put(kAddressMagic);
  out.put(kProtocolVersion);
  out.put(rank);
  out.put(pid);
  out.put(static_cast<std::uint32_t>(ready.size()));
  for (const ReadyTransport& each : ready) {
    out.put_string(each.transport);
    out.put_string(each.note);
  }
  for (const std::string* text : {&pid_space, &host, &host_id, &local, &tcp_loopback, &tcp_outward})
    out.put_string(*text);
  return out.take();
}

Result<Address> Address::decode(const std::string& bytes) {
  ByteReader in(bytes);
  Address address;
  std::uint32_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t transports = 0;
  if (!in.get(magic) || !in.get(version) || magic != kAddressMagic)
    return Status(Code::corrupt, fmt::format("{} bytes that are no rank's address", bytes.size()));
  if (version != kProtocolVersion)
    return Status(Code::mismatch,
                  fmt::format("a rank speaks protocol {}, this one {}; all ranks must use the same "
                              "build",
                              version, kProtocolVersion));
  bool whole = in.get(address.rank) && in.get(address.pid) && in.get(transports);
  for (std::uint32_t i = 0; whole && i < transports; ++i) {
    ReadyTransport& each = address.ready.emplace_back();
    whole = in.get_string(each.transport) && in.get_string(each.note);
  }
  for (std::string* text : {&address.pid_space, &address.host, &address.host_id, &address.local,
                            &address.tcp_loopback, &address.tcp_outward})
    whole = whole && in.get_string(*text);
  if (!whole || !in.empty()) return Status(Code::corrupt, "a rank's address is cut short");
  return address;
}

std::string Address::whereabouts() const { return fmt::format("host {}, pid {}", host, pid); }

std::string this_host_id() {
  const std::string boot_id(first_word(read_text("/proc/sys/kernel/random/boot_id")));
  struct stat space {};
  if (::stat("/proc/thread-self/ns/net", &space) != 0) return boot_id;
  return fmt::format("{}/{}/{}", boot_id, space.st_dev, space.st_ino);
}

std::string this_pid_space() {
  struct stat space {};
  if (::stat("/proc/self/ns/pid", &space) != 0) return {};
  return fmt::format("{}/{}", space.st_dev, space.st_ino);
}

std::string this_host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

}  // namespace tutti::transport
