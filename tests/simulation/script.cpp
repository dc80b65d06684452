#include "simulation/script.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/catalog.hpp"

namespace tutti::simulation {
namespace {

constexpr std::int64_t kModulus = 4093;
constexpr std::int64_t kStride = 7;

// Adds elements `from` … of what rank `rank` brings to step `index`.
void add_brought(int index, int rank, std::size_t from, std::span<std::int64_t> to) {
  auto value = static_cast<std::int64_t>(from * static_cast<std::size_t>(kStride) +
                                         static_cast<std::size_t>(rank) * 1000003 +
                                         static_cast<std::size_t>(index) * 10007) %
               kModulus;
  for (std::int64_t& element : to) {
    element += value;
    value += kStride;
    if (value >= kModulus) value -= kModulus;
  }
}

std::vector<std::int64_t> fill(int index, int rank, std::size_t count, std::size_t from = 0) {
  std::vector<std::int64_t> values(count);
  add_brought(index, rank, from, values);
  return values;
}

// Sum over ranks [0, last] of elements `from` ….
std::vector<std::int64_t> sum_to(int index, int last, std::size_t from, std::size_t count) {
  std::vector<std::int64_t> sums(count);
  for (int rank = 0; rank <= last; ++rank) add_brought(index, rank, from, sums);
  return sums;
}

// One part of each rank, one behind the other.
std::vector<std::int64_t> parts_of_all(int index, int ranks, std::size_t from, std::size_t count) {
  std::vector<std::int64_t> parts(static_cast<std::size_t>(ranks) * count);
  for (int rank = 0; rank < ranks; ++rank)
    add_brought(index, rank, from,
                std::span(parts).subspan(static_cast<std::size_t>(rank) * count, count));
  return parts;
}

Algorithm random_algorithm(std::mt19937_64& random, Step& step, int ranks) {
  const auto all = schedule::algorithms_for(step.collective);
  const Algorithm algorithm = all[random() % all.size()];
  schedule::Request request;
  request.collective = step.collective;
  request.size = ranks;
  const bool exists = schedule::build(algorithm, request).ok() &&
                      !schedule::find(step.collective, algorithm)->by_switch;
  return exists ? algorithm : Algorithm::automatic;
}

}  // namespace

std::vector<Step> random_script(std::mt19937_64& random, int ranks, int steps, bool shared) {
  static constexpr std::size_t kCounts[] = {0, 1, 3, 17, 257, 1000, 5003, 40000};
  std::vector<Step> script;
  for (int i = 0; i < steps; ++i) {
    Step step;
    step.shift = random() % 6 == 0;
    step.collective = static_cast<Collective>(random() % kCollectives);
    step.count = kCounts[random() % std::size(kCounts)];
    step.root = static_cast<int>(random() % static_cast<std::uint64_t>(ranks));
    step.in_place = random() % 2 == 0;
    step.group = static_cast<int>(random() % 2);
    if (random() % 2 == 0) step.algorithm = random_algorithm(random, step, ranks);
    if (shared) step.memory = static_cast<Memory>(random() % 3);
    script.push_back(step);
  }
  // A barrier of everybody in either group, last.
  script.push_back({.group = 0});
  script.push_back({.group = 1});
  return script;
}

void add_dependencies(std::mt19937_64& random, std::vector<Step>& script) {
  for (std::size_t i = 1; i < script.size(); ++i)
    if (random() % 3 == 0) script[i].after = static_cast<int>(random() % i);
}

std::string to_string(const Step& step) {
  const std::string after = step.after < 0 ? "" : fmt::format(", after step {}", step.after);
  if (step.shift) return fmt::format("shift({}, group {}{})", step.count, step.group, after);
  static const char* const kMemories[] = {"", ", shared memory", ", mixed memory"};
  return fmt::format("{}({}, root {}, {}{}{}, group {}{})", tutti::to_string(step.collective),
                     step.count, step.root, tutti::to_string(step.algorithm),
                     step.in_place ? ", in place" : "", kMemories[static_cast<int>(step.memory)],
                     step.group, after);
}

namespace {
std::size_t whole_lines(std::size_t count) { return (count * sizeof(std::int64_t) + 63) / 64 * 64; }
}  // namespace

std::size_t shared_bytes(const std::vector<Step>& script, int ranks) {
  std::size_t bytes = 0;
  for (const Step& step : script) {
    if (step.memory == Memory::plain) continue;
    const auto is_one_of = [&](std::initializer_list<Collective> wide) {
      return !step.shift && std::find(wide.begin(), wide.end(), step.collective) != wide.end();
    };
    const auto side = [&](bool is_wide) {
      return whole_lines(is_wide ? step.count * static_cast<std::size_t>(ranks) : step.count);
    };
    using enum Collective;
    bytes += side(is_one_of({scatter, reduce_scatter, all_to_all}));
    bytes += side(is_one_of({gather, all_gather, all_to_all}));
  }
  return bytes;
}

std::int64_t* Arena::take(std::size_t count) {
  const std::size_t bytes = whole_lines(count);
  if (bytes > bytes_) return nullptr;
  auto* taken = reinterpret_cast<std::int64_t*>(data_);
  data_ += bytes;
  bytes_ -= bytes;
  return taken;
}

namespace {

// What a rank has before a step, and what it must have after it.
struct Contents {
  std::vector<std::int64_t> input, output, expected;
};

Contents contents_of(const Step& step, int index, int rank, int ranks) {
  Contents made;
  const auto n = static_cast<std::size_t>(ranks);
  const auto self = static_cast<std::size_t>(rank);
  const std::size_t count = step.count;
  const bool at_root = rank == step.root;
  const auto sum = [&](std::size_t from, int last) {
    made.expected = sum_to(index, last, from, count);
  };
  if (step.shift) {
    made.input = fill(index, rank, count);
    made.output.assign(count, -1);
    made.expected = fill(index, (rank + ranks - 1) % ranks, count);
    return made;
  }
  switch (step.collective) {
    case Collective::barrier: break;
    case Collective::broadcast:
      made.output = at_root ? fill(index, rank, count) : std::vector<std::int64_t>(count, -1);
      made.expected = fill(index, step.root, count);
      break;
    case Collective::reduce:
      made.input = fill(index, rank, count);
      if (at_root) sum(0, ranks - 1), made.output.assign(count, -1);
      break;
    case Collective::all_reduce:
      made.input = fill(index, rank, count);
      made.output.assign(count, -1);
      sum(0, ranks - 1);
      break;
    case Collective::scan:
      made.input = fill(index, rank, count);
      made.output.assign(count, -1);
      sum(0, rank);
      break;
    case Collective::exclusive_scan:
      made.input = fill(index, rank, count);
      made.output.assign(count, -1);
      if (rank == 0)
        made.expected = step.in_place ? made.input : made.output;  // stays as it was
      else
        sum(0, rank - 1);
      break;
    case Collective::gather:
    case Collective::all_gather:
      made.input = fill(index, rank, count);
      if (step.collective == Collective::gather && !at_root) break;
      made.output.assign(count * n, -1);
      made.expected = parts_of_all(index, ranks, 0, count);
      break;
    case Collective::scatter:
      if (at_root) made.input = fill(index, rank, count * n);
      made.output.assign(count, -1);
      made.expected = fill(index, step.root, count, self * count);
      break;
    case Collective::reduce_scatter:
      made.input = fill(index, rank, count * n);
      made.output.assign(count, -1);
      sum(self * count, ranks - 1);
      break;
    case Collective::all_to_all:
      made.input = fill(index, rank, count * n);
      made.output.assign(count * n, -1);
      made.expected = parts_of_all(index, ranks, self * count, count);
      break;
  }
  return made;
}

// Puts `values` into the arena, or, where that is not asked for or used up, into `own`.
std::span<std::int64_t> place(std::vector<std::int64_t> values, bool shared, Arena& arena,
                              std::vector<std::int64_t>& own) {
  if (values.empty()) return {};
  if (std::int64_t* at = shared ? arena.take(values.size()) : nullptr) {
    std::copy(values.begin(), values.end(), at);
    return {at, values.size()};
  }
  own = std::move(values);
  return own;
}

}  // namespace

Buffers make_buffers(const Step& step, int index, int rank, int ranks, Arena& arena) {
  Contents contents = contents_of(step, index, rank, ranks);
  Buffers made;
  made.has_result = !contents.output.empty();
  const bool both = made.has_result && contents.input.size() == contents.output.size();
  made.result_in_input = step.in_place && both && !step.shift;
  const auto is_shared = [&](int side) {
    if (step.memory != Memory::mixed) return step.memory == Memory::shared;
    return (index + rank * 3 + side) % 2 == 0;
  };
  if (!made.result_in_input) made.kept = contents.input;
  made.input = place(std::move(contents.input), is_shared(0), arena, made.own_input);
  if (!made.result_in_input)
    made.output = place(std::move(contents.output), is_shared(1), arena, made.own_output);
  made.expected = std::move(contents.expected);
  return made;
}

bool is_right(const Buffers& buffers) {
  const auto& result = buffers.result_in_input ? buffers.input : buffers.output;
  if (buffers.has_result &&
      !std::equal(result.begin(), result.end(), buffers.expected.begin(), buffers.expected.end()))
    return false;
  return buffers.result_in_input || std::equal(buffers.kept.begin(), buffers.kept.end(),
                                               buffers.input.begin(), buffers.input.end());
}

}  // namespace tutti::simulation
