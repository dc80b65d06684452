// A GPU: everything is put into the stream that compute runs in.
//
// Time is that of events. Each is measured from a *base*, an event of which the steady clock's time is
// known; the base moves on once a step, when the host has waited for the stream anyway.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "cuda/device.hpp"
#include "train/workplace.hpp"

namespace tutti::train {
namespace {

using cuda::GradientFindings;

cuda::Address address_of(const void* data) { return reinterpret_cast<cuda::Address>(data); }

// Events with time, to be used again: making one costs more than recording it.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  explicit EventPool(std::shared_ptr<cuda::Device> device) : device_(std::move(device)) {}
  Result<std::shared_ptr<cuda::Event>> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        cuda::Event event = std::move(free_.back());
        free_.pop_back();
        return share(std::move(event));
      }
    }
    auto made = device_->make_event(true);
    if (!made.ok()) return made.status();
    return share(*std::move(made));
  }

 private:
  std::shared_ptr<cuda::Event> share(cuda::Event event) {
    return {new cuda::Event(std::move(event)), [pool = shared_from_this()](cuda::Event* used) {
              const std::lock_guard lock(pool->mutex_);
              pool->free_.push_back(std::move(*used));
              delete used;
            }};
  }

  std::shared_ptr<cuda::Device> device_;
  std::mutex mutex_;
  std::vector<cuda::Event> free_;
};

struct TimeBase {
  std::shared_ptr<cuda::Event> event;
  std::int64_t ns = 0;
};

// What a Moment of the device holds.
struct TimedEvent {
  std::shared_ptr<cuda::Event> event;
  std::shared_ptr<const TimeBase> base;
};

// How long after an event the host may notice at worst that it has happened. A base that is further off
// has drifted, or the host was elsewhere: then the host's clock counts.
constexpr std::int64_t kLateNoticeNs = 200'000;

class CudaWorkplace final : public Workplace {
 public:
  CudaWorkplace(std::shared_ptr<cuda::Device> device, std::function<void*()> stream)
      : device_(std::move(device)),
        stream_(std::move(stream)),
        events_(std::make_shared<EventPool>(device_)) {}
  Status open();

  Device device() const override { return Device::cuda; }
  void* stream() const override { return stream_ ? stream_() : nullptr; }
  Status status() const override { return status_; }
  void synchronize() override { note(device_->synchronize(stream())); }

  std::shared_ptr<float> allocate(std::size_t floats) override;
  void zero(void* data, std::size_t bytes) override {
    if (status_.ok()) note(device_->fill(address_of(data), 0, bytes, stream()));
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (status_.ok()) note(device_->copy(address_of(to), address_of(from), bytes, stream()));
  }

  void update(const UpdateArrays& arrays,
              std::span<const UpdatePart<AdamWFactors>> parts) override {
    launch(arrays, parts);
  }
  void update(const UpdateArrays& arrays, std::span<const UpdatePart<SgdFactors>> parts) override {
    launch(arrays, parts);
  }
  void narrow(Dtype dtype, const float* from, std::uint16_t* to, std::size_t count) override {
    if (status_.ok()) note(device_->narrow(conversion(dtype, from, to, count), stream()));
  }
  void widen(Dtype dtype, const std::uint16_t* from, float* to, std::size_t count) override {
    if (status_.ok()) note(device_->widen(conversion(dtype, from, to, count), stream()));
  }

  void add(float* to, const float* from, std::size_t count) override {
    if (status_.ok()) note(device_->add({address_of(from), address_of(to), count}, stream()));
  }

  void find_not_finite(std::size_t bucket, const float* values, std::size_t count) override {
    const cuda::InspectJob job = inspection(2 * bucket, values, count);
    if (status_.ok()) note(device_->find_not_finite(job, stream()));
  }
  void sum_squares(std::size_t bucket, const float* values, std::size_t count) override {
    const cuda::InspectJob job = inspection(2 * bucket + 1, values, count);
    if (status_.ok()) note(device_->sum_squares(job, stream()));
  }
  std::vector<Findings> take_findings(std::size_t count) override;

  Status await(Work& work) override { return work.wait_on(stream()); }
  Moment now() override { return mark(stream()); }
  Moment end_of(Work& work) override {
    return work.wait_on(watch_.get()).ok() ? mark(watch_.get()) : Moment{};
  }
  std::int64_t ns_of(const Moment& moment) override;

