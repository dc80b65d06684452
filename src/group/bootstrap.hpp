// group/bootstrap.hpp - how ranks that share nothing but a store get links to each other.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/log.hpp"
#include "group/launcher_board.hpp"
#include "transport/endpoint.hpp"
#include "tutti/group.hpp"

namespace tutti::group {

struct Linked {
  std::unique_ptr<transport::Endpoint> endpoint;
  std::vector<int> host_of;  // ranks that have mapped each other's memory are one host
  bool tunes = false;        // rank 0 wants more than built-in costs
  bool has_switch = false;   // of the endpoint's ranks the last is the switch that folds
};

// Behind the epoch where rank 0 has met a switch; taken off again.
inline constexpr std::string_view kWithSwitch = "s";
bool take_switch_mark(std::string& epoch);

// Blocks, at most config.join_timeout. The error names the ranks that did not come. `board`, where
// there is one, says which of them have ended: they are not waited for.
Result<Linked> link_up(Store& store, const GroupOptions& options, const Config& config,
                       const Log& log, const LauncherBoard* board);

}  // namespace tutti::group
