// trace/json_writer.hpp - JSON written piece by piece through a small buffer, without allocation.
//
// Async-signal-safe as far as `flush` is: dumps run in signal handlers. Commas place themselves.
//
//   JsonWriter out(flush, target);
//   out.open('{'); out.field("rank", std::int64_t{3}); out.close('}'); out.finish();
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti::trace {

class JsonWriter {
 public:
  using Flush = void (*)(void* target, std::string_view text);
  JsonWriter(Flush flush, void* target) : flush_(flush), target_(target) {}

  void open(char bracket);
  void close(char bracket);
  void key(std::string_view name);
  void field(std::string_view name, std::int64_t number);
  // Bytes that are not printable ASCII become '?' or an escape, so that the output is always JSON.
  void field(std::string_view name, std::string_view text);
  // Ends the line and hands out what is left in the buffer.
  void finish();

 private:
  void put(char letter);
  void put(std::string_view text);
  void put_escaped(std::string_view text);
  void put_number(std::int64_t number);
  void separate();

  Flush flush_;
  void* target_;
  bool comma_ = false;  // whether the next value needs one before it
  std::size_t size_ = 0;
  char buffer_[2048];
};

}  // namespace tutti::trace
