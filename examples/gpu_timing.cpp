// gpu_timing - how long does an all_reduce on a GPU take? docs/gpu_timing.md explains the five answers.
#include <cuda.h>

#include <algorithm>
#include <chrono>

#include "example.hpp"

namespace {

constexpr std::size_t kCount = 1 << 20;  // floats: 4 MiB
constexpr int kWarmUps = 5;
constexpr int kIterations = 20;

void check_cuda(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* why = nullptr;
  cuGetErrorString(result, &why);
  std::fprintf(stderr, "%s: %s\n", what, why != nullptr ? why : "unknown");
  std::exit(1);
}
#define CHECK_CUDA(call) check_cuda(call, #call)

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The first GPU, a stream, and two events with times. A process that ends gives it all back.
struct Gpu {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUevent begin = nullptr, end = nullptr;

  Gpu() {
    CHECK_CUDA(cuInit(0));
    CHECK_CUDA(cuDeviceGet(&device, 0));
    CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CUDA(cuCtxPushCurrent(context));
    CHECK_CUDA(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    CHECK_CUDA(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CHECK_CUDA(cuEventCreate(&end, CU_EVENT_DEFAULT));
  }
  void synchronize() const { CHECK_CUDA(cuStreamSynchronize(stream)); }
  double mib_in_use() const {
    std::size_t free = 0, total = 0;
    CHECK_CUDA(cuMemGetInfo(&free, &total));
    return static_cast<double>(total - free) / (1 << 20);
  }
};

// Twice what the L2 cache holds: who writes it all has evicted everything else.
class Flush {
 public:
  explicit Flush(const Gpu& gpu) : gpu_(gpu) {
    int bytes = 0;
    if (cuDeviceGetAttribute(&bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, gpu.device) == CUDA_SUCCESS)
      bytes_ = 2 * static_cast<std::size_t>(bytes);
    CHECK_CUDA(cuMemAlloc(&memory_, bytes_));
  }
  void operator()() const { CHECK_CUDA(cuMemsetD8Async(memory_, 0, bytes_, gpu_.stream)); }

 private:
  const Gpu& gpu_;
  std::size_t bytes_ = 8 << 20;
  CUdeviceptr memory_ = 0;
};

}  // namespace

int main() {
  auto group = example::join();
  const Gpu gpu;
  const double before = gpu.mib_in_use();
  const auto memory =
      example::value_of(group->allocate(kCount * sizeof(float), tutti::Device::cuda));
  const Flush flush(gpu);
  const tutti::Buffer buffer{memory.data, kCount, tutti::Dtype::f32, tutti::Device::cuda};
  tutti::CallOptions options;
  options.stream = gpu.stream;
  const auto call = [&] {
    example::check(group->all_reduce(buffer, tutti::ReduceOp::max, options));
  };

  // All streams are empty and all ranks are there: else a time is how late another rank came.
  const auto meet = [&] {
    gpu.synchronize();
    example::check(group->barrier());
  };
  const auto by_events = [&](const auto& prepare) {
    std::vector<double> times;
    for (int i = 0; i < kWarmUps + kIterations; ++i) {
      prepare();
      meet();
      CHECK_CUDA(cuEventRecord(gpu.begin, gpu.stream));
      call();
      CHECK_CUDA(cuEventRecord(gpu.end, gpu.stream));
      gpu.synchronize();
      float ms = 0;
      CHECK_CUDA(cuEventElapsedTime(&ms, gpu.begin, gpu.end));
      if (i >= kWarmUps) times.push_back(ms * 1e3);
    }
    return median(times);
  };

  meet();
  double began = now_us();
  call();
  gpu.synchronize();
  const double first = now_us() - began;
  const double warm = by_events([] {});
  const double cold = by_events([&] { flush(); });
  meet();
  began = now_us();
  call();
  const double host = now_us() - began;
  gpu.synchronize();
  const double whole = now_us() - began;

  // A collective is as slow as its slowest rank.
  std::vector<double> all = {first, host, whole, warm, cold};
  example::check(group->all_reduce(tutti::Buffer::of(all), tutti::ReduceOp::max));
  if (group->rank() != 0) return 0;
  example::say("first call      %8.1f us: maps memory; never part of a result", all[0]);
  example::say("host            %8.1f us: until the call returned", all[1]);
  example::say("host, to end    %8.1f us: until the stream was through", all[2]);
  example::say("events, warm    %8.1f us: on the device, median of %d", all[3], kIterations);
  example::say("events, cold    %8.1f us: the same, the cache flushed before each", all[4]);
  example::say("memory          %8.1f MiB more in use on the GPU than before",
               gpu.mib_in_use() - before);
  return 0;
}
