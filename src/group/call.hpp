// group/call.hpp - from what the caller wrote to what the engine runs: checks, memory, choice.
//
// Pure but for the choice's cache: the same call gives the same launch on every rank that passed
// the same arguments. What is wrong with the caller's own arguments is found here, before anything
// starts; what differs between ranks is found by comparing fingerprints.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

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
  ReductionOrder order = ReductionOrder::any;
  const Config* config = nullptr;
};

// Remembers choices, which cost some microseconds to make.
class Chooser {
 public:
  Result<tuner::Choice> choose(const tuner::Situation& situation, Algorithm forced);

 private:
  std::unordered_map<std::uint64_t, tuner::Choice> chosen_;
};

// Code::invalid_argument or unsupported names the argument.
Result<engine::Launch> make_launch(const Call& call, const Setting& setting, Chooser& chooser);

}  // namespace tutti::group
