// schedule/catalog.hpp - which algorithms there are for which collective, and how to build them.
//
// Catalog::built_in() has the rows of every file in build/ (tutti/algorithms.def lists them). A
// catalog is a value: a program that brings an algorithm of its own makes one with more rows and
// hands it to the group (docs/extending.md).
//
//   auto program = build(Algorithm::ring,
//                        {.collective = Collective::all_reduce, .size = 4, .rank = 1});
#pragma once

#include <span>
#include <vector>

#include "schedule/entry.hpp"
#include "schedule/schedule.hpp"
#include "tutti/status.hpp"

namespace tutti::schedule {

class Catalog {
 public:
  static const Catalog& built_in();

  Catalog() = default;
  explicit Catalog(std::vector<Entry> entries);
  // These rows and more. The first row for a collective and an algorithm counts.
  Catalog with(std::span<const Entry> more) const;

  // By collective; of one collective in the order in which they were given.
  const std::vector<Entry>& entries() const { return entries_; }
  const Entry* find(Collective collective, Algorithm algorithm) const;
  std::vector<Algorithm> algorithms_for(Collective collective) const;

  // The program of `request.rank`; rank n is the switch that folds, where the algorithm has one. An algorithm that does not exist for this collective or size is
  // Code::invalid_argument with a list of those that do.
  Result<Program> build(Algorithm algorithm, const Request& request) const;
  // All ranks' programs, and that of the switch behind them where there is one.
  Result<std::vector<Program>> build_all(Algorithm algorithm, Request request) const;

 private:
  std::vector<Algorithm> applicable(const Request& request) const;

  std::vector<Entry> entries_;
};

// Whether an algorithm is made for ranks on several hosts, and exists for such alone.
inline bool wants_hosts(Algorithm algorithm) {
  return algorithm == Algorithm::hierarchical || algorithm == Algorithm::chain;
}

// The same of the built-in catalog.
inline const std::vector<Entry>& catalog() { return Catalog::built_in().entries(); }
inline const Entry* find(Collective collective, Algorithm algorithm) {
  return Catalog::built_in().find(collective, algorithm);
}
inline std::vector<Algorithm> algorithms_for(Collective collective) {
  return Catalog::built_in().algorithms_for(collective);
}
inline Result<Program> build(Algorithm algorithm, const Request& request) {
  return Catalog::built_in().build(algorithm, request);
}
inline Result<std::vector<Program>> build_all(Algorithm algorithm, const Request& request) {
  return Catalog::built_in().build_all(algorithm, request);
}

}  // namespace tutti::schedule
