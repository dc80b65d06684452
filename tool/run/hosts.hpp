// tool/run/hosts.hpp - which hosts a job runs on, and how many ranks each takes: `--hosts`,
// `--hostfile`. Pure.
//
//   --hosts     a:4,user@b:4,c           a host without a number takes one rank
//   --hostfile  a slots=4   # comment    one host a line, also as a:4
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::tool {

struct Host {
  std::string name;  // as the remote shell takes it: "a", "user@a"
  int ranks = 1;
};

// Both add up the ranks of a host that is named twice. Code::invalid_argument quotes what cannot be
// read, with its line.
Result<std::vector<Host>> parse_hosts(std::string_view list);
Result<std::vector<Host>> parse_hostfile(std::string_view text);

// The first `ranks` places, host by host; hosts that are left without one go.
Result<std::vector<Host>> take_places(std::vector<Host> hosts, int ranks);

// What the remote shell calls it: an IPv6 address without its brackets.
std::string shell_name_of(const Host& host);
// What other hosts call it: without the user. An IPv6 address keeps its brackets.
std::string address_of(const Host& host);

}  // namespace tutti::tool
