// bench/peers/peer.hpp - what the programs of all peers have in common: options, buffers, check,
// loop.
//
// A peer's program says who it is and makes a function per cell; everything else, and above all how
// it is timed, is the same as for tutti (bench/protocol.hpp). Rank 0 prints a line per cell:
//
//   point COLLECTIVE BYTES MEDIAN_US P99_US MIN_US BACK_TO_BACK_US ITERATIONS WRONG
//
// f32, sum, root 0. all_reduce and broadcast are in place, the others out of place.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bench/protocol.hpp"

namespace tutti::bench {

enum class PeerOp { all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, barrier, none };

inline PeerOp peer_op(const std::string& word) {
  const std::map<std::string, PeerOp> words = {
      {"all_reduce", PeerOp::all_reduce}, {"reduce_scatter", PeerOp::reduce_scatter},
      {"all_gather", PeerOp::all_gather}, {"broadcast", PeerOp::broadcast},
      {"all_to_all", PeerOp::all_to_all}, {"barrier", PeerOp::barrier}};
  const auto found = words.find(word);
  return found == words.end() ? PeerOp::none : found->second;
}

// "--name value" pairs.
class PeerOptions {
 public:
  PeerOptions(int count, char** words) {
    for (int i = 1; i + 1 < count; i += 2) values_[words[i]] = words[i + 1];
  }
  std::string text(const std::string& name, const std::string& preset = "") const {
    const auto found = values_.find(name);
    return found == values_.end() ? preset : found->second;
  }
  double number(const std::string& name, double preset) const {
    const std::string word = text(name);
    return word.empty() ? preset : std::atof(word.c_str());
  }
  std::vector<std::string> list(const std::string& name) const {
    std::vector<std::string> words;
    std::stringstream stream(text(name));
    for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
    return words;
  }

 private:
  std::map<std::string, std::string> values_;
};

struct PeerCell {
  PeerOp op = PeerOp::barrier;
  std::size_t count = 0;  // elements of the whole array
  std::size_t part = 0;   // of one rank's part
  float* in = nullptr;
  float* out = nullptr;
  bool result_in_input = false;  // a maker sets it for a reduce_scatter that works in place
};

// Makes the operation of a cell; empty: this peer does not have it.
using PeerMaker = std::function<std::function<void()>(PeerCell&)>;

class PeerLoop {
 public:
  PeerLoop(const PeerOptions& options, int rank, int ranks)
      : options_(options),
        rank_(rank),
        ranks_(static_cast<std::size_t>(ranks)),
        meeting_(map_meeting(options, ranks), rank, ranks, options.number("--crowded", 0) != 0) {
    effort_.budget_us = options.number("--budget_us", 25e3);
    effort_.back_to_back = options.number("--back_to_back", 0) != 0;
    warm_ = options.number("--warm", 1) != 0;
    // A peer that hangs must not outlive whoever started it.
    if (const double limit = options.number("--limit_s", 0); limit > 0)
      ::alarm(static_cast<unsigned>(limit) + 1);
  }

  void run(const PeerMaker& make) {
    allocate();
    for (const std::string& word : options_.list("--collectives")) {
      std::size_t last = SIZE_MAX;
      for (const std::string& size : options_.list("--sizes")) {
        const PeerOp op = peer_op(word);
        const std::size_t count = fitting_count(op, std::strtoull(size.c_str(), nullptr, 10));
        if (op == PeerOp::none || count == last) continue;
        last = count;
        if (!measure_cell(word, op, count, make)) break;
      }
    }
    meeting_.sync();
  }