 private:
  void note(const Status& status) {
    if (status_.ok()) status_ = status;
  }
  Moment mark(cuda::StreamHandle stream);
  Result<std::shared_ptr<cuda::Event>> record(cuda::StreamHandle stream);
  void move_base(std::shared_ptr<cuda::Event> event);
  template <class Factors>
  void launch(const UpdateArrays& arrays, std::span<const UpdatePart<Factors>> parts);
  cuda::InspectJob inspection(std::size_t slot, const float* values, std::size_t count);
  void make_slots(std::size_t slots);
  static cuda::ConvertJob conversion(Dtype dtype, const void* from, void* to, std::size_t count) {
    return {address_of(from), address_of(to), count, dtype == Dtype::f16};
  }

  std::shared_ptr<cuda::Device> device_;
  std::function<void*()> stream_;
  Status status_;
  cuda::Stream watch_;  // follows collectives to their end
  std::shared_ptr<EventPool> events_;
  std::shared_ptr<const TimeBase> base_;
  // Of each bucket two: what was asked about, and what was summed. Zero between steps.
  cuda::Memory findings_;
  cuda::Memory findings_here_;          // the same in host memory, once a step
  std::vector<std::size_t> asked_;      // how many elements, by slot
  std::vector<cuda::Memory> outgrown_;  // freeing it would wait for every stream
};

Status CudaWorkplace::open() {
  auto watch = device_->make_stream();
  if (!watch.ok()) return watch.status();
  watch_ = *std::move(watch);
  auto first = record(watch_.get());
  if (!first.ok()) return first.status();
  if (Status status = device_->synchronize(watch_.get()); !status.ok()) return status;
  base_ = std::make_shared<TimeBase>(TimeBase{*std::move(first), now_ns()});
  return {};
}

std::shared_ptr<float> CudaWorkplace::allocate(std::size_t floats) {
  if (!status_.ok()) return nullptr;
  auto made = device_->allocate(floats * sizeof(float));
  if (!made.ok()) {
    note(made.status().annotate("memory for the optimizer's state"));
    return nullptr;
  }
  auto memory = std::make_shared<cuda::Memory>(*std::move(made));
  auto* data = reinterpret_cast<float*>(memory->address());
  zero(data, floats * sizeof(float));
  return {std::move(memory), data};
}

// ---- updates

template <class Factors>
void CudaWorkplace::launch(const UpdateArrays& arrays, std::span<const UpdatePart<Factors>> parts) {
  cuda::UpdateJob<Factors> job{};
  job.weights = address_of(arrays.weights);
  job.gradient = address_of(arrays.gradient);
  for (int m = 0; m < 2; ++m) job.moments[m] = address_of(arrays.moments[m]);
  const auto start = [&] {
    if (status_.ok() && job.piece_count > 0) note(device_->update(job, stream()));
    job.piece_count = job.factor_count = 0;
  };
  for (const auto& [first, count, factors] : parts) {
    const auto known = std::find(job.factors, job.factors + job.factor_count, factors);
    auto which = static_cast<int>(known - job.factors);
    if (job.piece_count == cuda::kMostPieces || which == cuda::kMostFactors) {
      start();
      which = 0;
    }
    if (which == job.factor_count) job.factors[job.factor_count++] = factors;
    job.pieces[job.piece_count++] = {first, count, static_cast<std::uint32_t>(which), 0};
  }
  start();
}

// ---- findings

void CudaWorkplace::make_slots(std::size_t slots) {
  if (!status_.ok() || slots <= asked_.size()) return;
  slots = std::max(slots, 2 * asked_.size());
  auto there = device_->allocate(slots * sizeof(GradientFindings));
  if (!there.ok()) return note(there.status());
  auto here = device_->allocate_pinned(slots * sizeof(GradientFindings));
  if (!here.ok()) return note(here.status());
  const std::size_t before = asked_.size() * sizeof(GradientFindings);
  note(device_->fill(there->address(), 0, slots * sizeof(GradientFindings), stream()));
  note(device_->copy(there->address(), findings_.address(), before, stream()));
  outgrown_.push_back(std::exchange(findings_, *std::move(there)));
  outgrown_.push_back(std::exchange(findings_here_, *std::move(here)));
  asked_.resize(slots, 0);
}

