// tool/doctor/examination.hpp - what `tutti doctor` finds out: facts that hosts tell of themselves, and what was
// measured between ranks. Plain values, as JSON on the way from the ranks to whoever reads them.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/json.hpp"

namespace tutti::tool::doctor {

// -1: the host does not say, or has no such limit.
struct HostRecord {
  std::string name;
  std::int64_t ranks = 0;
  std::string version;  // of tutti
  std::int64_t cpus = 0;
  std::int64_t numa_nodes = 0;
  std::int64_t memory_bytes = -1;  // that can still be taken
  std::string interface;           // by which others reach it, where that can be told
  std::int64_t mtu = -1;
  std::string congestion;            // control of TCP that the system presets
  std::int64_t send_buffer = -1;     // the most that TCP makes of it
  std::int64_t receive_buffer = -1;  // likewise
  std::int64_t descriptors = -1;     // of a process, after raising its limit
  std::int64_t needed_descriptors = -1;
  std::int64_t needed_memory = -1;  // for links between all ranks
  std::int64_t threads = -1;
  std::int64_t needed_threads = -1;
  std::int64_t locked_memory = -1;
  std::int64_t shm_bytes = -1;  // free in /dev/shm
  std::int64_t cgroup_memory = -1;
  double cgroup_cpus = -1;
  double load = -1;                 // of the last minute, before anything was measured
  std::int64_t numa_balancing = 0;  // 1: the kernel moves pages about
  std::string governor;             // of the processors' clocks
  std::int64_t pinning = 0;         // 1: there are adapters that want locked memory
};

// One direction between two ranks. 0: was not measured.
struct Path {
  int from = 0;  // rank
  int to = 0;
  double latency_s = 0;  // half of a round trip
  double bytes_per_s = 0;
};

struct Examination {
  std::vector<HostRecord> hosts;
  std::vector<int> host_of;  // each rank's place in `hosts`
  std::vector<Path> paths;
};

HostRecord look_at_this_host(int local_ranks, int all_ranks);

Json to_json(const HostRecord& facts);
Json to_json(const Path& path);
Json to_json(const Examination& examination);
Result<HostRecord> read_facts(const Json& json);
Result<Path> read_path(const Json& json);
Result<Examination> read_examination(const Json& json);

}  // namespace tutti::tool::doctor
