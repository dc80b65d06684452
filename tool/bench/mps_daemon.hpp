// tool/bench/mps_daemon.hpp - a daemon of NVIDIA's MPS for the ranks of one benchmark.
//
// Under MPS contexts of several processes run on a GPU together instead of taking turns. The daemon has a pipe
// directory of its own, so that it meets no other; this process's environment names it while the object lives, and
// so do those of its children.
#pragma once

#include <memory>
#include <string>

#include "tutti/status.hpp"

namespace tutti::tool {

class MpsDaemon {
 public:
  // Blocks until it answers. unsupported: its program is not on the PATH, or it does not start.
  static Result<std::unique_ptr<MpsDaemon>> start();
  ~MpsDaemon();  // quits it, at the latest by a signal after some seconds; removes its folder
  MpsDaemon(const MpsDaemon&) = delete;

 private:
  explicit MpsDaemon(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

}  // namespace tutti::tool
