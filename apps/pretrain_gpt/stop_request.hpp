// apps/pretrain_gpt/stop_request.hpp - SIGINT and SIGTERM as a wish to end well.
//
// The first one is only noted, for the loop to see; the second one ends the process at once, as it
// would without this object. Launchers and service managers may deliver one wish twice (to the rank
// and through its launcher): what follows within kSameWish belongs to the first.
//
// Thread-safety  one object at a time in a process; asked() from any thread.
#pragma once

#include <signal.h>

#include <chrono>

namespace pretrain {

class StopRequest {
 public:
  static constexpr std::chrono::milliseconds kSameWish{300};

  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  bool asked() const;

 private:
  struct sigaction former_int_ = {}, former_term_ = {};
};

}  // namespace pretrain
