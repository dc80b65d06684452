// tool/show/show.hpp - what `tutti show` was asked for, and the ways to answer.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.hpp"
#include "tool/show/forms.hpp"
#include "tuner/choose.hpp"

namespace tutti::tool {

inline constexpr int kMostRanksShown = 1024;  // the verifier follows every chunk of every rank
inline constexpr int kMostRanksDrawn = 32;    // more would not be told apart

struct ShowOptions {
  std::string collective;
  std::string algorithm;
  int ranks = 0;  // 0: not said
  int root = 0;
  std::string hosts;
  std::string form;          // message, host; empty: not said
  std::string memory;        // of a drawn host form: ordinary, symmetric; empty: not said
  std::string bytes = "1M";  // size of the call
  std::string tuning;        // a tuning table; empty: the built-in costs
  bool in_place = false;
  bool all = false;  // also forms that do not run at this size
  bool json = false;
  bool text = false;
  std::string html;
  std::string svg;
};

// The call that is shown.
struct ShownCall {
  ShownCall() = default;
  ShownCall(ShownCall&&) = default;  // a copy would refer to the other one's hosts
  schedule::Request request;         // without rank; its hosts lie in `host_of`
  std::vector<int> host_of;          // as named; empty: on a host each, or on one
  Algorithm algorithm = Algorithm::automatic;
  bool is_named = true;  // the algorithm; else it is the tuner's
  bool on_one_host = false;
  CallMemory memory = CallMemory::ordinary;
  std::size_t bytes = 0;
  tuner::Machine machine;

  // More ranks than cores, on one host.
  bool is_crowded() const { return machine.crowding(request.size) > 1; }
};

// Code::invalid_argument says what is wrong with the options.
Result<ShownCall> read_call(const ShowOptions& options);

// What the tuner takes for it: the algorithm where `named` is automatic, and in how many shots.
Result<tuner::Choice> choose(const schedule::Request& request, Algorithm named, bool on_one_host,
                             std::size_t bytes, const tuner::Machine& machine);
// Whether the algorithm has different programs for one shot and for two.
bool has_shots(Algorithm algorithm, schedule::Request request);

// "14 steps", "1 step".
std::string count_of(std::uint64_t count, std::string_view one);

// "all_reduce by direct in two shots on 4 ranks, 1 MiB".
std::string title_of(const ShownCall& call);

// Writes all of it or says why not; what was there before stays until the new file is whole.
Status write_whole(const std::string& path, const std::string& text);

// The forms of one call, and the list of a collective's algorithms, as text or JSON.
Result<std::string> print_message_form(const ShownCall& call, bool json);
Result<std::string> print_host_form(const ShownCall& call, bool json, bool all);
Result<std::string> print_list(const ShownCall& call, bool json);

// The animated page, and the still drawing (docs/tutorials/see_a_schedule.md).
Result<std::string> make_page(const ShownCall& call);
Result<std::string> make_svg(const ShownCall& call);

}  // namespace tutti::tool
