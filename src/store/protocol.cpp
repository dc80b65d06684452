#include "store/protocol.hpp"

#include <fmt/format.h>

#include "core/bytes.hpp"

namespace tutti::store {
namespace {

std::string framed(std::string body) {
  ByteWriter length;
  length.put(static_cast<std::uint32_t>(body.size()));
  return length.take() + body;
}

}  // namespace

std::string StoreRequest::encode() const {
  ByteWriter body;
  body.put(kind);
  body.put(number);
  body.put_string(key);
  body.put_string(value);
  body.put_string(expected);
  return framed(body.take());
}

Result<StoreRequest> StoreRequest::decode(std::string_view body) {
  StoreRequest request;
  ByteReader reader(body);
  const bool whole = reader.get(request.kind) && reader.get(request.number) &&
                     reader.get_string(request.key) && reader.get_string(request.value) &&
                     reader.get_string(request.expected) && reader.empty();
  if (!whole || request.kind < RequestKind::set || request.kind > RequestKind::remove)
    return Status(Code::corrupt, "the store's client sent a request that cannot be read");
  return request;
}

std::string Response::encode() const {
  ByteWriter body;
  body.put(code);
  body.put(number);
  body.put_string(text);
  return framed(body.take());
}

Result<Response> Response::decode(std::string_view body) {
  Response response;
  ByteReader reader(body);
  const bool whole = reader.get(response.code) && reader.get(response.number) &&
                     reader.get_string(response.text) && reader.empty();
  if (!whole || response.code > Code::internal)
    return Status(Code::corrupt, "the store's server sent a response that cannot be read");
  return response;
}

Result<std::size_t> frame_length(std::string_view bytes) {
  std::uint32_t length = 0;
  ByteReader reader(bytes);
  if (!reader.get(length) || length > kMaxFrameBytes)
    return Status(Code::corrupt, fmt::format("a frame of {} bytes is not the store's", length));
  return static_cast<std::size_t>(length);
}

}  // namespace tutti::store