cuda::InspectJob CudaWorkplace::inspection(std::size_t slot, const float* values,
                                           std::size_t count) {
  make_slots(slot + 1);
  if (!status_.ok()) return {};
  asked_[slot] = count;
  return {address_of(values), count, findings_.address() + slot * sizeof(GradientFindings)};
}

// All ranks meet here anyway, to agree on the step: what waits is the host alone.
std::vector<Findings> CudaWorkplace::take_findings(std::size_t count) {
  make_slots(2 * count);
  std::vector<Findings> all(count);
  if (!status_.ok()) return all;
  const std::size_t bytes = 2 * count * sizeof(GradientFindings);
  note(device_->copy(findings_here_.address(), findings_.address(), bytes, stream()));
  note(device_->fill(findings_.address(), 0, bytes, stream()));
  auto event = record(stream());
  synchronize();
  if (event.ok()) move_base(*std::move(event));
  if (!status_.ok()) return all;
  const auto* found = reinterpret_cast<const GradientFindings*>(findings_here_.data());
  for (std::size_t bucket = 0; bucket < count; ++bucket) {
    const GradientFindings& asked = found[2 * bucket];
    const GradientFindings& summed = found[2 * bucket + 1];
    if (asked.not_finite != 0) all[bucket].not_finite = asked_[2 * bucket] - asked.not_finite;
    if (summed.not_finite != 0)
      all[bucket].not_finite_squared = asked_[2 * bucket + 1] - summed.not_finite;
    std::array<std::int64_t, ExactSum::kLimbs> limbs;
    std::copy(std::begin(summed.limbs), std::end(summed.limbs), limbs.begin());
    all[bucket].squares.add_limbs(limbs);
  }
  return all;
}

// ---- time

Result<std::shared_ptr<cuda::Event>> CudaWorkplace::record(cuda::StreamHandle stream) {
  auto event = events_->take();
  if (!event.ok()) return event;
  if (Status status = device_->record((*event)->get(), stream); !status.ok()) return status;
  return event;
}

Moment CudaWorkplace::mark(cuda::StreamHandle stream) {
  auto event = record(stream);
  if (!event.ok()) {
    note(event.status());
    return {now_ns(), nullptr};
  }
  return {0, std::make_shared<TimedEvent>(TimedEvent{*std::move(event), base_})};
}

// `event` has just happened.
void CudaWorkplace::move_base(std::shared_ptr<cuda::Event> event) {
  const std::int64_t now = now_ns();
  const auto passed = device_->seconds_between(base_->event->get(), event->get());
  if (!passed.ok()) return note(passed.status());
  const std::int64_t ns = base_->ns + std::llround(*passed * 1e9);
  base_ = std::make_shared<TimeBase>(
      TimeBase{std::move(event), std::clamp(ns, now - kLateNoticeNs, now)});
}

std::int64_t CudaWorkplace::ns_of(const Moment& moment) {
  if (moment.event == nullptr) return moment.ns;
  const auto& timed = *static_cast<const TimedEvent*>(moment.event.get());
  while (true) {
    const auto happened = device_->has_happened(timed.event->get());
    if (!happened.ok()) return note(happened.status()), now_ns();
    if (*happened) break;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  const auto passed = device_->seconds_between(timed.base->event->get(), timed.event->get());
  if (!passed.ok()) return note(passed.status()), now_ns();
  return timed.base->ns + std::llround(*passed * 1e9);
}

}  // namespace

Result<std::shared_ptr<Workplace>> make_cuda_workplace(Group& group,
                                                       const DataParallelOptions& options) {
  // The group says which GPU it is: the calling thread's, where it has none yet, and that is only known
  // when the driver is there. Should it be missing, the group says so on every rank.
  (void)cuda::count_devices().ok();
  auto probe = group.allocate(64, Device::cuda);
  if (!probe.ok()) return probe.status().annotate("device memory for training");
  const auto ordinal = cuda::device_of(probe->data);
  if (!ordinal.ok()) return ordinal.status();
  auto device = cuda::Device::open(*ordinal);
  if (!device.ok()) return device.status();
  auto workplace = std::make_shared<CudaWorkplace>(*std::move(device), options.stream);
  if (Status status = workplace->open(); !status.ok()) return status;
  return std::shared_ptr<Workplace>(std::move(workplace));
}

}  // namespace tutti::train
