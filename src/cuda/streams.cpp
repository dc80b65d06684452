// Streams, events, and what a stream does besides kernels.
#include <algorithm>
#include <array>

#include "cuda/device.hpp"
#include "cuda/device_state.hpp"

namespace tutti::cuda {
namespace {

CUstream of(StreamHandle stream) { return static_cast<CUstream>(stream); }
CUevent of_event(EventHandle event) { return static_cast<CUevent>(event); }

CUstreamBatchMemOpParams parameters_of(const MemoryOperation& operation) {
  CUstreamBatchMemOpParams parameters{};
  if (operation.kind == MemoryOperation::Kind::write) {
    parameters.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    parameters.writeValue.address = operation.word;
    parameters.writeValue.value64 = operation.value;
    parameters.writeValue.flags =
        CU_STREAM_WRITE_VALUE_DEFAULT;  // after what came before is visible
  } else {
    parameters.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    parameters.waitValue.address = operation.word;
    parameters.waitValue.value64 = operation.value;
    parameters.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;  // (int64)(word - value) >= 0
  }
  return parameters;
}

}  // namespace

Stream::~Stream() {
  if (device_ != nullptr) device_->destroy_stream(handle_);
}
Event::~Event() {
  if (device_ != nullptr) device_->destroy_event(handle_);
}
void Device::destroy_stream(StreamHandle stream) {
  state_->ask([&](const CudaDriver& d) { return d.cuStreamDestroy_v2(of(stream)); });
}
void Device::destroy_event(EventHandle event) {
  state_->ask([&](const CudaDriver& d) { return d.cuEventDestroy_v2(of_event(event)); });
}

Result<Stream> Device::make_stream(int levels_below) {
  CUstream stream = nullptr;
  // The higher the priority, the lower its number; plain streams have the least.
  const int highest = state_->stream_priority;
  const int priority =
      std::min(highest + levels_below, std::max(highest, state_->least_stream_priority - 1));
  const Status status = state_->make("cuStreamCreateWithPriority", [&](const CudaDriver& d) {
    return d.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority);
  });
  if (!status.ok()) return status;
  return Stream(shared_from_this(), stream);
}

Result<Event> Device::make_event(bool with_time) {
  CUevent event = nullptr;
  const Status status = state_->make("cuEventCreate", [&](const CudaDriver& d) {
    return d.cuEventCreate(&event, with_time ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
  });
  if (!status.ok()) return status;
  return Event(shared_from_this(), event);
}

Status Device::record(EventHandle event, StreamHandle stream) {
  return state_->make("cuEventRecord", [&](const CudaDriver& d) {
    return d.cuEventRecord(of_event(event), of(stream));
  });
}

Status Device::wait(StreamHandle stream, EventHandle event) {
  return state_->make("cuStreamWaitEvent", [&](const CudaDriver& d) {
    return d.cuStreamWaitEvent(of(stream), of_event(event), CU_EVENT_WAIT_DEFAULT);
  });
}

Result<bool> Device::has_happened(EventHandle event) const {
  const CUresult result =
      state_->ask([&](const CudaDriver& d) { return d.cuEventQuery(of_event(event)); });
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) return result == CUDA_SUCCESS;
  return status_of(state_->driver, result, "cuEventQuery", state_->ordinal);
}

Result<double> Device::seconds_between(EventHandle from, EventHandle to) const {
  float milliseconds = 0;
  const Status status = state_->make("cuEventElapsedTime", [&](const CudaDriver& d) {
    return d.cuEventElapsedTime(&milliseconds, of_event(from), of_event(to));
  });
  if (!status.ok()) return status;
  return milliseconds * 1e-3;
}

Result<bool> Device::is_capturing(StreamHandle stream) const {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  const Status status = state_->make("cuStreamIsCapturing", [&](const CudaDriver& d) {
    return d.cuStreamIsCapturing(of(stream), &capture);
  });
  if (!status.ok()) return status;
  return capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

Status Device::synchronize(StreamHandle stream) {
  return state_->make("cuStreamSynchronize",
                      [&](const CudaDriver& d) { return d.cuStreamSynchronize(of(stream)); });
}

namespace {

int exchange_capture_mode(int wanted) {
  auto mode = static_cast<CUstreamCaptureMode>(wanted);
  if (const Result<const CudaDriver*> found = driver(); found.ok())
    (*found)->cuThreadExchangeStreamCaptureMode(&mode);
  return mode;
}

}  // namespace

RelaxedCapture::RelaxedCapture() : mode_(exchange_capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED)) {}
RelaxedCapture::~RelaxedCapture() { exchange_capture_mode(mode_); }

Status Device::copy(Address to, Address from, std::size_t bytes, StreamHandle stream) {
  return state_->make("cuMemcpyAsync", [&](const CudaDriver& d) {
    return bytes == 0 ? CUDA_SUCCESS : d.cuMemcpyAsync(to, from, bytes, of(stream));
  });
}

Status Device::fill(Address to, std::uint8_t value, std::size_t bytes, StreamHandle stream) {
  return state_->make("cuMemsetD8Async", [&](const CudaDriver& d) {
    return bytes == 0 ? CUDA_SUCCESS : d.cuMemsetD8Async(to, value, bytes, of(stream));
  });
}

Status Device::operate(std::span<const MemoryOperation> operations, StreamHandle stream) {
  std::array<CUstreamBatchMemOpParams, 64> batch;  // the driver takes 256
  while (!operations.empty()) {
    const auto some = operations.first(std::min(operations.size(), batch.size()));
    std::transform(some.begin(), some.end(), batch.begin(), parameters_of);
    const Status status = state_->make("cuStreamBatchMemOp", [&](const CudaDriver& d) {
      return d.cuStreamBatchMemOp_v2(of(stream), static_cast<unsigned>(some.size()), batch.data(),
                                     0);
    });
    if (!status.ok()) return status;
    operations = operations.subspan(some.size());
  }
  return {};
}

}  // namespace tutti::cuda
