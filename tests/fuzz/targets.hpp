// fuzz/targets.hpp - what is fed with any bytes, each by its word.
//
// A target takes an input and must come to an end with it: whatever it finds wrong is a Status. What it
// finds right it prints and reads again, where there is a way to print it: both must be the same.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace tutti::fuzz {

using Input = std::span<const std::uint8_t>;

void frames(Input input);       // tcp: FrameReader, PointToPoint, MessageRun
void memory_link(Input input);  // slots of a neighbour's window
void handshake(Input input);
void store(Input input);
void safetensors(Input input);
void manifest(Input input);
void schedule(Input input);
void cluster(Input input);
void trace(Input input);   // trace files
void flight(Input input);  // dumps of the flight recorder

struct Target {
  std::string_view word;
  void (*run)(Input input);
};
inline constexpr Target kTargets[] = {
    {"frames", frames},     {"memory_link", memory_link}, {"handshake", handshake},
    {"store", store},       {"safetensors", safetensors}, {"manifest", manifest},
    {"schedule", schedule}, {"cluster", cluster},         {"trace", trace},
    {"flight", flight},
};

// Takes a value off the front; zeros where the input is too short.
template <class T>
T take(Input& input) {
  T value{};
  const std::size_t bytes = input.size() < sizeof value ? input.size() : sizeof value;
  if (bytes > 0) std::memcpy(static_cast<void*>(&value), input.data(), bytes);
  input = input.subspan(bytes);
  return value;
}

inline std::string_view text_of(Input input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

}  // namespace tutti::fuzz
