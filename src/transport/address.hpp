// transport/address.hpp - what a rank says of itself so that others can find it, as a byte string.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/config.hpp"
#include "tutti/status.hpp"

namespace tutti::transport {

// Which transports a rank is ready to use.
struct Allowed {
  bool inproc = true;
  bool shm = true;
  bool tcp = true;
  // "auto" or a comma list. Code::invalid_argument names the word that is none, and the right ones.
  static Result<Allowed> parse(const std::string& transports);
};

// The most TCP connections of one pair of ranks.
inline constexpr std::int32_t kMaxStreams = 8;

struct Address {
  std::int32_t rank = 0;
  std::int64_t pid = 0;
  std::string host;     // for people
  std::string host_id;  // equal: the same network namespace of the same running kernel
  Allowed allowed;
  std::int32_t streams = 1;  // TCP connections that it wants with each peer
  std::string local;         // "@…", the abstract Unix socket; empty: none
  std::string tcp_loopback;  // "127.0.0.1:4711"; empty: none
  std::string tcp_outward;   // reachable from other hosts; empty: none

  std::string encode() const;
  // Code::corrupt or mismatch (another protocol version).
  static Result<Address> decode(const std::string& bytes);
  std::string whereabouts() const;  // "host a, pid 4182"
};

// Of the calling thread: a thread may have entered another network namespace.
std::string this_host_id();
std::string this_host_name();

}  // namespace tutti::transport
