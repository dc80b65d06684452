// group/machine_facts.hpp - what a measured cost depends on, as far as this machine tells.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "topology/discover.hpp"

namespace tutti::group {

// The processors that a process may use, in a form that can be sent.
struct CpuSet {
  std::array<std::uint64_t, 16> words{};

  static CpuSet of_this_process();
  void add(const CpuSet& other);
  std::vector<int> list() const;
  friend bool operator==(const CpuSet&, const CpuSet&) = default;
};

// The core that falls to rank `self` of a machine when they are dealt out among those that may use the very same
// ones; -1 where there is one for each. `ranks`: what each rank of the machine may use.
int share_of_cores(const std::vector<CpuSet>& ranks, std::size_t self);

// The same number for all that run on one kernel, whatever namespaces they see; 0: it does not say.
std::uint64_t kernel_id();

struct MachineFacts {
  std::string processor;  // as the kernel names it
  std::string caches;     // bytes by level
  std::string kernel;
  int cores = 0;

  static MachineFacts find(int cores);
};

// What of the network counts. Not the addresses that an interface gives itself: they come a second after it, and
// are others for each incarnation of a virtual one.
std::string network_text(const std::vector<topology::Interface>& interfaces);

// 16 hexadecimal digits. `links` names the kinds of link that are measured; `over_network`: one of
// them uses the network interfaces, which then count too.
std::string fingerprint(const MachineFacts& facts, const std::string& links, bool over_network);

}  // namespace tutti::group
