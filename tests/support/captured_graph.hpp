// support/captured_graph.hpp - what was put into a stream, as a graph that can be launched again.
//
// The library never captures; programs that call it do. Works on whatever driver the process has.
#pragma once

#include <functional>

#include "cuda/device.hpp"

namespace tutti::cuda {

class CapturedGraph {
 public:
  // As the driver numbers them.
  enum class Mode { global = 0, thread_local_only = 1, relaxed = 2 };

  // Whatever `body` puts into `stream`, and into streams that it joins to it by events.
  CapturedGraph(Device& device, StreamHandle stream, Mode mode, const std::function<void()>& body);
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  ~CapturedGraph();

  bool ok() const { return result_ == 0; }
  int result() const { return result_; }  // a CUresult: of what went wrong first
  int launch(StreamHandle stream);        // a CUresult

 private:
  int ordinal_;
  int result_ = 0;
  void* graph_ = nullptr;
  void* executable_ = nullptr;
};

}  // namespace tutti::cuda
