// tool/bench/progress.hpp - a bar on a terminal, once something takes longer than a moment.
#pragma once

#include <cstdio>
#include <string>

namespace tutti::tool {

class BenchProgress {
 public:
  // `path` is a terminal, or empty: nothing is drawn then.
  BenchProgress(const std::string& path, std::size_t steps);
  ~BenchProgress();
  BenchProgress(const BenchProgress&) = delete;

  // Before step `done` (from 0) begins; `what` it is.
  void show(std::size_t done, const std::string& what);
  // Takes the bar off the terminal, so that something can be printed.
  void clear();
  // To the terminal itself, without running into the bar.
  void print(const std::string& text);

 private:
  std::FILE* terminal_ = nullptr;
  std::size_t steps_;
  double began_us_;
  bool drawn_ = false;
};

// "[#########---------------------]  30 %  all_reduce 4 MiB, about 12 s left"
std::string bar_words(std::size_t done, std::size_t steps, double spent_s, const std::string& what);

}  // namespace tutti::tool
