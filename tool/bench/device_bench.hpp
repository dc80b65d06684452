// tool/bench/device_bench.hpp - one rank's GPU in a benchmark: its memory, a stream, and the ceiling.
//
// The ceiling is what copies reach that all ranks make at once, in the same run: nothing that reads and writes
// device memory is quicker. Ranks share the GPUs that there are: rank r has GPU r modulo their number.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cuda/device.hpp"
#include "tool/bench/meeting.hpp"
#include "tool/bench/task.hpp"
#include "tutti/group.hpp"

namespace tutti::tool {

class DeviceBench {
 public:
  // Opens this rank's GPU.
  static Result<std::unique_ptr<DeviceBench>> create(int rank);
  ~DeviceBench();
  DeviceBench(const DeviceBench&) = delete;

  // Collective. Has the group run its first, smallest operation there; then two areas of so many bytes, zero at
  // first, and memory of the host to prepare and check them in.
  Status make_areas(Group& group, std::size_t bytes, bool symmetric);
  const Areas& areas() const { return areas_; }
  const Areas& host_areas() const { return host_areas_; }

  cuda::Device& device() const { return *device_; }
  cuda::StreamHandle stream() const { return stream_.get(); }
  // What ranks said when they were asked how they meet: "kernel", "memops", "host" or "staged".
  const std::string& meeting_word() const { return meeting_word_; }

  // Collective. Bytes read and written per second by all ranks at once, in GB/s; none where there is no memory
  // for it.
  std::optional<double> measure_ceiling(BenchMeeting& meeting);

  // ---- the first `bytes` of both areas; what fails is kept in health()
  void upload(std::size_t bytes);    // from the host's areas, and remembers the first one
  void download(std::size_t bytes);  // to them
  void restore(std::size_t bytes);   // the first area as it was uploaded
  void clear(std::size_t bytes);
  void synchronize() { note(device_->synchronize(stream())); }
  const Status& health() const { return health_; }

 private:
  DeviceBench() = default;
  Status meet(Group& group);
  void note(const Status& status) {
    if (health_.ok()) health_ = status;
  }
  void copy(const void* to, const void* from, std::size_t bytes);

  std::shared_ptr<cuda::Device> device_;
  cuda::Stream stream_;
  std::string meeting_word_;
  SymmetricMemory symmetric_;
  cuda::Memory plain_;
  cuda::Memory kept_;  // the first area as it was uploaded
  void* host_ = nullptr;
  std::size_t area_bytes_ = 0;
  Areas areas_;
  Areas host_areas_;
  Status health_;
};

// Bytes that all ranks together read and write at least.
double least_device_traffic(Collective collective, std::size_t bytes, bool in_place, int ranks);

// A Task whose memory is on the device: prepared and checked on the host.
class DeviceTask {
 public:
  DeviceTask(const BenchCell& cell, int rank, int ranks, DeviceBench& bench)
      : bench_(bench),
        bytes_(cell.bytes),
        on_host_(cell, rank, ranks, bench.host_areas()),
        on_device_(cell, rank, ranks, bench.areas(), Device::cuda, bench.stream()) {}

  // Starts it, and has the stream wait for it.
  Status start(Group& group) const { return group.run(on_device_.call()); }
  // Until the stream is through.
  Status run(Group& group) const;
  void finish() const { bench_.synchronize(); }
  void fill() const;
  void fill_and_spoil() const;
  void clear() const;
  std::size_t count_wrong() const;

 private:
  DeviceBench& bench_;
  std::size_t bytes_;
  Task on_host_;
  Task on_device_;
};

}  // namespace tutti::tool
