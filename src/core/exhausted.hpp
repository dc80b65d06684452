// core/exhausted.hpp - memory and threads that cannot be had, as a Status.
//
// The standard library throws when there is no memory or no thread left. Nothing may pass a public
// call as an exception, so whatever takes memory behind one is run in here.
//
//   return or_exhausted([&] { return create_group(…); });
#pragma once

#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

#include "tutti/status.hpp"

namespace tutti {

// Code::out_of_memory, with what this process has and may have, where there is memory to say it in.
Status out_of_address_space() noexcept;
Status out_of_threads(const std::system_error& error);

// What `body` returns: a Status or a Result, ok where it returns nothing; Code::out_of_memory if it found
// the machine exhausted.
template <class Body, class Returned = std::invoke_result_t<Body>>
std::conditional_t<std::is_void_v<Returned>, Status, Returned> or_exhausted(Body&& body) {
  try {
    if constexpr (std::is_void_v<Returned>)
      return std::forward<Body>(body)(), Status();
    else
      return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return out_of_address_space();
  } catch (const std::system_error& error) {
    // What a thread that cannot be had throws; anything else is not ours to explain.
    if (error.code() != std::errc::resource_unavailable_try_again) throw;
    return out_of_threads(error);
  }
}

}  // namespace tutti
