// group/call.hpp - from what the caller wrote to what the engine runs: checks, memory, choice.
//
// Pure but for the choice's cache: the same call gives the same launch on every rank that passed
// the same arguments. What is wrong with the caller's own arguments is found here, before anything
// starts; what differs between ranks is found by comparing fingerprints. What a collective's
// arguments have to look like is read from its shape (tutti/shape.hpp).
#pragma once

#include <memory>
#include <vector>

#include "engine/launch.hpp"
#include "group/chooser.hpp"
#include "schedule/catalog.hpp"
#include "tutti/collectives.hpp"
#include "tutti/config.hpp"
#include "tutti/status.hpp"

namespace tutti::group {

// What a call is seen against.
struct Setting {
  int rank = 0;
  int size = 1;
  std::vector<int> host_of;
  std::vector<int> walk;        // schedule::Request::walk
  std::vector<int> machine_of;  // tuner::CallFacts::machine_of
  ReductionOrder order = ReductionOrder::any;
  bool has_switch = false;                         // that folds for it
  std::shared_ptr<const cost::Curve> switch_cost;  // null: not known
  bool device_reaches_all = false;                 // on device memory, ranks work on each other's
  const Config* config = nullptr;
  const schedule::Catalog* catalog = &schedule::Catalog::built_in();
};

// Code::unsupported if there is a stream, and nothing on a device.
Status check_options(const CallOptions& options, bool on_device);

// Code::invalid_argument or unsupported names the argument.
Result<engine::Launch> make_launch(const Call& call, const Setting& setting, Chooser& chooser);

}  // namespace tutti::group
