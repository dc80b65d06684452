// tool/show/show.hpp - what `tutti show` was asked for, and a schedule that was proved right.
#pragma once

#include <string>
#include <vector>

#include "schedule/catalog.hpp"
#include "schedule/verify.hpp"

namespace tutti::tool {

inline constexpr int kMostRanksShown = 1024;  // the verifier follows every chunk of every rank
inline constexpr int kMostRanksDrawn = 32;    // more would not be told apart

struct ShowOptions {
  std::string collective;
  std::string algorithm;
  int ranks = 0;  // 0: not said
  int root = 0;
  int shots = 2;
  std::string hosts;
  std::string bytes = "1M";  // what the page begins with
  std::string tuning;        // a tuning table; empty: the built-in costs
  bool in_place = false;
  bool fused = false;
  bool json = false;
  bool text = false;
  std::string html;
  std::string svg;
};

struct Shown {
  std::vector<schedule::Program> programs;
  schedule::VerifyReport report;
};

// Code::invalid_argument when the algorithm does not exist for this request.
Result<Shown> build_and_verify(Algorithm algorithm, const schedule::Request& request, bool fused);

// "14 steps", "1 step".
std::string count_of(std::uint64_t count, std::string_view one);

// Writes all of it or says why not; what was there before stays until the new file is whole.
Status write_whole(const std::string& path, const std::string& text);

// Print, and return the exit code: one schedule, and the list of a collective's algorithms.
int show_one(const ShowOptions& options, const Shown& shown, Collective collective);
int show_all(const ShowOptions& options, const schedule::Request& request);

// The animated page, and the still drawing (docs/tutorials/see_a_schedule.md).
Result<std::string> make_page(const ShowOptions& options, const schedule::Request& request,
                              Algorithm algorithm);
std::string make_svg(const Shown& shown);

}  // namespace tutti::tool
