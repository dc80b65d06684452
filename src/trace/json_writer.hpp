// trace/json_writer.hpp - JSON written piece by piece through a small buffer, without allocation.
//
// Async-signal-safe as far as `flush` is: dumps run in signal handlers. RapidJSON's writer does the
// text; all that it asks for from outside is given here and lies in this object: where letters go,
// and memory for the levels that are open.
//
//   JsonWriter out(flush, target);
//   out.open('{'); out.field("rank", std::int64_t{3}); out.close('}'); out.finish();
#pragma once

#include <rapidjson/writer.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace tutti::trace {

class JsonWriter {
 public:
  using Flush = void (*)(void* target, std::string_view text);
  JsonWriter(Flush flush, void* target)
      : out_{flush, target, 0, {}}, writer_(out_, &levels_, Levels::kMost) {}
  JsonWriter(const JsonWriter&) = delete;

  void open(char bracket);
  void close(char bracket);
  void key(std::string_view name);
  void value(std::string_view text);
  void field(std::string_view name, std::int64_t number);
  // Bytes that are not ASCII become '?', so that the output is always JSON.
  void field(std::string_view name, std::string_view text);
  // Ends the line and hands out what is left in the buffer.
  void finish();

 private:
  // An output stream, as RapidJSON names its functions. The writer hands on every byte of a text as
  // it is, once it is escaped.
  struct Out {
    using Ch = char;
    void Put(char byte) {
      if (size == sizeof buffer) hand_out();
      buffer[size++] = static_cast<unsigned char>(byte) < 0x7f ? byte : '?';
    }
    void Flush() {}  // at the end of the document: finish() does it
    void hand_out();

    JsonWriter::Flush flush;
    void* target;
    std::size_t size;
    char buffer[2048];
  };

  // An allocator that has one piece of memory. The writer asks for it when the first level is
  // opened, and again only if there are more than it said.
  struct Levels {
    static constexpr bool kNeedFree = false;
    static constexpr std::size_t kMost = 8;  // a dump has three
    void* Malloc(std::size_t bytes) { return Realloc(nullptr, 0, bytes); }
    void* Realloc(void*, std::size_t, std::size_t bytes) {
      if (bytes > sizeof room) std::abort();
      return room;
    }
    static void Free(void*) {}

    alignas(std::size_t) char room[kMost * 2 * sizeof(std::size_t)];
  };

  void put(std::string_view text);

  Out out_;
  Levels levels_;
  rapidjson::Writer<Out, rapidjson::UTF8<>, rapidjson::UTF8<>, Levels> writer_;
};

}  // namespace tutti::trace
