// group/call.hpp - from what the caller wrote to what the engine runs: checks, memory, choice.
//
// Pure but for the choice's cache: the same call gives the same launch on every rank that passed
// the same arguments. What is wrong with the caller's own arguments is found here, before anything
// starts; what differs between ranks is found by comparing fingerprints.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/log.hpp"
#include "engine/launch.hpp"
#include "tuner/choose.hpp"
#include "tutti/collectives.hpp"
#include "tutti/config.hpp"
#include "tutti/status.hpp"

namespace tutti::group {

// What a call is seen against.
struct Setting {
  int rank = 0;
  int size = 1;
  std::vector<int> host_of;
  std::vector<int> machine_of;  // tuner::CallFacts::machine_of
  ReductionOrder order = ReductionOrder::any;
  const Config* config = nullptr;
};

// Remembers choices, which cost some microseconds to make, and tells the log of new ones.
class Chooser {
 public:
  // By what costs to choose. All ranks must have the same, from the same call on.
  void use(std::shared_ptr<const tuner::Machine> machine, Log log);

  Result<tuner::Choice> choose(const tuner::CallFacts& situation, Algorithm forced);
  // What an algorithm takes for exactly these bytes: on any memory, and on memory that all share.
  std::pair<Nanoseconds, Nanoseconds> predict(const tuner::CallFacts& situation,
                                              Algorithm algorithm);
  // Whose costs choices go by.
  const tuner::Machine& machine() const { return *machine_; }

 private:
  Result<tuner::Choice> choose_among_all(const tuner::CallFacts& situation) const;

  std::shared_ptr<const tuner::Machine> machine_ =
      std::make_shared<const tuner::Machine>(tuner::built_in_machine());
  Log log_;
  std::unordered_map<std::uint64_t, tuner::Choice> chosen_;
  std::unordered_map<std::uint64_t, std::pair<Nanoseconds, Nanoseconds>> predicted_;
};

// Code::invalid_argument or unsupported names the argument.
Result<engine::Launch> make_launch(const Call& call, const Setting& setting, Chooser& chooser);

}  // namespace tutti::group
