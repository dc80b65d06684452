// fake_cuda/time_slice.hpp - kernels of different processes take turns where FAKE_CUDA_TIME_SLICED says so.
//
// Who runs a kernel holds the lock of a file. A kernel that only waits gives it away when its slice is
// over, so that the others come to run; but no two of them ever do at once.
#pragma once

namespace fake_cuda {

class TimeSlice {
 public:
  TimeSlice();
  TimeSlice(const TimeSlice&) = delete;
  TimeSlice& operator=(const TimeSlice&) = delete;
  ~TimeSlice();
};

}  // namespace fake_cuda
