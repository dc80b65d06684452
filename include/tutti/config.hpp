// tutti/config.hpp - every environment variable, in one struct.
//
// `Config::from_environment` reads them all once; `tutti info` prints the same list with meanings
// and defaults. Nothing else in the library reads the environment but the search for rank and size
// (group/self.hpp), and for the user's cache. A value that cannot be read is Code::invalid_argument naming the variable.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

struct Config {
  // Which transports may be used: "auto", or a comma list, such as "shm,tcp".  TUTTI_TRANSPORT
  std::string transport = "auto";
  // Forced algorithm per collective; automatic where not forced.  TUTTI_ALGORITHM
  std::array<Algorithm, kCollectives> algorithm{};
  // How long an operation may take unless its call says otherwise.  TUTTI_TIMEOUT (seconds)
  std::chrono::nanoseconds timeout = std::chrono::seconds(300);
  // How long ranks wait for each other when a group is created.  TUTTI_JOIN_TIMEOUT (seconds)
  std::chrono::nanoseconds join_timeout = std::chrono::seconds(60);
  // How long a rank may give no sign of life before the others go on without it: its host is cut off or
  // its process stopped. A rank that only computes gives them. 0: for ever.  TUTTI_DEAD_AFTER (seconds)
  std::chrono::nanoseconds dead_after = std::chrono::seconds(10);
  // When links are made: "eager" (all while ranks join), "lazy" (tcp's at their first use) or "auto" (lazy
  // in worlds of more than 16 ranks). The same on all ranks.  TUTTI_LINKS
  std::string links = "auto";
  // Address on which other hosts can reach this one; empty: found.  TUTTI_HOST
  std::string host;
  // Network interface to use between hosts; empty: found.  TUTTI_INTERFACE
  std::string interface;
  // File that says which rack each host stands in; empty: not known.  TUTTI_RACKS
  std::string racks;
  // off, WARN, INFO or TRACE.  TUTTI_DEBUG
  std::string debug = "WARN";
  // Comma list of subsystems to log, empty: all.  TUTTI_DEBUG_SUBSYS
  std::string debug_subsystems;
  // Where the log goes; %h host, %p pid; empty: stderr.  TUTTI_DEBUG_FILE
  std::string debug_file;
  // Folder for flight-recorder dumps; empty: trace_dir, or a summary on stderr.  TUTTI_DUMP_DIR
  std::string dump_dir;
  // Folder into which every rank traces what it does; empty: nothing is traced.  TUTTI_TRACE_DIR
  std::string trace_dir;
  // Records kept by the flight recorder.  TUTTI_RECORDER_SIZE
  std::size_t recorder_size = 4096;
  // Bytes of a segment that moves at once.  TUTTI_SEGMENT_BYTES
  std::size_t segment_bytes = 128 * 1024;
  // What operations cost here, for the choice of algorithms: "auto" (measured once, then kept in the
  // cache), "fixed" (built-in figures), "measure" (again), or a file. Rank 0's counts.  TUTTI_TUNING
  std::string tuning = "auto";
  // Folder for what was measured; empty: tutti/ in the user's cache.  TUTTI_CACHE_DIR
  std::string cache_dir;
  // TCP connections between two ranks, 1 … 8; the smaller of both sides counts.  TUTTI_STREAMS
  int streams = 1;
  // Congestion control of TCP connections: "auto" (the system's, but cubic where that is bbr), "system",
  // or a name that the kernel knows.  TUTTI_TCP_CONGESTION
  std::string tcp_congestion = "auto";
  // Whether TCP connections are encrypted, the store's too; on every rank or on none.  TUTTI_TLS
  bool tls = false;
  // PEM files by which both sides know each other under TLS; all empty: by the job's secret.
  // TUTTI_TLS_CERT, TUTTI_TLS_KEY, TUTTI_TLS_CA
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;
  // Whether every frame on tcp carries checksums; off only where both sides say so.
  // TUTTI_TCP_CHECKSUM
  bool tcp_checksum = true;
  // Whether urgent groups have a connection to themselves with each peer on tcp; only where both sides say
  // so.  TUTTI_TCP_EXPRESS
  bool tcp_express = true;
  // Whether a switch that folds joins this job (tutti switch): rank 0 waits ten seconds for it.
  // TUTTI_SWITCH
  bool use_switch = false;
  // Provider of libfabric that links of ofi use, such as "verbs;ofi_rxm" or "tcp;ofi_rxm", and a comma list of
  // its domains, one rail each; empty: found.  TUTTI_OFI_PROVIDER, TUTTI_OFI_DOMAINS
  std::string ofi_provider;
  std::vector<std::string> ofi_domains;
  // Microseconds for which the kernel may ask a network card itself when a tcp connection that is read has
  // nothing (SO_BUSY_POLL); 0: it waits to be told.  TUTTI_BUSY_POLL
  int busy_poll = 0;
  // How ranks on GPUs meet: "auto" (the quickest, measured at a group's first device buffer), "host",
  // "memops" or "kernel".  TUTTI_CUDA_MEET
  std::string cuda_meet = "auto";
  // How they reach each other's device memory: "auto", "ipc" (mapped, or an error), or "staged" (through
  // host memory).  TUTTI_CUDA_REACH
  std::string cuda_reach = "auto";
  // Bytes of an all_gather's output or a broadcast's buffer on a device from which owners write to all, rather than
  // all read from owners; rank 0's counts.  TUTTI_CUDA_PUSH
  std::size_t cuda_push = std::size_t{16} << 20;
  // Whether `import tutti_torch` gives torch's tensors memory that the ranks of the host have mapped
  // (tutti/shared_heap.hpp).  TUTTI_SHARED_HEAP
  bool shared_heap = false;
  // The most bytes of such a heap, in each process; 0: the memory that is available when it is made.
  // TUTTI_SHARED_HEAP_BYTES
  std::size_t shared_heap_bytes = 0;
  // Polls before a waiting thread yields; negative: by the number of cores.  TUTTI_SPIN
  long spin = -1;
  // Whether a progress thread drives async operations.  TUTTI_PROGRESS_THREAD
  bool progress_thread = true;
  // Cores that thread may run on, such as 3 or 0,4-7; empty: any.  TUTTI_PROGRESS_CPUS
  std::vector<int> progress_cpus;
  // The most of a core's time that it takes, 0.01 … 1: compute beside it keeps the rest.
  // TUTTI_MAX_CORE_SHARE
  double max_core_share = 1.0;

  // Warns of TUTTI_ variables that there are not, once in a process, and only where nobody else does:
  // not on ranks above 0, nor under `tutti run`, which has told already.
  static Result<Config> from_environment();
};

// One row of the table that `tutti info` prints.
struct ConfigVariable {
  std::string name;
  std::string meaning;
  std::string default_value;
  std::string value;  // as set in this environment; empty when not set
};
std::vector<ConfigVariable> config_variables();
// A sentence for each TUTTI_ variable that is set and that there is not, with the nearest one.
std::vector<std::string> unknown_variables();

}  // namespace v1
}  // namespace tutti
