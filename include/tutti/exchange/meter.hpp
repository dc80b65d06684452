// tutti/exchange/meter.hpp - follows the operations of an exchange from their start to their end, and counts
// what the caller waited.
//
//   ExchangeMeter meter(Device::cpu);
//   const auto sum = meter.follow(group->all_reduce_async(values, ReduceOp::sum));
//   compute_something_else();
//   if (auto status = meter.wait(sum); !status.ok()) return status;
//   report(meter.times());
//
// Thread-safety  one thread; ends are noted in whichever thread completes the operation.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "tutti/collectives.hpp"
#include "tutti/exchange/times.hpp"

namespace tutti::exchange {
inline namespace [[gnu::visibility("default")]] v1 {

class ExchangeMeter {
 public:
  // On a GPU it is the stream that waits, not this thread.
  explicit ExchangeMeter(Device device, void* stream = nullptr);

  using Trip = std::size_t;
  // Of an operation that was started just now.
  Trip follow(Work work);
  Status wait(Trip trip);
  // Whatever is still under way is waited for: its buffers are lent. The first failure among them.
  Status wait_for_all();
  ExchangeTimes times() const;

 private:
  struct Followed {
    Work work;
    std::int64_t begin = 0;
    std::shared_ptr<std::atomic<std::int64_t>> end;  // 0 until it is over
    bool waited = false;
  };

  Device device_;
  void* stream_;
  std::int64_t begin_;
  std::int64_t waited_ = 0;
  std::vector<Followed> followed_;
};

}  // namespace v1
}  // namespace tutti::exchange
