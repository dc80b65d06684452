// topology/discover.hpp - what this machine is made of, as far as it says.
//
// The one part of the room that is not pure: it asks hwloc and the kernel. What it finds is a plain
// value; `tutti info` prints it.
//
// Failure        only a machine whose processors cannot be read is an error. Everything else that
//                is unknown is left empty: a container often hides it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/topology.hpp"
#include "tutti/status.hpp"

namespace tutti::topology {

struct NumaNode {
  std::uint64_t memory_bytes = 0;
  std::vector<int> cpus;  // as the kernel numbers them
};

// Cores that share a third-level cache.
struct CacheDomain {
  std::uint64_t bytes = 0;
  std::vector<int> cpus;
};

struct Interface {
  std::string name;
  std::vector<std::string> addresses;  // IPv4 and IPv6, in text
  bool up = false;
  bool loopback = false;
  std::optional<int> megabits_per_s;  // where /sys says it
};

struct Hardware {
  std::string host_name;
  int cores = 0;
  int cpus = 0;  // hardware threads that this process may use
  std::uint64_t memory_bytes = 0;
  std::vector<NumaNode> numa_nodes;
  std::vector<CacheDomain> l3_domains;
  std::vector<Interface> interfaces;
};

Result<Hardware> discover();
// The network interfaces alone: much quicker than the rest. Empty when the kernel does not say.
std::vector<Interface> discover_interfaces();

// Where this process sits inside its host: the socket and the NUMA node that all processors it may use belong
// to, or those of the GPU of that number, where there is one. No rack: a file says that. What cannot be told
// is left out.
Locality discover_locality(int gpu);

// For people: a few lines.
std::string to_text(const Hardware& machine);

}  // namespace tutti::topology
