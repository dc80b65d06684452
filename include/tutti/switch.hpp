// tutti/switch.hpp - folds what the ranks of a job send, and returns the result to each: what switches with
// SHARP do, as a process on a host with a fat link (docs/algorithms/in_network.md).
//
// Ordering       it joins with the first group that the ranks create, if rank 0 expects it (Config::use_switch),
//                and serves that group and all that are made from it.
// Failure        a switch that is lost costs its ranks nothing but time: they go on among themselves.
// Thread-safety  one call serves one job; several may run in one process, each in a thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tutti/config.hpp"
#include "tutti/status.hpp"
#include "tutti/store.hpp"

namespace tutti {
inline namespace [[gnu::visibility("default")]] v1 {

struct SwitchOptions {
  int size = -1;                   // ranks of the job
  std::string name = "world";      // of the group that they create
  std::optional<Config> config{};  // absent: from the environment
  std::string secret{};            // as in GroupOptions
  // Asked ten times a second; true ends it. None: it serves until the ranks have gone.
  std::function<bool()> stop{};
};

// Waits for the ranks, links up with them and serves until they have gone: ok. Blocks.
Status run_switch(std::shared_ptr<Store> store, SwitchOptions options);
// The same, where and for how many ranks the launcher's variables say (docs/formats/environment.md).
Status run_switch_from_environment(SwitchOptions options = {});

}  // namespace v1
}  // namespace tutti
