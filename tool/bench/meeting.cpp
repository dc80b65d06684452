#include "tool/bench/meeting.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>

#include "core/sockets.hpp"

namespace tutti::tool {
namespace {

// Where the memory is, and by what to know that it is the right one.
struct Place {
  std::array<char, 64> path{};
  std::uint64_t mark = 0;
};

std::uint64_t random_mark() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32 | device()) | 1;
}

}  // namespace

BenchMeeting::~BenchMeeting() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

Result<std::unique_ptr<BenchMeeting>> BenchMeeting::create(Group& group) {
  std::unique_ptr<BenchMeeting> meeting(new BenchMeeting(group));
  if (Status status = meeting->open_shared(); !status.ok()) return status;
  return meeting;
}

Status BenchMeeting::open_shared() {
  constexpr std::size_t kMarkBytes = 128;
  bytes_ = kMarkBytes + bench::Meeting::bytes_for(size());
  Place place;
  Descriptor made;
  if (rank() == 0) {
    made.reset(::memfd_create("bench_meeting", MFD_CLOEXEC));
    if (made && ::ftruncate(made.get(), static_cast<off_t>(bytes_)) == 0) {
      place.mark = random_mark();
      if (::pwrite(made.get(), &place.mark, sizeof place.mark, 0) != sizeof place.mark)
        return errno_status("cannot write the benchmark's meeting place");
      fmt::format_to_n(place.path.data(), place.path.size() - 1, "/proc/{}/fd/{}", ::getpid(),
                       made.get());
    }
  }
  Status status = group_.broadcast(Buffer{&place, sizeof place, Dtype::u8}, 0);
  if (!status.ok()) return status;

  Descriptor opened(::open(place.path.data(), O_RDWR | O_CLOEXEC));
  std::uint64_t mark = 0;
  if (opened && ::pread(opened.get(), &mark, sizeof mark, 0) == sizeof mark && mark == place.mark &&
      mark != 0) {
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, opened.get(), 0);
    if (memory_ == MAP_FAILED) memory_ = nullptr;
  }
  std::int32_t everybody = memory_ != nullptr ? 1 : 0;
  status = group_.all_reduce(Buffer::of(&everybody, 1), ReduceOp::min);
  if (!status.ok()) return status;
  if (everybody == 0) return {};
  crowded_ = size() > static_cast<int>(bench::own_cpus().size());
  shared_.emplace(static_cast<std::byte*>(memory_) + kMarkBytes, rank(), size(), crowded_);
  return {};
}

void BenchMeeting::sync() {
  if (shared_)
    shared_->sync();
  else
    note(group_.barrier());
}

void BenchMeeting::sync_asleep() {
  if (shared_)
    shared_->sync_asleep();
  else
    note(group_.barrier());
}

void BenchMeeting::exchange_flags() {
  if (shared_)
    shared_->exchange_flags();
  else
    note(group_.barrier());
}

std::vector<double> BenchMeeting::largest(const std::vector<double>& mine) {
  if (shared_) return shared_->largest(mine);
  std::vector<double> all = mine;
  note(group_.all_reduce(Buffer::of(all), ReduceOp::max));
  return all;
}

double BenchMeeting::sum(double mine) {
  if (shared_) return shared_->sum(mine);
  note(group_.all_reduce(Buffer::of(&mine, 1), ReduceOp::sum));
  return mine;
}

}  // namespace tutti::tool
