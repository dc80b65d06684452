// store/impatient.hpp - a client that does not wait for a server that has fallen silent.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "tutti/store.hpp"

namespace tutti::store {

// As connect_store; but a server that is alive answers within `answer`, on top of the time that a call
// tells it to wait. Later it is Code::aborted: Code::timed_out is the server's own answer.
Result<std::shared_ptr<Store>> connect_impatiently(const std::string& address,
                                                   const std::string& secret,
                                                   std::chrono::milliseconds timeout,
                                                   std::uint64_t epoch,
                                                   std::chrono::nanoseconds answer);

}  // namespace tutti::store
