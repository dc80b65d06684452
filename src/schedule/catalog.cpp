#include "schedule/catalog.hpp"

#include <fmt/format.h>

#include "schedule/build/builders.hpp"
#include "schedule/build/core_and_extras.hpp"
#include "schedule/build/hierarchical.hpp"
#include "schedule/build/torus_2d.hpp"

namespace tutti::schedule {
namespace {

using namespace builders;

constexpr bool kOrdered = true;  // the verifier checks this claim
constexpr bool kUneven = true;   // each message is one part, and only its two ends need its size
constexpr bool kAnyOrder = false, kEven = false;

bool makes_cube(const Request& request) { return is_power_of_two(request.size); }
bool makes_torus(const Request& request) { return torus_rows(request.size) > 1; }

std::string names_of(const std::vector<Algorithm>& algorithms) {
  std::string names;
  for (Algorithm algorithm : algorithms) {
    names += names.empty() ? "" : ", ";
    names += to_string(algorithm);
  }
  return names;
}

Status check_request(const Request& request) {
  const int n = request.size;
  if (n < 1) return {Code::invalid_argument, fmt::format("a group of {} ranks cannot be", n)};
  if (request.rank < 0 || request.rank >= n) {
    return {Code::invalid_argument, fmt::format("rank {} is not in 0 … {}", request.rank, n - 1)};
  }
  if (request.root < 0 || request.root >= n) {
    return {Code::invalid_argument, fmt::format("root {} is not in 0 … {}", request.root, n - 1)};
  }
  if (!request.host_of.empty() && request.host_of.size() != static_cast<std::size_t>(n)) {
    return {Code::invalid_argument,
            fmt::format("host_of names {} ranks of {}", request.host_of.size(), n)};
  }
  return {};
}

// Those that exist for this very request, for the message that says so.
std::vector<Algorithm> applicable(const Request& request) {
  std::vector<Algorithm> found;
  for (const Entry& entry : catalog()) {
    if (entry.collective != request.collective) continue;
    if (!entry.applies || entry.applies(request)) found.push_back(entry.algorithm);
  }
  return found;
}

}  // namespace

const std::vector<Entry>& catalog() {
  using C = Collective;
  using A = Algorithm;
  static const std::vector<Entry> entries = {
      {C::broadcast, A::direct, direct_broadcast, kOrdered, kEven, nullptr},
      {C::broadcast, A::linear, linear_broadcast, kOrdered, kEven, nullptr},
      {C::broadcast, A::ring, ring_broadcast, kOrdered, kEven, nullptr},
      {C::broadcast, A::binomial_tree, binomial_tree_broadcast, kOrdered, kEven, nullptr},
      {C::broadcast, A::double_binary_tree, double_binary_tree_broadcast, kOrdered, kEven, nullptr},
      {C::broadcast, A::hierarchical, hierarchical_broadcast, kOrdered, kEven, spans_hosts},
      {C::reduce, A::direct, direct_reduce, kOrdered, kEven, nullptr},
      {C::reduce, A::linear, linear_reduce, kAnyOrder, kEven, nullptr},
      {C::reduce, A::ring, ring_reduce, kAnyOrder, kEven, nullptr},
      {C::reduce, A::binomial_tree, binomial_tree_reduce, kAnyOrder, kEven, nullptr},
      {C::reduce, A::double_binary_tree, double_binary_tree_reduce, kAnyOrder, kEven, nullptr},
      {C::reduce, A::halving_doubling, halving_doubling_reduce, kAnyOrder, kEven, nullptr},
      {C::reduce, A::hierarchical, hierarchical_reduce, kAnyOrder, kEven, spans_hosts},
      {C::all_reduce, A::direct, direct_all_reduce, kOrdered, kEven, nullptr},
      {C::all_reduce, A::ring, ring_all_reduce, kAnyOrder, kEven, nullptr},
      {C::all_reduce, A::binomial_tree, binomial_tree_all_reduce, kAnyOrder, kEven, nullptr},
      {C::all_reduce, A::double_binary_tree, double_binary_tree_all_reduce, kAnyOrder, kEven,
       nullptr},
      {C::all_reduce, A::recursive_doubling, recursive_doubling_all_reduce, kAnyOrder, kEven,
       nullptr},
      {C::all_reduce, A::halving_doubling, halving_doubling_all_reduce, kAnyOrder, kEven, nullptr},
      {C::all_reduce, A::pairwise, pairwise_all_reduce, kOrdered, kEven, nullptr},
      {C::all_reduce, A::torus_2d, torus_2d_all_reduce, kAnyOrder, kEven, makes_torus},
      {C::all_reduce, A::hierarchical, hierarchical_all_reduce, kAnyOrder, kEven, spans_hosts},
      {C::gather, A::direct, direct_gather, kOrdered, kUneven, nullptr},
      {C::gather, A::linear, linear_gather, kOrdered, kUneven, nullptr},
      {C::gather, A::binomial_tree, binomial_tree_gather, kOrdered, kEven, nullptr},
      {C::all_gather, A::direct, direct_all_gather, kOrdered, kUneven, nullptr},
      {C::all_gather, A::ring, ring_all_gather, kOrdered, kUneven, nullptr},
      {C::all_gather, A::recursive_doubling, recursive_doubling_all_gather, kOrdered, kEven,
       nullptr},
      {C::all_gather, A::hypercube, hypercube_all_gather, kOrdered, kEven, makes_cube},
      {C::all_gather, A::bruck, bruck_all_gather, kOrdered, kEven, nullptr},
      {C::all_gather, A::torus_2d, torus_2d_all_gather, kOrdered, kEven, makes_torus},
      {C::all_gather, A::hierarchical, hierarchical_all_gather, kOrdered, kEven, spans_hosts},
      {C::scatter, A::direct, direct_scatter, kOrdered, kUneven, nullptr},
      {C::scatter, A::linear, linear_scatter, kOrdered, kUneven, nullptr},
      {C::scatter, A::binomial_tree, binomial_tree_scatter, kOrdered, kEven, nullptr},
      {C::reduce_scatter, A::direct, direct_reduce_scatter, kOrdered, kUneven, nullptr},
      {C::reduce_scatter, A::ring, ring_reduce_scatter, kAnyOrder, kUneven, nullptr},
      {C::reduce_scatter, A::halving_doubling, halving_doubling_reduce_scatter, kAnyOrder, kEven,
       makes_cube},
      {C::reduce_scatter, A::pairwise, pairwise_reduce_scatter, kOrdered, kUneven, nullptr},
      {C::reduce_scatter, A::hierarchical, hierarchical_reduce_scatter, kAnyOrder, kEven,
       spans_equal_hosts},
      {C::all_to_all, A::direct, direct_all_to_all, kOrdered, kUneven, nullptr},
      {C::all_to_all, A::bruck, bruck_all_to_all, kOrdered, kEven, nullptr},
      {C::all_to_all, A::pairwise, pairwise_all_to_all, kOrdered, kUneven, nullptr},
      {C::barrier, A::direct, direct_barrier, kOrdered, kEven, nullptr},
      {C::barrier, A::linear, linear_barrier, kOrdered, kEven, nullptr},
      {C::barrier, A::binomial_tree, binomial_tree_barrier, kOrdered, kEven, nullptr},
      {C::barrier, A::recursive_doubling, recursive_doubling_barrier, kOrdered, kEven, nullptr},
      {C::barrier, A::hierarchical, hierarchical_barrier, kOrdered, kEven, spans_hosts},
      {C::scan, A::direct, direct_scan, kOrdered, kEven, nullptr},
      {C::scan, A::linear, linear_scan, kAnyOrder, kEven, nullptr},
      {C::scan, A::recursive_doubling, recursive_doubling_scan, kAnyOrder, kEven, nullptr},
      {C::exclusive_scan, A::direct, direct_exclusive_scan, kOrdered, kEven, nullptr},
      {C::exclusive_scan, A::linear, linear_exclusive_scan, kAnyOrder, kEven, nullptr},
      {C::exclusive_scan, A::recursive_doubling, recursive_doubling_exclusive_scan, kAnyOrder,
       kEven, nullptr},
  };
  return entries;
}

const Entry* find(Collective collective, Algorithm algorithm) {
  for (const Entry& entry : catalog()) {
    if (entry.collective == collective && entry.algorithm == algorithm) return &entry;
  }
  return nullptr;
}

std::vector<Algorithm> algorithms_for(Collective collective) {
  std::vector<Algorithm> found;
  for (const Entry& entry : catalog()) {
    if (entry.collective == collective) found.push_back(entry.algorithm);
  }
  return found;
}

Result<Program> build(Algorithm algorithm, const Request& request) {
  if (Status status = check_request(request); !status.ok()) return status;
  const Entry* entry = find(request.collective, algorithm);
  if (!entry) {
    return Status(
        Code::invalid_argument,
        fmt::format("there is no {} for {}; there are {}", to_string(algorithm),
                    to_string(request.collective), names_of(algorithms_for(request.collective))));
  }
  if (entry->applies && !entry->applies(request)) {
    return Status(Code::invalid_argument,
                  fmt::format("{} by {} does not exist for these {} ranks; {} do",
                              to_string(request.collective), to_string(algorithm), request.size,
                              names_of(applicable(request))));
  }
  return entry->build(request);
}

Result<std::vector<Program>> build_all(Algorithm algorithm, Request request) {
  std::vector<Program> programs;
  for (request.rank = 0; request.rank < request.size; ++request.rank) {
    Result<Program> program = build(algorithm, request);
    if (!program.ok()) return program.status();
    programs.push_back(*std::move(program));
  }
  return programs;
}

}  // namespace tutti::schedule
