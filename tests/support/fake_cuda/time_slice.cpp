#include "support/fake_cuda/time_slice.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "cuda/kernels/machine.hpp"
#include "support/fake_cuda/fake.hpp"

namespace fake_cuda {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSlice = std::chrono::milliseconds(2);

// In threads of one process kernels run at once: they share the descriptor, and so its lock.
struct Turn {
  std::mutex mutex;
  int file = -1;
  int running = 0;
};
Turn& turn() {
  static auto* const turn = new Turn;
  return *turn;
}
thread_local Clock::time_point slice_end;

void take() {
  const std::lock_guard lock(turn().mutex);
  if (turn().file < 0)
    turn().file = ::open(steering().time_slice_lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (turn().running++ == 0) ::flock(turn().file, LOCK_EX);
  slice_end = Clock::now() + kSlice;
}
void give() {
  const std::lock_guard lock(turn().mutex);
  if (--turn().running == 0) ::flock(turn().file, LOCK_UN);
}

void nap_in_slice() {
  if (is_lost()) return;
  if (Clock::now() < slice_end) {
    ::sched_yield();
    return;
  }
  give();
  std::this_thread::sleep_for(std::chrono::microseconds(200));  // lets the others have the lock
  take();
}

}  // namespace

TimeSlice::TimeSlice() {
  if (steering().time_slice_lock.empty()) return;
  take();
  tutti::cuda::kernels::on_nap = nap_in_slice;
}
TimeSlice::~TimeSlice() {
  if (!steering().time_slice_lock.empty()) give();
}

}  // namespace fake_cuda
