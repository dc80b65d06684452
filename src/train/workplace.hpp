// train/workplace.hpp - where a replica's memory lies and what computes on it: this processor, or a GPU.
//
// The one seam between the training layer and devices. On the host everything is done when a call
// returns. On a GPU it is put into the stream that compute runs in just then
// (DataParallelOptions::stream), behind what is there; a call that says so waits for it.
//
// Buffers        arrays are this place's memory, except where a name says host.
// Thread-safety  one thread at a time.
// Failure        the first one sticks and shows in status(); nothing is done after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/exact_sum.hpp"
#include "train/kernels.hpp"
#include "tutti/group.hpp"
#include "tutti/train/data_parallel.hpp"

namespace tutti::train {

std::int64_t now_ns();  // of the steady clock

// A point in time in what is done there: known at once, or when the device has come there.
struct Moment {
  std::int64_t ns = 0;          // of the steady clock; 0: ask Workplace::ns_of
  std::shared_ptr<void> event;  // the device's; null: none
};

// Of parameters in one bucket, by elements from the bucket's own ones on.
template <class Factors>
struct UpdatePart {
  std::size_t first = 0;
  std::size_t count = 0;
  Factors factors;
};
struct UpdateArrays {
  float* weights = nullptr;
  const float* gradient = nullptr;
  float* moments[2] = {nullptr, nullptr};  // SGD: the first alone
};

// What was found out about the gradients of one bucket in this step.
struct Findings {
  std::optional<std::size_t> not_finite;          // of those asked about: the first element
  ExactSum squares;                               // of those that were summed and are finite
  std::optional<std::size_t> not_finite_squared;  // the first of them that is not
};

class Workplace {
 public:
  // Collective. On a GPU: the one that the group's symmetric memory lies on.
  static Result<std::shared_ptr<Workplace>> create(Group& group,
                                                   const DataParallelOptions& options);
  virtual ~Workplace() = default;
  virtual Device device() const = 0;
  // For collectives on its memory: CallOptions::stream.
  virtual void* stream() const = 0;
  virtual Status status() const = 0;
  // Until all that was put into the stream so far is done.
  virtual void synchronize() = 0;

  // ---- memory
  // Zeros. Null when there is no memory left; status() says so.
  virtual std::shared_ptr<float> allocate(std::size_t floats) = 0;
  virtual void zero(void* data, std::size_t bytes) = 0;
  // From and to any memory, the host's as well; that must then stay until synchronize().
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  // The same, and waits for it.
  void copy_now(void* to, const void* from, std::size_t bytes) {
    copy(to, from, bytes);
    synchronize();
  }

  // ---- arithmetic (kernels.hpp)
  virtual void update(const UpdateArrays& arrays,
                      std::span<const UpdatePart<AdamWFactors>> parts) = 0;
  virtual void update(const UpdateArrays& arrays,
                      std::span<const UpdatePart<SgdFactors>> parts) = 0;
  virtual void narrow(Dtype dtype, const float* from, std::uint16_t* to, std::size_t count) = 0;
  virtual void widen(Dtype dtype, const std::uint16_t* from, float* to, std::size_t count) = 0;
  // to += from
  virtual void add(float* to, const float* from, std::size_t count) = 0;

  // ---- what is asked about gradients, by bucket
  virtual void find_not_finite(std::size_t bucket, const float* values, std::size_t count) = 0;
  virtual void sum_squares(std::size_t bucket, const float* values, std::size_t count) = 0;
  // Of buckets 0 to count − 1, since the last call; waits for them.
  virtual std::vector<Findings> take_findings(std::size_t count) = 0;

  // ---- collectives on its memory, and time
  // What comes next finds the result.
  virtual Status await(Work& work) = 0;
  virtual Moment now() = 0;
  // When the collective is done; null event and 0 ns: its callback will tell.
  virtual Moment end_of(Work& work) = 0;
  // Waits for it to come.
  virtual std::int64_t ns_of(const Moment& moment) = 0;
};

// Of the two kinds.
std::shared_ptr<Workplace> make_host_workplace();
Result<std::shared_ptr<Workplace>> make_cuda_workplace(Group& group,
                                                       const DataParallelOptions& options);

}  // namespace tutti::train
