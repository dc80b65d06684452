// Events: recorded by one stream, waited for by others and asked for by the host.
#include <chrono>
#include <unordered_map>

#include "support/fake_cuda/fake.hpp"

namespace fake_cuda {
namespace {

std::unordered_map<CUevent, std::shared_ptr<Event>>& events() {
  static auto* const all = new std::unordered_map<CUevent, std::shared_ptr<Event>>;
  return *all;
}
std::shared_ptr<Event> find_event(CUevent handle) {
  const auto found = events().find(handle);
  return found == events().end() ? nullptr : found->second;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// In a capture an event is a mark between its streams, and nothing that happens.
CUresult record_in_capture(Event& event, Stream& stream) {
  event.capture = stream.capture;
  event.captured = true;
  event.clock = stream.clock;
  return CUDA_SUCCESS;
}

// By waiting for an event of a capture a stream joins it.
CUresult wait_in_capture(const Event& event, const std::shared_ptr<Stream>& stream) {
  const std::shared_ptr<Capture> capture = event.captured ? event.capture.lock() : nullptr;
  if (capture == nullptr || (stream->capture != nullptr && stream->capture != capture))
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  stream->capture = capture;
  capture->streams.insert(stream.get());
  for (const auto& [other, steps] : event.clock)
    stream->clock[other] = std::max(stream->clock[other], steps);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  const auto held = behind_copies();
  const auto event = std::make_shared<Event>();
  event->timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  *handle = reinterpret_cast<CUevent>(event.get());
  const std::lock_guard lock(state_mutex());
  events().emplace(*handle, event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state_mutex());
  return events().erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  const auto held = behind_copies();
  const std::lock_guard lock(state_mutex());
  const std::shared_ptr<Event> event = find_event(handle);
  const std::shared_ptr<Stream> stream = find_stream(stream_handle);
  if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) return record_in_capture(*event, *stream);
  event->captured = false;
  const std::lock_guard event_lock(event->mutex);
  push(stream->channel, [event, number = ++event->recorded] {
    const std::lock_guard happening(event->mutex);
    event->happened = std::max(event->happened, number);
    event->seconds = now();
  });
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state_mutex());
  const std::shared_ptr<Event> event = find_event(handle);
  const std::shared_ptr<Stream> stream = find_stream(stream_handle);
  if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr || event->captured) return wait_in_capture(*event, stream);
  const std::lock_guard event_lock(event->mutex);
  push(stream->channel, [event, number = event->recorded] {
    poll_until([&] {
      const std::lock_guard looking(event->mutex);
      return event->happened >= number;
    });
  });
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent handle) {
  if (const CUresult result = begin_unsafe_call(); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state_mutex());
  const std::shared_ptr<Event> event = find_event(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->captured) return CUDA_ERROR_CAPTURED_EVENT;
  const std::lock_guard event_lock(event->mutex);
  return event->happened >= event->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent from_handle, CUevent to_handle) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state_mutex());
  const std::shared_ptr<Event> from = find_event(from_handle);
  const std::shared_ptr<Event> to = find_event(to_handle);
  if (from == nullptr || to == nullptr || from == to || !from->timed || !to->timed)
    return CUDA_ERROR_INVALID_HANDLE;
  const std::scoped_lock both(from->mutex, to->mutex);
  if (from->recorded == 0 || to->recorded == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (from->happened < from->recorded || to->happened < to->recorded) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>((to->seconds - from->seconds) * 1e3);
  return CUDA_SUCCESS;
}

// What programs call that are compiled with newer headers.
[[gnu::visibility("default")]] CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent from,
                                                              CUevent to) {
  return cuEventElapsedTime(milliseconds, from, to);
}
