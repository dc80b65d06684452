// tool/show/show.hpp - what `tutti show` was asked for, and the ways to answer.
#pragma once

#include <optional>
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
  std::string form;    // message, host; empty: not said
  std::string memory;  // that ranks of one host pass: ordinary, symmetric; empty: not said
  std::string bytes;   // size of the call; empty: not said, 1M
  std::string tuning;  // a tuning table; empty: the built-in costs
  std::string order;   // of folds: any, rank, tree; empty: not said, any
  bool in_place = false;
  bool all = false;   // also forms that do not run at this size
  bool list = false;  // the collective's algorithms, not one call
  bool json = false;
  bool text = false;
  std::string html;
  std::string svg;
  // Gone, and refused with a word about what serves instead:
  bool fused = false;
  std::string shots;

  // Nothing but the collective was said, and perhaps how to print it.
  bool is_bare() const;
};

// The call that is shown.
struct ShownCall {
  ShownCall() = default;
  ShownCall(ShownCall&&) = default;  // a copy would refer to the other one's hosts
  schedule::Request request;         // without rank; its hosts lie in `host_of`
  std::vector<int> host_of;          // as named; empty: on a host each, or on one
  Algorithm algorithm = Algorithm::automatic;
  bool is_named = true;      // the algorithm; else it is the tuner's
  bool is_placed = true;     // by --hosts or --form; else the ranks share a host
  bool on_one_host = false;  // where they share one: their host form is shown, if there is any
  std::optional<HostView> host;
  std::optional<CallMemory> memory;  // absent: not said
  std::size_t bytes = 0;
  tuner::Machine machine;

  // More ranks than cores, on one host.
  bool is_crowded() const { return machine.crowding(request.size) > 1; }
  // "one_host", "apart": a host each, "hosts": several ranks on each of several.
  std::string_view placement() const;
};

// Code::invalid_argument says what is wrong with the options, or why there is no such form.
Result<ShownCall> read_call(const ShowOptions& options);

// What the tuner takes for it: the algorithm where `named` is automatic, and in how many shots.
Result<tuner::Choice> choose(const schedule::Request& request, Algorithm named, bool on_one_host,
                             std::size_t bytes, const tuner::Machine& machine);
// In which order results are folded: "rank order", "tree order, from partial folds", "an order of its own".
std::string order_words(const schedule::VerifyReport& report, ReductionOrder asked);
// Whether the algorithm has different programs for one shot and for two.
bool has_shots(Algorithm algorithm, schedule::Request request);

// Which form runs follows from where the ranks sit: "all ranks share a host with a core for each".
std::string where_words(const ShownCall& call);

// "14 steps", "1 step".
std::string count_of(std::uint64_t count, std::string_view one);

// "all_reduce by direct in two shots on 4 ranks, 1 MiB".
std::string title_of(const ShownCall& call);

// The forms of one call, and the list of a collective's algorithms, as text or JSON.
Result<std::string> print_message_form(const ShownCall& call, bool json);
std::string print_host_form(const ShownCall& call, bool json, bool all);  // needs call.host
Result<std::string> print_list(const ShownCall& call, bool json);

// The animated page, and the still drawing (docs/tutorials/see_a_schedule.md).
Result<std::string> make_page(const ShownCall& call);
Result<std::string> make_svg(const ShownCall& call);

}  // namespace tutti::tool
