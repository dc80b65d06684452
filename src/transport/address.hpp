// transport/address.hpp - what a rank says of itself so that others can find it, as a byte string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::transport {

struct Address {
  // A transport that the rank is ready to use, and what it wants its peers to know for that.
  struct ReadyTransport {
    std::string transport;
    std::string note;
  };

  std::int32_t rank = 0;
  std::int64_t pid = 0;
  std::string pid_space;  // equal, on one host: `pid` means the same process to both
  std::string host;       // for people
  std::string host_id;    // equal: the same network namespace of the same running kernel
  std::vector<ReadyTransport> ready;
  std::string local;         // "@…", the abstract Unix socket; empty: none
  std::string tcp_loopback;  // "127.0.0.1:4711"; empty: none
  std::string tcp_outward;   // reachable from other hosts; empty: none

  // The note of a transport; null: the rank does not use it.
  const std::string* note_of(std::string_view transport) const;
  bool shares_host(const Address& other) const { return host_id == other.host_id; }
  bool shares_process(const Address& other) const { return shares_host(other) && pid == other.pid; }

  std::string encode() const;
  // Code::corrupt or mismatch (another protocol version).
  static Result<Address> decode(const std::string& bytes);
  std::string whereabouts() const;  // "host a, pid 4182"
};

// Of the calling thread: a thread may have entered another network namespace.
std::string this_host_id();
std::string this_pid_space();
std::string this_host_name();

}  // namespace tutti::transport
