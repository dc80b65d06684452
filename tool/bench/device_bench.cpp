#include "tool/bench/device_bench.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "core/sockets.hpp"

namespace tutti::tool {
namespace {

// Far more than the caches hold; less where a GPU is small.
constexpr std::size_t kCeilingBytes = 256UL << 20;
constexpr std::size_t kShareOfMemory = 64;
// Without MPS ranks take turns of some milliseconds: a round has to be as long.
constexpr int kCeilingCopies = 16;
constexpr int kCeilingRounds = 5;

std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }
void* pointer_to(std::uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

Result<std::unique_ptr<DeviceBench>> DeviceBench::create(int rank) {
  const auto count = cuda::count_devices();
  if (!count.ok()) return count.status();
  std::unique_ptr<DeviceBench> bench(new DeviceBench);
  auto device = cuda::Device::open(rank % *count);
  if (!device.ok()) return device.status();
  bench->device_ = *device;
  auto stream = bench->device_->make_stream();
  if (!stream.ok()) return stream.status();
  bench->stream_ = *std::move(stream);
  return bench;
}

DeviceBench::~DeviceBench() {
  if (host_ != nullptr) ::munmap(host_, 2 * area_bytes_);
}

Status DeviceBench::make_areas(Group& group, std::size_t bytes, bool symmetric) {
  area_bytes_ = bytes;
  auto kept = device_->allocate(bytes);
  if (!kept.ok()) return kept.status();
  kept_ = *std::move(kept);
  if (Status status = meet(group); !status.ok()) return status;
  void* memory = nullptr;
  if (symmetric) {
    auto allocated = group.allocate(2 * bytes, Device::cuda);
    if (!allocated.ok()) return allocated.status();
    symmetric_ = *std::move(allocated);
    memory = symmetric_.data;
  } else {
    auto allocated = device_->allocate(2 * bytes);
    if (!allocated.ok()) return allocated.status();
    plain_ = *std::move(allocated);
    memory = pointer_to(plain_.address());
  }
  areas_ = {memory, static_cast<std::byte*>(memory) + bytes};
  host_ = ::mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (host_ == MAP_FAILED) {
    host_ = nullptr;
    return errno_status("no memory to prepare the buffers in");
  }
  host_areas_ = {host_, static_cast<std::byte*>(host_) + bytes};
  clear(bytes);
  synchronize();
  return health_;
}

// On memory of the GPU that this rank has, so that its group uses that one.
Status DeviceBench::meet(Group& group) {
  Buffer first{pointer_to(kept_.address()), 1, Dtype::u8, Device::cuda};
  Status status = device_->fill(kept_.address(), 0, 1, stream());
  if (!status.ok()) return status;
  CallOptions options;
  options.stream = stream();
  status = group.all_reduce(first, ReduceOp::max, options);
  if (status.ok()) status = device_->synchronize(stream());
  if (!status.ok()) return status;
  constexpr std::string_view kWords = "ranks meet by ";
  const std::string text = group.describe();
  const std::size_t at = text.rfind(kWords);
  meeting_word_ = at == std::string::npos ? "staged" : text.substr(at + kWords.size());
  return group.health();
}

std::optional<double> DeviceBench::measure_ceiling(BenchMeeting& meeting) {
  const std::size_t bytes =
      std::min(kCeilingBytes, device_->facts().memory_bytes / kShareOfMemory) / 2;
  auto memory = device_->allocate(2 * bytes);
  if (meeting.largest(memory.ok() ? 0 : 1) > 0) return std::nullopt;
  const auto round = [&] {
    for (int i = 0; i < kCeilingCopies; ++i)
      note(device_->copy(memory->address() + bytes, memory->address(), bytes, stream()));
    synchronize();
  };
  round();  // warm up
  std::vector<double> times(kCeilingRounds);
  for (double& time : times) {
    meeting.sync();
    const double began = bench::now_us();
    round();
    time = bench::now_us() - began;
  }
  const double time_us = bench::median_of(meeting.largest(times));
  const double moved = 2.0 * static_cast<double>(bytes) * kCeilingCopies * meeting.size();
  return moved / time_us * 1e-3;
}

void DeviceBench::copy(const void* to, const void* from, std::size_t bytes) {
  note(device_->copy(address_of(to), address_of(from), bytes, stream()));
}

void DeviceBench::upload(std::size_t bytes) {
  copy(areas_.first, host_areas_.first, bytes);
  copy(areas_.second, host_areas_.second, bytes);
  copy(pointer_to(kept_.address()), areas_.first, bytes);
  synchronize();
}

void DeviceBench::download(std::size_t bytes) {
  copy(host_areas_.first, areas_.first, bytes);
  copy(host_areas_.second, areas_.second, bytes);
  synchronize();
}

void DeviceBench::restore(std::size_t bytes) {
  copy(areas_.first, pointer_to(kept_.address()), bytes);
  synchronize();
}

void DeviceBench::clear(std::size_t bytes) {
  for (const void* area : {areas_.first, areas_.second})
    note(device_->fill(address_of(area), 0, bytes, stream()));
  synchronize();
}

double least_device_traffic(Collective collective, std::size_t bytes, bool in_place, int ranks) {
  const CollectiveShape& shape = shape_of(collective);
  const auto whole = static_cast<double>(bytes);
  const double n = ranks;
  if (!shape.has_data()) return 0;
  // Of a rank's own block nothing has to move where it lies in its place already.
  const double stays = in_place ? whole / n : 0;
  if (shape.is_prefix()) return 2 * n * whole;
  if (shape.folds()) {  // all inputs are read; how much is written?
    const double results = shape.all_get_the_same() ? n * whole : whole;
    return n * whole + results;
  }
  if (shape.has_one_buffer()) return whole + (n - 1) * whole;  // broadcast
  if (shape.has_pairs()) return 2 * n * (whole - stays);       // all_to_all
  if (shape.rooted) return 2 * (whole - stays);                // gather, scatter
  return whole + n * (whole - stays);                          // all_gather
}

Status DeviceTask::run(Group& group) const {
  if (Status status = start(group); !status.ok()) return status;
  finish();
  return bench_.health();
}

void DeviceTask::fill() const { bench_.restore(bytes_); }

void DeviceTask::fill_and_spoil() const {
  on_host_.fill_and_spoil();
  bench_.upload(bytes_);
}

void DeviceTask::clear() const { bench_.clear(bytes_); }

std::size_t DeviceTask::count_wrong() const {
  bench_.download(bytes_);
  return on_host_.count_wrong();
}

}  // namespace tutti::tool
