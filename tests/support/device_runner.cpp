#include "support/device_runner.hpp"

#include <cstring>

namespace tutti::cuda {
namespace {

constexpr std::size_t kStaging = 4 << 20;

template <class T>
T expect_ok(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? std::move(*result) : T();
}
void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.to_string(); }

}  // namespace

// ---- one phase after the other

DeviceRunner::DeviceRunner(std::shared_ptr<Device> device, std::size_t capacity)
    : device_(std::move(device)),
      memory_(expect_ok(device_->allocate(capacity))),
      staging_(expect_ok(device_->allocate_pinned(capacity))),
      stream_(expect_ok(device_->make_stream())) {}

void DeviceRunner::write(const reduce::Bytes& bytes) {
  std::memcpy(staging_.data(), bytes.data(), bytes.size());
  expect_ok(device_->copy(memory_.address(), staging_.address(), bytes.size(), stream_.get()));
}

reduce::Bytes DeviceRunner::read(std::size_t bytes) {
  expect_ok(device_->copy(staging_.address(), memory_.address(), bytes, stream_.get()));
  expect_ok(device_->synchronize(stream_.get()));
  const auto* data = reinterpret_cast<const unsigned char*>(staging_.data());
  return {data, data + bytes};
}

void DeviceRunner::run(const Phase& phase, Dtype dtype) {
  expect_ok(device_->launch(phase, dtype, blocks_, stream_.get()));
}

namespace {

struct StartOnDevice {
  Device& device;
  StreamHandle stream;
  Status operator()(const AdamWJob& job) const { return device.update(job, stream); }
  Status operator()(const SgdJob& job) const { return device.update(job, stream); }
  Status operator()(const NarrowCall& job) const { return device.narrow(job, stream); }
  Status operator()(const WidenCall& job) const { return device.widen(job, stream); }
  Status operator()(const AddJob& job) const { return device.add(job, stream); }
  Status operator()(const FindCall& job) const { return device.find_not_finite(job, stream); }
  Status operator()(const SquaresCall& job) const { return device.sum_squares(job, stream); }
};

}  // namespace

void DeviceRunner::run(const UpdateCall& call) {
  expect_ok(std::visit(StartOnDevice{*device_, stream_.get()}, call));
}

// ---- ranks

DeviceWorld::DeviceWorld(std::shared_ptr<Device> device, int ranks)
    : device_(std::move(device)),
      staging_(expect_ok(device_->allocate_pinned(kStaging))),
      copies_(expect_ok(device_->make_stream())) {
  for (int r = 0; r < ranks; ++r) ranks_.push_back(expect_ok(device_->make_stream()));
}

std::uint64_t DeviceWorld::allocate(std::size_t bytes) {
  const Memory& made = memory_.emplace_back(expect_ok(device_->allocate(bytes)));
  expect_ok(device_->fill(made.address(), 0, bytes, copies_.get()));
  expect_ok(device_->synchronize(copies_.get()));
  return made.address();
}

void* DeviceWorld::allocate_host(std::size_t bytes) {
  void* const data = memory_.emplace_back(expect_ok(device_->allocate_pinned(bytes))).data();
  std::memset(data, 0, bytes);
  return data;
}

// Words are written at once: kernels may be looking at them.
void DeviceWorld::write(std::uint64_t to, const void* from, std::size_t bytes) {
  ASSERT_LE(bytes, kStaging);
  if (bytes == sizeof(std::uint64_t)) {
    MemoryOperation write{MemoryOperation::Kind::write, to, 0};
    std::memcpy(&write.value, from, bytes);
    expect_ok(device_->operate({&write, 1}, copies_.get()));
  } else {
    std::memcpy(staging_.data(), from, bytes);
    expect_ok(device_->copy(to, staging_.address(), bytes, copies_.get()));
  }
  expect_ok(device_->synchronize(copies_.get()));
}

void DeviceWorld::read(void* to, std::uint64_t from, std::size_t bytes) {
  ASSERT_LE(bytes, kStaging);
  expect_ok(device_->copy(staging_.address(), from, bytes, copies_.get()));
  expect_ok(device_->synchronize(copies_.get()));
  std::memcpy(to, staging_.data(), bytes);
}

void DeviceWorld::start(int rank, const Phase& phase, Dtype dtype, int blocks) {
  expect_ok(device_->launch(phase, dtype, blocks, ranks_[static_cast<std::size_t>(rank)].get()));
}

void DeviceWorld::start_meet(int rank, const Phase& phase) {
  expect_ok(device_->launch_meet(phase, ranks_[static_cast<std::size_t>(rank)].get()));
}

void DeviceWorld::keep(int rank, const Phase& phase, Dtype dtype, int blocks) {
  const StreamHandle stream = ranks_[static_cast<std::size_t>(rank)].get();
  kept_.erase(rank);
  const auto [kept, _] =
      kept_.try_emplace(rank, *device_, stream, CapturedGraph::Mode::relaxed,
                        [&] { expect_ok(device_->launch(phase, dtype, blocks, stream)); });
  EXPECT_EQ(kept->second.result(), 0);
}

void DeviceWorld::start_kept(int rank) {
  EXPECT_EQ(kept_.at(rank).launch(ranks_[static_cast<std::size_t>(rank)].get()), 0);
}

void DeviceWorld::finish() {
  for (const Stream& rank : ranks_) expect_ok(device_->synchronize(rank.get()));
}

}  // namespace tutti::cuda
