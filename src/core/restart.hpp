// core/restart.hpp - how the attempts of a job that `tutti run --max-restarts` restarts stay apart.
#pragma once

#include <string>

namespace tutti {

// Before every key of the job's store from the first restart on: nobody finds what the last attempt
// left there. Launcher and ranks must say it alike.
inline std::string restart_prefix(int restart) {
  return "restart/" + std::to_string(restart) + "/";
}

}  // namespace tutti
