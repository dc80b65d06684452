// Capture and replay. A graph is the list of what was recorded, in that order, whatever stream it was
// recorded in: one of the orders that the real one might run in.
#include <algorithm>
#include <functional>
#include <thread>

#include "support/fake_cuda/fake.hpp"

struct CUgraph_st {
  std::shared_ptr<const fake_cuda::Capture> capture;
};
struct CUgraphExec_st {
  std::shared_ptr<const fake_cuda::Capture> capture;
};

namespace fake_cuda {
namespace {

std::set<std::shared_ptr<Capture>>& captures() {
  static auto* const all = new std::set<std::shared_ptr<Capture>>;
  return *all;
}

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

std::uint64_t this_thread() { return std::hash<std::thread::id>{}(std::this_thread::get_id()); }

// As cuThreadExchangeStreamCaptureMode describes it.
bool forbids(const Capture& capture) {
  const bool own = capture.thread == this_thread();
  if (capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  switch (thread_mode) {
    case CU_STREAM_CAPTURE_MODE_GLOBAL: return own || capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    case CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: return own;
    case CU_STREAM_CAPTURE_MODE_RELAXED: break;
  }
  return false;
}

// Whether the origin comes after everything that was recorded in streams that joined.
bool all_joined(const Capture& capture, Clock& origin) {
  return std::all_of(capture.streams.begin(), capture.streams.end(),
                     [&](Stream* stream) { return origin[stream] >= stream->clock[stream]; });
}

}  // namespace

bool is_forbidden_by_capture() {
  const std::lock_guard lock(state_mutex());
  bool forbidden = false;
  for (const auto& capture : captures())
    if (forbids(*capture)) {
      capture->valid = false;
      forbidden = true;
    }
  return forbidden;
}

}  // namespace fake_cuda

using namespace fake_cuda;

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return begin_call();
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state_mutex());
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *status = stream->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
            : stream->capture->valid   ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                       : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state_mutex());
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr || handle == nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  capture->thread = this_thread();
  capture->origin = stream.get();
  capture->streams.insert(stream.get());
  stream->capture = capture;
  captures().insert(capture);
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  *graph = nullptr;
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state_mutex());
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (stream == nullptr || stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream.get()) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  const bool joined = all_joined(*capture, stream->clock);
  captures().erase(capture);
  for (Stream* each : capture->streams) {
    each->capture = nullptr;
    each->clock.clear();
  }
  if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = new CUgraph_st{capture};
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  *made = new CUgraphExec_st{graph->capture};
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  return enqueue(stream, [capture = graph->capture] {
    for (const Task& step : capture->steps)
      if (!is_lost()) step();
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  delete graph;
  return begin_call();
}

CUresult cuGraphExecDestroy(CUgraphExec graph) {
  delete graph;
  return begin_call();
}
