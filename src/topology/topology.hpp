// topology/topology.hpp - where the ranks of a group sit, and by what each pair is linked: a value.
//
// Pure: no files, no system calls (topology/discover.hpp looks at this machine). The same value
// gives the same text and back, so that it can be sent, kept in a file, or written by hand for the
// planner.
//
//   Topology two_hosts;
//   two_hosts.ranks = {{.host = 0}, {.host = 0}, {.host = 1}, {.host = 1}};
//   two_hosts.link(0, 1);  // "shm"
//   two_hosts.link(1, 2);  // "tcp"
//
// Thread-safety  a value; const methods may run at once.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::topology {

// Where a rank sits. Indices are dense and start at 0; numa and l3 count within the host, -1 =
// unknown.
struct Seat {
  int host = 0;
  int numa = -1;
  int l3 = -1;

  friend bool operator==(const Seat&, const Seat&) = default;
};

// A pair that is linked otherwise than the rule says; a < b.
struct OddLink {
  int a = 0;
  int b = 0;
  std::string kind;

  friend bool operator==(const OddLink&, const OddLink&) = default;
};

// Links are words ("inproc", "shm", "tcp", …), because kinds belong to the transports. They are
// kept as a rule with exceptions: a table of all pairs would not do for tens of thousands of ranks.
struct Topology {
  std::vector<Seat> ranks;
  std::string inside = "shm";   // between ranks of one host
  std::string between = "tcp";  // between ranks of different hosts
  std::vector<OddLink> odd;     // sorted by (a, b)

  int size() const { return static_cast<int>(ranks.size()); }
  // The kind of the link between two ranks; "self" when they are one. Symmetric.
  std::string_view link(int a, int b) const;
  // Makes a pair an exception, or an ordinary pair again when `kind` is what the rule says.
  void set_link(int a, int b, std::string_view kind);

  friend bool operator==(const Topology&, const Topology&) = default;
};

// docs/formats/topology.md. Parsing what was printed gives an equal value.
std::string to_text(const Topology& topology);
// Code::invalid_argument names the line and what is wrong with it.
Result<Topology> parse(std::string_view text);

// The host of each rank: what schedules and the tuner want to know.
std::vector<int> hosts_of(const Topology& topology);

// Below, `host_of[r]` is the host of rank r; an empty list means that all are on one host.

int host_count(std::span<const int> host_of);
// The ranks of each host, ascending; hosts in the order in which their first rank appears.
std::vector<std::vector<int>> ranks_by_host(std::span<const int> host_of);
// The lowest rank of each host, in the same order.
std::vector<int> host_leaders(std::span<const int> host_of);
// Whether every host has equally many ranks.
bool is_uniform(std::span<const int> host_of);

// rows ≤ columns, rows · columns = n, as near to a square as n allows: 12 → 3 × 4, 7 → 1 × 7.
struct Torus {
  int rows = 1;
  int columns = 1;

  friend bool operator==(const Torus&, const Torus&) = default;
};
Torus near_square(int n);

}  // namespace tutti::topology
