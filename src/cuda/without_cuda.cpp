// device.hpp in a build without CUDA: `open` says so, and nothing else is ever called.
#include "cuda/device.hpp"

namespace tutti::cuda {
namespace {

Status no_cuda() {
  return Status(
      Code::unsupported,
      "this build has no CUDA: the toolkit was not found, or TUTTI_CUDA=OFF was asked for");
}

}  // namespace

struct Device::State {};

Result<int> count_devices() { return no_cuda(); }
bool is_built_in() { return false; }
Result<DeviceFacts> look_at(int) { return no_cuda(); }
bool may_reach(int, int) { return false; }
int current_device() { return 0; }
Result<int> device_of(const void*) { return no_cuda(); }

Result<std::shared_ptr<Device>> Device::open(int) { return no_cuda(); }
Device::Device(std::unique_ptr<State>) {}
Device::~Device() = default;
bool Device::can_reach(int) { return false; }

Memory::~Memory() = default;
void Memory::swap(Memory&) {}
Result<Memory> Device::allocate(std::size_t) { return no_cuda(); }
Result<Memory> Device::allocate_pinned(std::size_t) { return no_cuda(); }
bool Device::push_current() { return false; }
void Device::pop_current() {}
Status Device::register_host(void*, std::size_t) { return no_cuda(); }
void Device::unregister_host(void*) {}
void Device::sweep() {}
Result<Allocation> Device::allocation_of(Address) const { return no_cuda(); }
Result<IpcHandle> Device::export_allocation(const Allocation&) const { return no_cuda(); }
Result<Address> Device::import_allocation(const IpcHandle&) { return no_cuda(); }
void Device::close_import(Address) {}

Stream::~Stream() = default;
Event::~Event() = default;
Result<Stream> Device::make_stream(int) { return no_cuda(); }
Result<Event> Device::make_event(bool) { return no_cuda(); }
Status Device::record(EventHandle, StreamHandle) { return no_cuda(); }
Status Device::wait(StreamHandle, EventHandle) { return no_cuda(); }
Result<bool> Device::has_happened(EventHandle) const { return no_cuda(); }
Result<double> Device::seconds_between(EventHandle, EventHandle) const { return no_cuda(); }
Result<bool> Device::is_capturing(StreamHandle) const { return no_cuda(); }
Status Device::synchronize(StreamHandle) { return no_cuda(); }
RelaxedCapture::RelaxedCapture() : mode_(0) {}
RelaxedCapture::~RelaxedCapture() { (void)mode_; }
Status Device::copy(Address, Address, std::size_t, StreamHandle) { return no_cuda(); }
Status Device::fill(Address, std::uint8_t, std::size_t, StreamHandle) { return no_cuda(); }
Status Device::operate(std::span<const MemoryOperation>, StreamHandle) { return no_cuda(); }
Status Device::launch(const Phase&, Dtype, int, StreamHandle) { return no_cuda(); }
Status Device::launch_meet(const Phase&, StreamHandle) { return no_cuda(); }
Status Device::update(const AdamWJob&, StreamHandle) { return no_cuda(); }
Status Device::update(const SgdJob&, StreamHandle) { return no_cuda(); }
Status Device::narrow(const ConvertJob&, StreamHandle) { return no_cuda(); }
Status Device::widen(const ConvertJob&, StreamHandle) { return no_cuda(); }
Status Device::add(const AddJob&, StreamHandle) { return no_cuda(); }
Status Device::find_not_finite(const InspectJob&, StreamHandle) { return no_cuda(); }
Status Device::sum_squares(const InspectJob&, StreamHandle) { return no_cuda(); }

}  // namespace tutti::cuda
