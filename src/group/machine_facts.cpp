#include "group/machine_facts.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>

#include "core/files.hpp"
#include "engine/fingerprint.hpp"
#include "topology/discover.hpp"
#include "tutti/version.h"

namespace tutti::group {
namespace {

constexpr int kMostCpus = 1024;
static_assert(kMostCpus <= CPU_SETSIZE);

// "Intel(R) Xeon(R) …"; what /proc/cpuinfo calls it differs between processors.
std::string processor_name() {
  const std::string text = read_text("/proc/cpuinfo");
  for (const char* key : {"model name", "cpu model", "CPU part"})
    if (const auto line = value_after(text, key))
      if (const std::size_t at = line->find(": "); at != std::string_view::npos)
        return std::string(line->substr(at + 2));
  return "processor of unknown make";
}

bool is_link_local(const std::string& address) {
  return address.rfind("fe80:", 0) == 0 || address.rfind("169.254.", 0) == 0;
}

}  // namespace

CpuSet CpuSet::of_this_process() {
  CpuSet mine;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return mine;
  for (int cpu = 0; cpu < kMostCpus; ++cpu)
    if (CPU_ISSET(cpu, &set))
      mine.words[static_cast<std::size_t>(cpu) / 64] |= std::uint64_t{1} << (cpu % 64);
  return mine;
}

void CpuSet::add(const CpuSet& other) {
  for (std::size_t i = 0; i < words.size(); ++i) words[i] |= other.words[i];
}

std::vector<int> CpuSet::list() const {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < kMostCpus; ++cpu)
    if (words[static_cast<std::size_t>(cpu) / 64] >> (cpu % 64) & 1U) cpus.push_back(cpu);
  return cpus;
}

int share_of_cores(const std::vector<CpuSet>& ranks, std::size_t self) {
  const std::vector<int> cores = ranks[self].list();
  const auto is_rival = [&](const CpuSet& cpus) { return cpus == ranks[self]; };
  const auto company = std::count_if(ranks.begin(), ranks.end(), is_rival);
  if (cores.empty() || company <= std::ssize(cores)) return -1;
  const auto own = ranks.begin() + static_cast<std::ptrdiff_t>(self);
  const auto before = static_cast<std::size_t>(std::count_if(ranks.begin(), own, is_rival));
  return cores[before % cores.size()];
}

std::uint64_t kernel_id() {
  const std::string id(first_word(read_text("/proc/sys/kernel/random/boot_id")));
  return id.empty() ? 0 : engine::fnv1a(id.data(), id.size());
}

MachineFacts MachineFacts::find(int cores) {
  MachineFacts facts;
  facts.processor = processor_name();
  facts.caches = fmt::format("{} {} {}", ::sysconf(_SC_LEVEL1_DCACHE_SIZE),
                             ::sysconf(_SC_LEVEL2_CACHE_SIZE), ::sysconf(_SC_LEVEL3_CACHE_SIZE));
  utsname name{};
  if (::uname(&name) == 0) facts.kernel = fmt::format("{} {}", name.release, name.machine);
  facts.cores = cores;
  return facts;
}

std::string network_text(const std::vector<topology::Interface>& interfaces) {
  std::string text;
  for (const topology::Interface& interface : interfaces) {
    if (!interface.up) continue;
    text += fmt::format("|{} {}", interface.name, interface.megabits_per_s.value_or(0));
    for (const auto& address : interface.addresses)
      if (!is_link_local(address)) text += " " + address;
  }
  return text;
}

std::string fingerprint(const MachineFacts& facts, const std::string& links, bool over_network) {
  // Costs that were measured by another version are measured again.
  std::string text = fmt::format("{}|{}|{}|{}|{}|{}", TUTTI_VERSION, facts.processor, facts.caches,
                                 facts.kernel, facts.cores, links);
  if (over_network) text += network_text(topology::discover_interfaces());
  return fmt::format("{:016x}", engine::fnv1a(text.data(), text.size()));
}

}  // namespace tutti::group
