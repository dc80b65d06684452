// support/device_runner.hpp - the checks of kernels and of meetings on a Device, emulated or real.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "cuda/device.hpp"
#include "support/captured_graph.hpp"
#include "support/kernel_checks.hpp"
#include "support/meeting_checks.hpp"

namespace tutti::cuda {

class DeviceRunner : public KernelRunner {
 public:
  DeviceRunner(std::shared_ptr<Device> device, std::size_t capacity);
  void use_blocks(int blocks) { blocks_ = blocks; }
  std::uint64_t base() const override { return memory_.address(); }
  std::size_t capacity() const override { return memory_.bytes(); }
  void write(const reduce::Bytes& bytes) override;
  reduce::Bytes read(std::size_t bytes) override;
  void run(const Phase& phase, Dtype dtype) override;
  void run(const UpdateCall& call) override;

 private:
  std::shared_ptr<Device> device_;
  Memory memory_;
  Memory staging_;
  Stream stream_;
  int blocks_ = 1;
};

// Each rank is a stream.
class DeviceWorld : public LaunchWorld {
 public:
  DeviceWorld(std::shared_ptr<Device> device, int ranks);
  std::uint64_t allocate(std::size_t bytes) override;
  void* allocate_host(std::size_t bytes) override;
  void write(std::uint64_t to, const void* from, std::size_t bytes) override;
  void read(void* to, std::uint64_t from, std::size_t bytes) override;
  void start(int rank, const Phase& phase, Dtype dtype, int blocks) override;
  void start_meet(int rank, const Phase& phase) override;
  void keep(int rank, const Phase& phase, Dtype dtype, int blocks) override;
  void start_kept(int rank) override;
  void finish() override;

 private:
  std::shared_ptr<Device> device_;
  Memory staging_;
  Stream copies_;
  std::vector<Stream> ranks_;
  std::deque<Memory> memory_;
  std::map<int, CapturedGraph> kept_;
};

}  // namespace tutti::cuda
