// group/self.hpp - who am I, and where do the others meet: answered from the environment.
//
// The environment is handed in, so that every launcher can be played in a test. The first launcher
// that left its mark wins: tutti run, torchrun, Open MPI, PMIx, PMI, Slurm; without any of them the
// process is rank 0 of 1. Slurm comes last because under mpirun inside salloc all ranks of a node
// inherit one SLURM_PROCID. docs/formats/environment.md lists every variable.
//
// Failure        variables that contradict each other (RANK without WORLD_SIZE, a rank that is not
//                below the size) are Code::invalid_argument naming both.
// Thread-safety  find_self and meet may be called from any thread, several at once.
//
//   auto self = find_self(process_environment());
//   if (!self.ok()) return self.status();
//   auto meeting = meet(*self, std::chrono::seconds(60));
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/secret.hpp"
#include "tutti/status.hpp"
#include "tutti/store.hpp"

namespace tutti::group {

// The value of a variable, or nothing when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

struct Self {
  int rank = 0;
  int size = 1;
  // Position among the ranks of this host as the launcher tells it; a hint for people and for
  // placement. Who really shares a host is found by mapping memory.
  int local_rank = 0;
  int local_size = 1;
  std::string launcher = "none";  // none tutti torchrun openmpi pmix pmi slurm
  std::string job;                // the same on all ranks of the job, different between jobs
  int restart = 0;                // of the job by tutti run: its keys are apart from the last one's
  std::string store_address;      // what connect_store takes; empty: nobody to meet
  bool serves_store = false;      // rank 0 of a job whose launcher runs no store
  std::uint64_t epoch = 0;  // of the store: stands for the job; 0 where ranks may not agree on it
  Secret secret;            // empty on one host without tutti run: same user is trusted
};

Result<Self> find_self(const Environment& environment);

// The launcher's (TUTTI_SECRET_FD), or a file's (TUTTI_SECRET_FILE) where the launcher's is not set or
// cannot be read; empty where neither is set. Code::io: the launcher's cannot be read, and no file is set.
Result<Secret> find_secret(const Environment& environment);

// The store, and its server where this rank has to run it. The server must outlive every rank's use
// of the store.
struct MeetingStore {
  std::shared_ptr<Store> store;
  std::unique_ptr<StoreServer> server;
};

// Serves where needed and connects; blocks, at most `timeout`. A lone rank gets a memory store.
Result<MeetingStore> meet(const Self& self, std::chrono::milliseconds timeout);

}  // namespace tutti::group
