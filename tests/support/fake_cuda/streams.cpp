// Streams: each a queue of its own, or one of a few that they share.
#include <thread>
#include <unordered_map>

#include "support/fake_cuda/fake.hpp"

namespace fake_cuda {
namespace {

// By handle; and the default stream of each device, by device.
struct Streams {
  std::unordered_map<CUstream, std::shared_ptr<Stream>> made;
  std::map<int, std::shared_ptr<Stream>> defaults;
  std::vector<std::shared_ptr<Channel>> shared;
  std::size_t next = 0;
};
Streams& streams() {
  static auto* const all = new Streams;
  return *all;
}

std::shared_ptr<Channel> channel_for_stream() {
  const auto channels = static_cast<std::size_t>(steering().channels);
  if (channels == 0) return make_channel();
  auto& shared = streams().shared;
  if (shared.size() < channels) shared.push_back(make_channel());
  return shared[streams().next++ % channels];
}

std::shared_ptr<Stream> make_stream(int device) {
  auto stream = std::make_shared<Stream>();
  stream->device = device;
  stream->channel = channel_for_stream();
  return stream;
}

// 0, and the handles that cuda.h reserves for the default streams.
bool is_default(CUstream handle) { return reinterpret_cast<std::uintptr_t>(handle) <= 2; }

}  // namespace

std::mutex& state_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

std::shared_ptr<Stream> find_stream(CUstream handle) {
  const int device = current_device();
  if (is_default(handle)) {
    auto& stream = streams().defaults[device];
    if (stream == nullptr) stream = make_stream(device);
    return stream;
  }
  const auto found = streams().made.find(handle);
  if (found == streams().made.end() || found->second->device != device) return nullptr;
  return found->second;
}

CUresult enqueue(CUstream handle, Task task) {
  const std::lock_guard lock(state_mutex());
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture == nullptr) {
    push(stream->channel, std::move(task));
  } else {
    stream->capture->steps.push_back(std::move(task));
    ++stream->clock[stream.get()];
  }
  return CUDA_SUCCESS;
}

}  // namespace fake_cuda

using namespace fake_cuda;

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int priority) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  const auto held = behind_copies();
  if (flags > CU_STREAM_NON_BLOCKING || priority > 0 || priority < -5)
    return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state_mutex());
  const std::shared_ptr<Stream> stream = make_stream(current_device());
  stream->priority = priority;
  *handle = reinterpret_cast<CUstream>(stream.get());
  streams().made.emplace(*handle, stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state_mutex());
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state_mutex());
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (stream == nullptr || is_default(handle)) return CUDA_ERROR_INVALID_HANDLE;
  streams().made.erase(handle);
  if (steering().channels == 0) close(stream->channel);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
  if (const CUresult result = begin_call_in_context(); result != CUDA_SUCCESS) return result;
  const auto done = std::make_shared<std::atomic<bool>>(false);
  {
    const std::lock_guard lock(state_mutex());
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture != nullptr) {
      stream->capture->valid = false;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    push(stream->channel, [done] { *done = true; });
  }
  poll_until([&] { return done->load(); });
  return is_lost() ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}
