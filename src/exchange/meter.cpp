#include "tutti/exchange/meter.hpp"

#include <algorithm>

#include "core/clock.hpp"

namespace tutti::exchange {

namespace {

std::int64_t moment() { return steady_clock().now().count(); }

void note(std::atomic<std::int64_t>& end) {
  std::int64_t unknown = 0;
  end.compare_exchange_strong(unknown, moment());
}

}  // namespace

inline namespace v1 {

ExchangeMeter::ExchangeMeter(Device device, void* stream)
    : device_(device), stream_(stream), begin_(moment()) {}

ExchangeMeter::Trip ExchangeMeter::follow(Work work) {
  auto end = std::make_shared<std::atomic<std::int64_t>>(0);
  followed_.push_back({work, moment(), end, false});
  work.on_complete([end](const Status&) { note(*end); });
  return followed_.size() - 1;
}

Status ExchangeMeter::wait(Trip trip) {
  Followed& followed = followed_[trip];
  followed.waited = true;
  const std::int64_t begin = moment();
  Status status = device_ == Device::cpu ? followed.work.wait() : followed.work.wait_on(stream_);
  waited_ += moment() - begin;
  // Whoever completed it may not have come to its callback yet.
  note(*followed.end);
  return status;
}

Status ExchangeMeter::wait_for_all() {
  Status first;
  for (Trip trip = 0; trip < followed_.size(); ++trip) {
    if (followed_[trip].waited) continue;
    Status status = wait(trip);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

ExchangeTimes ExchangeMeter::times() const {
  const std::int64_t now = moment();
  // They were started one after the other: a look back is never needed.
  std::int64_t wire = 0, covered = 0;
  for (const Followed& followed : followed_) {
    const std::int64_t noted = followed.end->load();
    const std::int64_t end = noted == 0 ? now : noted;
    wire += std::max<std::int64_t>(end - std::max(followed.begin, covered), 0);
    covered = std::max(covered, end);
  }
  const auto seconds = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-9; };
  return {seconds(now - begin_), seconds(waited_), seconds(wire)};
}

}  // namespace v1
}  // namespace tutti::exchange
