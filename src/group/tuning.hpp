// group/tuning.hpp - how the ranks of a new world come to hold one and the same machine.
//
//   TUTTI_TUNING  fixed     the built-in one; nothing is measured and nothing said
//                 auto      what the cache holds for this fingerprint, else measured and kept; what was
//                           measured on a busy machine is kept for ten minutes
//                 measure   measured at length and kept
//                 a path    what that file says
//
// Rank 0's word holds for all: it reads, measures with the help of one rank per kind of link, and
// sends the table to everybody. A cache that cannot be read or written is a warning; a file that
// was asked for by name and cannot be used is an error on every rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/log.hpp"
#include "group/self.hpp"
#include "tuner/machine.hpp"
#include "tutti/group.hpp"

namespace tutti::group {

struct TuningOptions {
  Config config;
  Log log;
  std::vector<int> host_of;
  std::string links;  // that rank 0 has to the peers of ProbePeers, such as "shm tcp"
  // By which ranks tell each other.
  Algorithm gather = Algorithm::direct;
  Algorithm tell = Algorithm::direct;
  bool over_network = false;  // one of them moves bytes
  Environment environment = process_environment();
};

struct AgreedMachine {
  std::shared_ptr<const tuner::Machine> machine;
  // The machine that each rank runs on: ranks that have not mapped each other's memory may still
  // share one, and its cores.
  std::vector<int> machine_of;
  // This rank's share of the cores, where those that may use the same ones are more than these; else -1.
  int own_core = -1;
};

// Collective over a group that has no other traffic. Blocks: some microseconds with a cached table,
// half a second at most when it measures unasked, about two when asked to.
Result<AgreedMachine> agree_on_machine(Group& group, const TuningOptions& options);

}  // namespace tutti::group
