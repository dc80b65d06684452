// group/chooser.hpp - which algorithm for which call: asks the tuner, remembers what it said.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "tuner/choose.hpp"
#include "tutti/status.hpp"

namespace tutti::group {

// Remembers choices, which take up to some milliseconds to make (tuner/README.md), and tells the log of new ones.
class Chooser {
 public:
  // By what costs to choose. All ranks must have the same, from the same call on.
  void use(std::shared_ptr<const tuner::Machine> machine, Log log);

  Result<tuner::Choice> choose(const tuner::CallFacts& facts, Algorithm forced);
  // What an algorithm takes for exactly these bytes (0: cannot be told): on any memory, and on memory that all share.
  std::pair<Nanoseconds, Nanoseconds> predict(const tuner::CallFacts& facts, Algorithm algorithm);
  // Whose costs choices go by.
  const tuner::Machine& machine() const { return *machine_; }

 private:
  Result<tuner::Choice> choose_among_all(const tuner::CallFacts& facts) const;

  std::shared_ptr<const tuner::Machine> machine_ =
      std::make_shared<const tuner::Machine>(tuner::built_in_machine());
  Log log_;
  std::unordered_map<std::uint64_t, tuner::Choice> chosen_;
  std::unordered_map<std::uint64_t, std::pair<Nanoseconds, Nanoseconds>> predicted_;
};

}  // namespace tutti::group
