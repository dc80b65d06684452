// What a host says of itself.
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "core/cgroup.hpp"
#include "core/files.hpp"
#include "core/limits.hpp"
#include "core/sockets.hpp"
#include "core/words.hpp"
#include "tool/doctor/examination.hpp"
#include "tool/run/room.hpp"
#include "tool/run/verdict.hpp"
#include "topology/discover.hpp"
#include "tutti/version.h"

namespace tutti::tool::doctor {
namespace {

std::int64_t or_unlimited(std::uint64_t limit) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  // The kernel writes "no limit" of memory as the largest number of whole pages, too.
  return limit > kMost / 2 ? -1 : static_cast<std::int64_t>(limit);
}

std::int64_t number_in(const char* path) { return or_unlimited(limit_in(path)); }

std::string line_in(const char* path) {
  std::string text = read_text(path);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// The third number of a file such as tcp_wmem: least, preset, most.
std::int64_t most_in(const char* path) {
  const std::string text = line_in(path);
  const std::size_t last = text.find_last_of(" \t");
  if (last == std::string::npos) return -1;
  return first_number(std::string_view(text).substr(last + 1)).value_or(-1);
}

std::int64_t soft_limit(decltype(RLIMIT_MEMLOCK) which) {
  rlimit limit{};
  if (::getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

// Of all control groups on the way up, in either version; what a container may have of the processors.
double cgroup_cpus() {
  double least = -1;
  for (const std::string& folder : Cgroup::of(CgroupKind::pids).folders) {
    const auto quota = first_number(read_text(folder + "/cpu.max"));  // "max 100000" has none
    const std::string text = read_text(folder + "/cpu.max");
    const std::size_t blank = text.find(' ');
    if (!quota || text.starts_with("max") || blank == std::string::npos) continue;
    const auto period = first_number(text.substr(blank));
    if (period.value_or(0) <= 0) continue;
    const double cpus = static_cast<double>(*quota) / static_cast<double>(*period);
    least = least < 0 ? cpus : std::min(least, cpus);
  }
  const auto quota = first_number(read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"));
  const auto period = first_number(read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
  if (quota.value_or(-1) > 0 && period.value_or(0) > 0) {
    const double cpus = static_cast<double>(*quota) / static_cast<double>(*period);
    least = least < 0 ? cpus : std::min(least, cpus);
  }
  return least;
}

// Adapters of RDMA, and GPUs.
bool has_pinning_devices() {
  std::error_code ignored;
  for (const char* path : {"/dev/infiniband", "/dev/nvidiactl"})
    if (std::filesystem::exists(path, ignored)) return true;
  return false;
}

// What others reach it by: the one of TUTTI_INTERFACE, or the first that is up, has an address, and is no loopback.
const topology::Interface* outward(const topology::Hardware& machine, const std::string& named) {
  for (const auto& interface : machine.interfaces)
    if (named.empty() ? interface.up && !interface.loopback && !interface.addresses.empty()
                      : interface.name == named)
      return &interface;
  return nullptr;
}

void look_at_network(const topology::Hardware& machine, const Config& config, HostRecord& facts) {
  facts.congestion = line_in("/proc/sys/net/ipv4/tcp_congestion_control");
  facts.send_buffer = most_in("/proc/sys/net/ipv4/tcp_wmem");
  facts.receive_buffer = most_in("/proc/sys/net/ipv4/tcp_rmem");
  const topology::Interface* interface = outward(machine, config.interface);
  if (interface == nullptr) return;
  facts.interface = interface->name;
  facts.mtu = number_in(("/sys/class/net/" + interface->name + "/mtu").c_str());
}

void look_at_limits(int local_ranks, int all_ranks, const Config& config, HostRecord& facts) {
  const RoomNeeds needs = RoomNeeds::of(local_ranks, all_ranks, config, false);
  const HostRoom room = HostRoom::of_this_host();
  facts.descriptors = or_unlimited(room.descriptors);
  facts.needed_descriptors =
      or_unlimited(std::max(needs.launcher_descriptors, needs.rank_descriptors));
  facts.memory_bytes = or_unlimited(room.memory_bytes);
  facts.needed_memory = or_unlimited(needs.memory_bytes);
  facts.threads = or_unlimited(room.threads);
  facts.needed_threads = or_unlimited(needs.threads);
  facts.locked_memory = soft_limit(RLIMIT_MEMLOCK);
  facts.cgroup_memory = or_unlimited(Cgroup::of(CgroupKind::memory).limit(CgroupKind::memory));
  facts.cgroup_cpus = cgroup_cpus();
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0)
    facts.shm_bytes = static_cast<std::int64_t>(shm.f_bavail * shm.f_frsize);
}

}  // namespace

HostRecord look_at_this_host(int local_ranks, int all_ranks) {
  const auto set = Config::from_environment();
  const Config config = set.ok() ? *set : Config();
  HostRecord facts;
  facts.name = host_name();
  facts.ranks = local_ranks;
  facts.version = TUTTI_VERSION;
  double load = 0;
  if (::getloadavg(&load, 1) == 1) facts.load = load;
  const auto machine = topology::discover();
  if (machine.ok()) {
    facts.cpus = machine->cpus;
    facts.numa_nodes = static_cast<std::int64_t>(machine->numa_nodes.size());
    look_at_network(*machine, config, facts);
  }
  look_at_limits(local_ranks, all_ranks, config, facts);
  facts.numa_balancing = std::max<std::int64_t>(0, number_in("/proc/sys/kernel/numa_balancing"));
  facts.governor = line_in("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  facts.pinning = has_pinning_devices() ? 1 : 0;
  return facts;
}

}  // namespace tutti::tool::doctor
