#include "transport/pulse.hpp"

#include <algorithm>
#include <system_error>

#include "core/exhausted.hpp"
#include "core/threads.hpp"

namespace tutti::transport {
namespace {

using namespace std::chrono_literals;

// With the default of 10 s a link carries three beats a second. A peer that stops just after a beat is
// given up after dead_after + 1 beat (it may have been about to beat) + 1 beat (others may follow) + 2
// ticks: 0.8 s beyond dead_after at most.
constexpr Nanoseconds kLongestBeat = 300ms;
constexpr Nanoseconds kShortestBeat = 15ms;
constexpr int kBeatsInDeadAfter = 33;
constexpr int kTicksPerBeat = 3;
// For how many beats another rank's suspicion counts: it has given the peer up by then, or heard it.
constexpr int kToldFor = 3;

Nanoseconds time_now() { return steady_clock().now(); }

}  // namespace

Nanoseconds Pulse::beat_every(Nanoseconds dead_after) {
  if (dead_after.count() == 0) return kLongestBeat;
  return std::clamp(dead_after / kBeatsInDeadAfter, kShortestBeat, kLongestBeat);
}

Pulse::Pulse(Options options, std::vector<Watched> watched)
    : options_(std::move(options)),
      beat_(beat_every(options_.dead_after)),
      tick_(beat_ / kTicksPerBeat),
      watched_(std::move(watched)),
      heard_at_(watched_.size()),
      last_tick_(time_now().count()) {}

void Pulse::watch(Watched watched) {
  std::scoped_lock lock(watched_mutex_);
  (void)watched.link->heard();  // what came until now is no beat
  watched_.push_back(watched);
  heard_at_.emplace_back(0);
}

void Pulse::suspect(int peer) {
  std::scoped_lock lock(mutex_);
  told_[peer] = time_now();
}

std::vector<int> Pulse::take_suspects() {
  std::scoped_lock lock(mutex_);
  return std::exchange(suspects_, {});
}

Status Pulse::start() {
  try {
    thread_ = start_quiet_thread("tutti-pulse", [this] { run(); });
  } catch (const std::system_error& error) {
    return {Code::out_of_memory,
            std::string("no thread for the heartbeat (limit of processes?): ") + error.what()};
  }
  return {};
}

Pulse::~Pulse() {
  if (!thread_.joinable()) return;
  {
    std::scoped_lock lock(mutex_);
    stop_ = true;
    stopped_.notify_all();
  }
  thread_.join();  // bounded: it takes one tick
}

void Pulse::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    // Short of memory: what this turn has left undone the next one does.
    (void)or_exhausted([this] { tick(time_now()); });
    lock.lock();
    if (!stop_) stopped_.wait_for(lock, tick_);
  }
}

void Pulse::tick(Nanoseconds now) {
  const Nanoseconds away = now - Nanoseconds(last_tick_.load(std::memory_order_relaxed));
  if (is_standstill(away)) {
    stood_still_.store(away.count(), std::memory_order_relaxed);
    woke_at_.store(now.count(), std::memory_order_relaxed);
  }
  last_tick_.store(now.count(), std::memory_order_release);
  const bool beats = now >= beat_at_;
  if (beats) {
    beat_at_ = now + beat_;
    options_.window->head().pulse.fetch_add(1, std::memory_order_relaxed);
  }
  const Nanoseconds lived = std::min(away, 2 * tick_);
  std::scoped_lock watching(watched_mutex_);
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    Watched& each = watched_[i];
    if (beats) each.link->beat();
    const bool heard = each.link->heard() && !first_look_;
    if (heard) heard_at_[i].store(now.count(), std::memory_order_relaxed);
    each.suspected &= !heard;
    each.beats |= heard || expects_all_.load(std::memory_order_relaxed);
    each.silence = heard || !each.beats ? Nanoseconds(0) : each.silence + lived;
  }
  first_look_ = false;
  if (options_.dead_after.count() != 0) judge(now);
}

bool Pulse::is_standstill(Nanoseconds away) const {
  return options_.dead_after.count() != 0 && away > options_.dead_after;
}

void Pulse::judge(Nanoseconds now) {
  const auto is_silent = [&](const Watched& each) {
    return !each.given_up && each.silence >= options_.dead_after + beat_;
  };
  const auto is_watched = [&](int peer) {
    return std::any_of(watched_.begin(), watched_.end(),
                       [&](const Watched& each) { return each.peer == peer; });
  };
  if (std::none_of(watched_.begin(), watched_.end(), is_silent)) {
    verdict_at_ = Nanoseconds::max();
    return;
  }
  if (verdict_at_ == Nanoseconds::max()) verdict_at_ = now + beat_;
  const bool is_time = now >= verdict_at_;
  bool has_suspects = false;
  {
    std::scoped_lock lock(mutex_);
    for (Watched& each : watched_) {
      if (!is_silent(each)) continue;
      if (!std::exchange(each.suspected, true)) {
        suspects_.push_back(each.peer);
        has_suspects = true;
      }
      if (!is_time) continue;
      silent_.push_back(each.peer);
      each.given_up = true;
    }
    for (const auto& [peer, when] : told_)
      if (is_time && now - when < kToldFor * beat_ && !is_watched(peer)) silent_.push_back(peer);
    if (is_time) told_.clear();
    std::sort(silent_.begin(), silent_.end());
    silent_.erase(std::unique(silent_.begin(), silent_.end()), silent_.end());
  }
  if (has_suspects && options_.on_suspicion) options_.on_suspicion();
  if (is_time) options_.on_silence();
}

std::vector<int> Pulse::take_silent() {
  std::scoped_lock lock(mutex_);
  return std::exchange(silent_, {});
}

Nanoseconds Pulse::standstill(int peer) const {
  const Nanoseconds now = time_now();
  // The thread may not have had its turn yet since this process woke up.
  const Nanoseconds away = now - Nanoseconds(last_tick_.load(std::memory_order_acquire));
  if (is_standstill(away)) return away;
  const Nanoseconds woke(woke_at_.load(std::memory_order_relaxed));
  if (woke.count() == 0 || now - woke > options_.dead_after) return Nanoseconds(0);
  // What came while we stood still is heard in the first beat after it.
  std::scoped_lock watching(watched_mutex_);
  for (std::size_t i = 0; i < watched_.size(); ++i)
    if (watched_[i].peer == peer &&
        heard_at_[i].load(std::memory_order_relaxed) > (woke + beat_).count())
      return Nanoseconds(0);
  return Nanoseconds(stood_still_.load(std::memory_order_relaxed));
}

}  // namespace tutti::transport
