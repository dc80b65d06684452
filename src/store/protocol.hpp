// store/protocol.hpp - what a store's client and server say to each other after the handshake.
//
// One request, one response, in turn; a client that wants to do several things at once opens
// several connections. Each is a frame: a 32-bit length, then that many bytes
// (docs/formats/store.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/status.hpp"
#include "tutti/store.hpp"

namespace tutti::store {

enum class RequestKind : std::uint8_t { set = 1, get, wait, add, compare_set, remove };

struct StoreRequest {
  RequestKind kind = RequestKind::get;
  std::int64_t number = 0;  // add: the amount; get and wait: milliseconds to wait
  std::string key;
  std::string value;     // set: the value; compare_set: the desired one
  std::string expected;  // compare_set

  std::string encode() const;  // with its length
  // Of a frame's body. Code::corrupt for anything that encode does not make.
  static Result<StoreRequest> decode(std::string_view body);
};

struct Response {
  Code code = Code::ok;
  std::int64_t number = 0;  // add: the sum; remove: 1 if it was there
  std::string text;         // the value, or the error's message

  std::string encode() const;
  static Result<Response> decode(std::string_view body);
};

inline constexpr std::size_t kLengthBytes = 4;
// The longest frame that either side can mean: anything above it is a stranger's, or broken.
inline constexpr std::size_t kMaxFrameBytes = Store::kMaxKeyBytes + 2 * Store::kMaxValueBytes + 64;

// The body's length from the first kLengthBytes of a frame; Code::corrupt when it cannot be one.
Result<std::size_t> frame_length(std::string_view bytes);

}  // namespace tutti::store
