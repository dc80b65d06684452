// example.hpp - the few lines that all examples share: joining, giving up, printing.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

namespace example {

// A failure ends the program; the other ranks learn of it and end too.
inline void check(const tutti::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::exit(1);
}

template <class T>
T value_of(tutti::Result<T> result) {
  check(result.status());
  return *std::move(result);
}

// The ranks that `tutti run -n …` started; a program started by hand is a group of one.
inline std::shared_ptr<tutti::Group> join() { return value_of(tutti::Group::from_environment()); }

// For an example that tells its story with a certain number of ranks.
inline std::shared_ptr<tutti::Group> join(int ranks, const char* name) {
  auto group = join();
  if (group->size() == ranks) return group;
  std::fprintf(stderr, "start me with %d ranks: tutti run -n %d %s\n", ranks, ranks, name);
  std::exit(2);
}

// "[1, 2, 3]"
template <class T>
std::string text(const std::vector<T>& values) {
  std::string words;
  for (const T& value : values) {
    char word[32];
    std::snprintf(word, sizeof word, "%.6g", static_cast<double>(value));
    words += words.empty() ? word : std::string(", ") + word;
  }
  return "[" + words + "]";
}

// One line in one write, so that the lines of several ranks do not mix.
template <class... Args>
void say(const char* format, Args... args) {
  std::printf(format, args...);
  std::putchar('\n');
  std::fflush(stdout);
}

}  // namespace example
