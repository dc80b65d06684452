// tool/bench/options.hpp - what `tutti bench` was asked for.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "bench/protocol.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::tool {

inline constexpr int kMostBenchRanks = 4096;

// Plain text as CLI11 reads it, before it is understood.
struct BenchWords {
  std::string collectives;
  std::string first = "4";
  std::string last = "64M";
  std::string factor;  // empty: 4, or 16 for `all`
  std::string transport;
  std::string algorithm = "automatic";
  std::string memory = "symmetric";
  std::string device = "cpu";
  std::string dtype = "f32";
  std::string op = "sum";
  std::string order = "any";
  std::string placement = "both";
  std::string pin = "thread";
  std::string budget = "100ms";
};

// common: all_reduce and broadcast in place, the others out of place, as libraries are compared.
enum class BufferPlacement { both, in, out, common };

struct BenchOptions {
  std::vector<Collective> collectives;
  bool summary = false;  // of `all`
  std::vector<std::size_t> sizes;
  int ranks = 0;          // 0: not said
  std::string transport;  // empty: not said
  bool every_algorithm = false;
  Algorithm algorithm = Algorithm::automatic;
  bool symmetric = true;
  bool on_device = false;  // buffers are on GPUs
  bool mps = false;        // whose ranks share them by a daemon of their own
  Dtype dtype = Dtype::f32;
  ReduceOp op = ReduceOp::sum;
  ReductionOrder order = ReductionOrder::any;
  int root = 0;
  BufferPlacement placement = BufferPlacement::both;
  bool pin_process = false;  // not only the thread that calls
  bool warm = false;
  bool check = false;
  std::string json;
  bool wide = false;          // all columns of the table, whatever the window
  std::size_t columns = 100;  // of the window
  bench::Effort effort;

  // Set by a launcher for its own ranks.
  bool is_rank = false;
  std::string terminal;           // where a progress bar may be drawn; empty: nowhere
  bool rows_to_terminal = false;  // rows go there too, so that they do not run into the bar
};

// `text` names the flag.
inline Status invalid(std::string text) { return {Code::invalid_argument, std::move(text)}; }

// Code::invalid_argument names the flag.
Status understand(const BenchWords& words, BenchOptions& options);
// What can only be said once the number of ranks is known.
Status check_ranks(const BenchOptions& options, int ranks);
// Whether two buffers for each of so many ranks fit into this host at once.
Status check_memory(const BenchOptions& options, int ranks);
// "all_reduce,broadcast" or "all".
Result<std::vector<Collective>> parse_collectives(const std::string& text);

}  // namespace tutti::tool
