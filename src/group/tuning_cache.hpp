// group/tuning_cache.hpp - the user's folder of measured machines: one file per fingerprint.
//
// $XDG_CACHE_HOME/tutti or ~/.cache/tutti; files of mode 0600, written beside and renamed, so that
// several jobs may write the same one. docs/formats/tuning.md.
#pragma once

#include <chrono>
#include <string>

#include "group/self.hpp"
#include "tuner/machine.hpp"
#include "tutti/config.hpp"

namespace tutti::group {

// Empty when the user has no home.
std::string cache_folder(const Config& config, const Environment& environment);

// Where the costs of one machine are kept: good ones, and those that were measured while it was busy.
struct TuningPaths {
  std::string good;
  std::string rough;
  // Both empty where there is no folder.
  static TuningPaths in(const std::string& folder, const std::string& fingerprint);
  // The one to read; empty: none is there, or the rough one is older than it holds for.
  std::string usable(std::chrono::seconds rough_holds_for) const;
};

// Code::io, corrupt or invalid_argument when it cannot be used; the message begins with the path.
Result<tuner::Machine> load_machine(const std::string& path);
// Makes the folder if need be.
Status save_machine(const std::string& path, const tuner::Machine& machine);

}  // namespace tutti::group
