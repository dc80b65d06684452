#include "tool/bench/options.hpp"

#include <fmt/format.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/words.hpp"
#include "schedule/catalog.hpp"
#include "tool/bench/arithmetic.hpp"
#include "tool/bench/values.hpp"
#include "tool/numbers.hpp"

namespace tutti::tool {
namespace {

constexpr double kLeastFactor = 1.01;
constexpr double kMostFactor = 1e6;

template <class Enum>
std::vector<std::string_view> words_of(int count) {
  std::vector<std::string_view> words;
  for (int i = 0; i < count; ++i) words.push_back(to_string(static_cast<Enum>(i)));
  return words;
}

Status one_of(const char* flag, const std::string& word,
              std::initializer_list<std::string_view> right_ones) {
  if (std::find(right_ones.begin(), right_ones.end(), word) != right_ones.end()) return {};
  const std::vector<std::string_view> list(right_ones);
  return invalid(unknown_word(flag, word, list));
}

Status read_sizes(const BenchWords& words, BenchOptions& options) {
  const auto first = read_size("-b", words.first);
  if (!first.ok()) return first.status();
  const auto last = read_size("-e", words.last);
  if (!last.ok()) return last.status();
  double factor = options.summary ? 16 : 4;
  if (!words.factor.empty()) {
    const char* end = words.factor.data() + words.factor.size();
    const auto read = std::from_chars(words.factor.data(), end, factor);
    if (read.ec != std::errc() || read.ptr != end)
      return invalid(fmt::format("-f '{}' is not a number", words.factor));
    if (!(factor >= kLeastFactor && factor <= kMostFactor))
      return invalid(
          fmt::format("-f {} lies outside {} … {}", words.factor, kLeastFactor, kMostFactor));
  }
  auto sizes = walk_sizes(*first, *last, factor);
  if (!sizes.ok()) return sizes.status();
  options.sizes = *std::move(sizes);
  return {};
}

Status read_kinds(const BenchWords& words, BenchOptions& options) {
  if (!words.transport.empty())
    if (Status status = one_of("--transport", words.transport, {"shm", "tcp", "ofi", "inproc"});
        !status.ok())
      return status;
  options.transport = words.transport;
  if (Status status = one_of("--memory", words.memory, {"symmetric", "plain"}); !status.ok())
    return status;
  options.symmetric = words.memory == "symmetric";
  if (Status status = one_of("--device", words.device, {"cpu", "cuda"}); !status.ok())
    return status;
  options.on_device = words.device == "cuda";
  if (Status status = one_of("--placement", words.placement, {"both", "in", "out", "common"});
      !status.ok())
    return status;
  options.placement = words.placement == "both"  ? BufferPlacement::both
                      : words.placement == "in"  ? BufferPlacement::in
                      : words.placement == "out" ? BufferPlacement::out
                                                 : BufferPlacement::common;
  if (Status status = one_of("--pin", words.pin, {"thread", "process"}); !status.ok())
    return status;
  options.pin_process = words.pin == "process";
  const auto dtype = parse_dtype(words.dtype);
  if (!dtype) return invalid(unknown_word("--dtype", words.dtype, words_of<Dtype>(kDtypes)));
  options.dtype = *dtype;
  const auto op = parse_reduce_op(words.op);
  if (!op) return invalid(unknown_word("--op", words.op, words_of<ReduceOp>(kReduceOps)));
  options.op = *op;
  const auto order = parse_reduction_order(words.order);
  if (!order)
    return invalid(
        unknown_word("--order", words.order, words_of<ReductionOrder>(kReductionOrders)));
  options.order = *order;
  return {};
}

Status read_algorithm(const BenchWords& words, BenchOptions& options) {
  options.every_algorithm = words.algorithm == "all";
  if (options.every_algorithm) return {};
  const auto algorithm = parse_algorithm(words.algorithm);
  if (!algorithm) {
    auto right_ones = words_of<Algorithm>(kAlgorithms);
    right_ones.emplace_back("all");
    return invalid(unknown_word("--algorithm", words.algorithm, right_ones));
  }
  options.algorithm = *algorithm;
  return {};
}

Status check_device(const BenchOptions& options) {
  if (options.mps && !options.on_device)
    return invalid("--mps is about GPUs: it needs --device cuda");
  if (options.mps && options.transport == "inproc")
    return invalid("--mps is for processes that share a GPU; with --transport inproc there is one");
  const bool chosen = options.every_algorithm || options.algorithm != Algorithm::automatic;
  if (options.on_device && chosen)
    return invalid("--algorithm is about CPU memory: with --device cuda there is no choice");
  return {};
}

}  // namespace

Status check_memory(const BenchOptions& options, int ranks) {
  struct sysinfo facts {};
  if (::sysinfo(&facts) != 0) return {};
  const std::size_t largest = options.sizes.empty() ? 0 : options.sizes.back();
  const double there = static_cast<double>(facts.totalram) * facts.mem_unit;
  const double needed = 2.0 * ranks * static_cast<double>(largest);
  if (needed <= there) return {};
  return invalid(
      fmt::format("-e {} needs {:.3g} GB for the buffers of {} ranks; this host has {:.3g}",
                  size_words(largest), needed * 1e-9, ranks, there * 1e-9));
}

Result<std::vector<Collective>> parse_collectives(const std::string& text) {
  std::vector<Collective> list;
  if (text == "all") {
    for (int i = 0; i < kCollectives; ++i) list.push_back(static_cast<Collective>(i));
    return list;
  }
  for (const std::string_view word : split_words(text, ',')) {
    const auto collective = parse_collective(word);
    if (!collective) {
      auto right_ones = words_of<Collective>(kCollectives);
      right_ones.emplace_back("all");
      right_ones.emplace_back("compare");
      return invalid(unknown_word("collective", word, right_ones));
    }
    list.push_back(*collective);
  }
  if (list.empty()) return invalid("say which collective: tutti bench all_reduce, or all");
  return list;
}

Status understand(const BenchWords& words, BenchOptions& options) {
  auto collectives = parse_collectives(words.collectives);
  if (!collectives.ok()) return collectives.status();
  options.collectives = *std::move(collectives);
  options.summary = words.collectives == "all";
  for (const auto read : {read_sizes, read_kinds, read_algorithm})
    if (Status status = read(words, options); !status.ok()) return status;
  const auto budget =
      read_duration("--budget", words.budget, std::chrono::microseconds(1), std::chrono::hours(1));
  if (!budget.ok()) return budget.status();
  if (options.check && options.effort.back_to_back)
    return invalid("--check looks at every iteration, --back-to-back at none: choose one");
  options.effort.budget_us = static_cast<double>(budget->count()) * 1e-3;
  return check_device(options);
}

Status check_ranks(const BenchOptions& options, int ranks) {
  for (const Collective collective : options.collectives) {
    if (has_root(collective) && (options.root < 0 || options.root >= ranks))
      return invalid(fmt::format("--root {} is not one of {} ranks", options.root, ranks));
    if (Status status = Values::check(collective, options.dtype, options.op, ranks); !status.ok())
      return status;
    // Of what wants hosts the group says whether it exists: it knows them.
    if (options.algorithm == Algorithm::automatic || schedule::wants_hosts(options.algorithm))
      continue;
    schedule::Request request;
    request.collective = collective;
    request.size = ranks;
    request.root = has_root(collective) ? options.root : 0;
    if (const auto program = schedule::build(options.algorithm, request); !program.ok())
      return program.status().annotate("--algorithm");
  }
  return {};
}

}  // namespace tutti::tool
