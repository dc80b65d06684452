// tool/run/keeper.hpp - the process whose children the ranks are, and which leaves nothing of them.
//
//   launcher ── socket ── keeper ─┬─ rank 0 ── what it started
//                                 ├─ rank 1
//                                 └─ what left its session, once its parent is gone
//
// It is a subreaper (descendants.hpp), so nothing that a rank starts gets out from below it; and it has
// a process group of its own, so what ends the launcher does not end it. When the socket closes,
// however the launcher ended, it kills all that is below. If the keeper itself is killed, the ranks die
// with it, and all the rest becomes the launcher's.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/sockets.hpp"
#include "tool/run/spawn.hpp"
#include "tutti/status.hpp"

namespace tutti::tool {

class Keeper {
 public:
  struct Duties {
    std::string socket{};        // of the job, to remove where the launcher could not; empty: none
    bool leave_daemons = false;  // what left its process group may stay
  };
  // Forks; call it before any thread is started.
  static Result<Keeper> start(Duties duties);
  Keeper(Keeper&&) = default;
  ~Keeper();  // lets it end, and waits for that

  // Starts a program with exactly `environment` ("NAME=value") and `standard_input`. Returns once it
  // runs; an exec that fails is Code::invalid_argument naming the program.
  Result<Child> spawn(const SpawnOptions& launch, const std::vector<std::string>& environment,
                      int standard_input);
  // Waits for a process that it started, and kills what is left of its process group. Until then
  // nobody else gets its number. Returns what waitpid said.
  int reap(pid_t process);
  // Kills whatever is below it but processes that are not reaped yet, and returns when it is gone.
  void sweep();

 private:
  Keeper(Descriptor socket, pid_t pid, bool leave_daemons)
      : socket_(std::move(socket)), pid_(pid), leave_daemons_(leave_daemons) {}

  Descriptor socket_;
  pid_t pid_;
  bool leave_daemons_;
};

}  // namespace tutti::tool