 private:
  static void* map_meeting(const PeerOptions& options, int ranks) {
    const std::string path = options.text("--meeting");
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    void* memory = file < 0 ? MAP_FAILED
                            : ::mmap(nullptr, Meeting::bytes_for(ranks), PROT_READ | PROT_WRITE,
                                     MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
      std::fprintf(stderr, "cannot map the meeting place '%s'\n", path.c_str());
      std::exit(2);
    }
    ::close(file);
    return memory;
  }
  static bool cut(PeerOp op) {
    return op == PeerOp::reduce_scatter || op == PeerOp::all_gather || op == PeerOp::all_to_all;
  }
  // As `tutti bench` does it: the same number of elements for every rank, at least one.
  std::size_t fitting_count(PeerOp op, std::size_t bytes) const {
    if (op == PeerOp::barrier) return 0;
    const std::size_t unit = cut(op) ? ranks_ : 1;
    return std::max(bytes / (unit * sizeof(float)), std::size_t{1}) * unit;
  }
  void allocate() {
    std::size_t most = 0;
    for (const std::string& size : options_.list("--sizes"))
      most = std::max(
          most,
          fitting_count(PeerOp::all_to_all, std::strtoull(size.c_str(), nullptr, 10)) + ranks_);
    for (float** area : {&first_, &second_}) {
      void* memory = nullptr;
      if (::posix_memalign(&memory, 2UL << 20, most * sizeof(float)) != 0) std::exit(3);
      std::memset(memory, 0, most * sizeof(float));
      *area = static_cast<float*>(memory);
    }
  }

  static float value(std::size_t rank, std::size_t index) {
    return static_cast<float>(rank + 1) + static_cast<float>(index % 13);
  }
  float folded(std::size_t index) const {
    const auto n = static_cast<float>(ranks_);
    return n * (n + 1) / 2 + n * static_cast<float>(index % 13);
  }
  void fill(const PeerCell& cell) const {
    const auto rank = static_cast<std::size_t>(rank_);
    if (cell.op == PeerOp::barrier || (cell.op == PeerOp::broadcast && rank != 0)) return;
    const std::size_t count = cell.op == PeerOp::all_gather ? cell.part : cell.count;
    for (std::size_t i = 0; i < count; ++i) cell.in[i] = value(rank, i);
  }
  std::size_t count_wrong(const PeerCell& cell) const {
    const auto rank = static_cast<std::size_t>(rank_);
    std::size_t wrong = 0;
    const auto check = [&](float got, float right) { wrong += got != right ? 1 : 0; };
    switch (cell.op) {
      case PeerOp::all_reduce:
        for (std::size_t i = 0; i < cell.count; ++i) check(cell.out[i], folded(i));
        break;
      case PeerOp::broadcast:
        for (std::size_t i = 0; i < cell.count; ++i) check(cell.out[i], value(0, i));
        break;
      case PeerOp::reduce_scatter: {
        const float* result = cell.result_in_input ? cell.in : cell.out;
        for (std::size_t i = 0; i < cell.part; ++i) check(result[i], folded(rank * cell.part + i));
        break;
      }
      case PeerOp::all_gather:
        for (std::size_t i = 0; i < cell.count; ++i)
          check(cell.out[i], value(i / cell.part, i % cell.part));
        break;
      case PeerOp::all_to_all:
        for (std::size_t i = 0; i < cell.count; ++i)
          check(cell.out[i], value(i / cell.part, rank * cell.part + i % cell.part));
        break;
      case PeerOp::barrier:
      case PeerOp::none: break;
    }
    return wrong;
  }

  // False: this peer does not have the collective.
  bool measure_cell(const std::string& word, PeerOp op, std::size_t count, const PeerMaker& make) {
    PeerCell cell{op, count, count / ranks_, first_, second_};
    if (op == PeerOp::all_reduce || op == PeerOp::broadcast) cell.out = cell.in;
    const std::function<void()> operation = make(cell);
    if (!operation) return false;
    fill(cell);
    meeting_.sync();
    operation();
    const double wrong = meeting_.sum(static_cast<double>(count_wrong(cell)));
    Timing timing;
    if (warm_) {
      std::memset(cell.in, 0, cell.count * sizeof(float));
      timing = measure(meeting_, effort_, operation);
    } else {
      timing = measure(meeting_, effort_, operation, [&] { fill(cell); });
    }
    if (rank_ == 0) {
      std::printf("point %s %zu %.4f %.4f %.4f %.4f %d %.0f\n", word.c_str(), count * sizeof(float),
                  timing.median_us, timing.p99_us, timing.min_us, timing.back_to_back_us,
                  timing.iterations, wrong);
      std::fflush(stdout);
    }
    return true;
  }

  const PeerOptions& options_;
  int rank_;
  std::size_t ranks_;
  Meeting meeting_;
  Effort effort_;
  bool warm_ = true;
  float* first_ = nullptr;
  float* second_ = nullptr;
};

}  // namespace tutti::bench
