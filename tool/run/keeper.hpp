// tool/run/keeper.hpp - the process that ends the ranks when the launcher could not.
//
// Ranks ask the kernel to be killed with the launcher, but that does not reach what they started
// themselves (`tutti run bash -c ./prog`). The keeper sleeps on a pipe whose other end only the
// launcher holds; when that end closes without farewell it kills the groups left on its list.
#pragma once

#include <sys/types.h>

#include <string>

#include "core/sockets.hpp"
#include "tutti/status.hpp"

namespace tutti::tool {

class Keeper {
 public:
  // Forks; call it before any thread is started. `socket` is the job's socket, which the keeper
  // removes where the launcher could not; empty: none.
  static Result<Keeper> start(const std::string& socket);
  Keeper(Keeper&&) = default;
  ~Keeper();  // lets it end, and waits for that

  void watch(pid_t group) { tell(group); }
  void forget(pid_t group) { tell(-group); }

 private:
  Keeper(Descriptor pipe, pid_t pid) : pipe_(std::move(pipe)), pid_(pid) {}
  void tell(pid_t word);

  Descriptor pipe_;
  pid_t pid_;
};

}  // namespace tutti::tool
