#include "engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/exhausted.hpp"
#include "core/pause.hpp"
#include "core/threads.hpp"
#include "engine/told_status.hpp"

namespace tutti::engine {

using namespace std::chrono_literals;
using transport::Header;
using transport::MessageKind;
using transport::Payload;

namespace {

// The longest sleep while something is under way: bounds the damage of a lost wake-up.
constexpr Nanoseconds kLongestSleep = 50ms;
constexpr Nanoseconds kLongestIdleSleep = 1s;
// The same beside a progress thread that is at work, and wakes whoever waits.
constexpr Nanoseconds kBesideProgress = 2ms;
// While works are started and waited for at once, the idle progress thread looks this often for one
// that was not, and goes back to sleep for good when none was started during so many looks.
constexpr Nanoseconds kWatch = 2ms;
constexpr int kLooksInVain = 10;

// How often the progress thread looks again before it sleeps, where it has a core for itself.
// Elsewhere it sleeps at once and never yields: compute runs beside it, and since Linux 6.16 a thread
// that yields forfeits its turn by a whole slice each time. A hundred yields while nobody else was
// running kept it from its next messages for 70 ms (2 cores, kernel 6.18, 2026-11-15).
constexpr int kLooksOfProgress = 100;

// A poll of memory takes some 20 ns, one of sockets 300. Over sockets it pays to spin for longer
// than a wake-up takes at both ends (some 100 µs in a virtual machine): two ranks that sleep over
// each other's messages would otherwise never find out of it again.
long spins_for(transport::Endpoint& endpoint) {
  for (int rank = 0; rank < endpoint.size(); ++rank)
    if (rank != endpoint.rank() && !endpoint.is_beside(rank)) return 500;
  return 2000;
}

// Ranks that share this host's cores. Without a single memory link nobody knows, so all are
// counted.
int ranks_here(transport::Endpoint& endpoint) {
  int beside = 0;
  for (int rank = 0; rank < endpoint.size(); ++rank) beside += endpoint.is_beside(rank);
  return beside == 0 ? endpoint.size() : beside + 1;
}

// Nobody's to delete.
std::shared_ptr<const schedule::Catalog> built_in_catalog() {
  return {std::shared_ptr<void>(), &schedule::Catalog::built_in()};
}

}  // namespace

std::shared_ptr<Engine> Engine::create(EngineOptions options) {
  auto engine = std::shared_ptr<Engine>(new Engine(std::move(options)));
  if (engine->config_.progress_thread)
    engine->progress_ = start_quiet_thread("tutti-progress", [engine] { engine->progress_loop(); });
  return engine;
}

Engine::Engine(EngineOptions options)
    : endpoint_(std::move(options.endpoint)),
      config_(std::move(options.config)),
      log_(std::move(options.log)),
      clock_(options.clock ? options.clock : &steady_clock()),
      failures_(options.failures),
      raw_failures_(failures_.lock().get()),
      recorder_(std::make_unique<trace::Recorder>(config_.recorder_size, *clock_)),
      catalog_(options.catalog ? std::move(options.catalog) : built_in_catalog()),
      tracer_(std::move(options.tracer)),
      early_(endpoint_->size()),
      down_(static_cast<std::size_t>(endpoint_->size())),
      cut_off_(static_cast<std::size_t>(endpoint_->size())),
      left_(cut_off_.size()),
      lost_by_news_(cut_off_.size()),
      suspected_(cut_off_.size()) {
  // With a core for every rank it pays to spin; with fewer, a spinning rank keeps its peer from
  // running.
  const long cores = static_cast<long>(std::thread::hardware_concurrency());
  spins_ = config_.spin;
  if (spins_ < 0) spins_ = cores >= ranks_here(*endpoint_) ? spins_for(*endpoint_) : 0;
  spin_budget_ = std::make_unique<SpinBudget>(spins_);
  // One core for each rank's compute, and one for its progress thread.
  const bool roomy = allowed_cores() > 1 && cores >= 2L * ranks_here(*endpoint_);
  looks_of_progress_ = roomy && config_.spin != 0 ? kLooksOfProgress : 0;
}

void Engine::shutdown() {
  say_farewell();
  stop_ = true;
  endpoint_->wake();
  {
    std::scoped_lock lock(sleep_mutex_);
    activity_.notify_all();
    work_.notify_all();
    ended_here_.notify_all();
  }
  if (!progress_.joinable()) return;
  // The last group may be dropped by a callback, in the progress thread itself.
  if (progress_.get_id() == std::this_thread::get_id())
    progress_.detach();
  else
    progress_.join();  // bounded: it steps, looks at stop_ and ends
}

std::shared_ptr<Channel> Engine::open_channel(ChannelOptions options) {
  const std::uint32_t id = options.id;
  recorder_->note_group(id, options.name, trace::text_of_ranks(options.members));
  if (tracer_) tracer_->group(id, options.name, options.members);
  auto channel = std::make_shared<Channel>(shared_from_this(), std::move(options));
  {
    std::scoped_lock lock(channels_mutex_);
    std::erase_if(channels_, [](const auto& weak) { return weak.expired(); });
    const auto behind = std::find_if(channels_.begin(), channels_.end(), [&](const auto& weak) {
      const auto other = weak.lock();
      return other && other->urgency() < channel->urgency();
    });
    channels_.insert(behind, channel);
  }
  between_polls([&](transport::Endpoint& endpoint) {
    by_id_[id] = channel;
    for (const int member : channel->everyone()) {
      if (channel->urgency() == Urgency::normal) break;  // as any is from the start
      if (transport::Link* link = endpoint.link(member)) link->set_urgency(id, channel->urgency());
    }
    for (const auto& early : early_.take(id)) on_message(early.peer, early.header, early.payload());
    for (int rank = 0; rank < endpoint_->size(); ++rank)
      if (const Status& down = down_[static_cast<std::size_t>(rank)]; !down.ok())
        if (const int peer = channel->group_rank(rank); peer >= 0) channel->on_down(peer, down);
  });
  std::string failure;
  {
    std::scoped_lock lock(news_mutex_);
    if (const auto at = failed_groups_.find(key_of(channel->options())); at != failed_groups_.end())
      failure = at->second;
  }
  if (!failure.empty()) channel->fail(decode(failure), true);
  return channel;
}

void Engine::close_channel(Channel& channel) {
  between_polls([&](transport::Endpoint& endpoint) {
    by_id_.erase(channel.options().id);
    ended_.insert(channel.options().id);
    if (channel.survivors().is_decided())
      decisions_[channel.options().id] = channel.survivors().opinion();
    // Here, so that a link that comes up now is told by on_up.
    channel.say_goodbye();
    if (endpoint.is_lazy()) members_of_ended_[channel.options().id] = channel.options().members;
    for (int member : channel.everyone()) {
      if (!endpoint.is_linked(member) && channel.urgency() == Urgency::normal) continue;
      if (transport::Link* link = endpoint.link(member)) {
        link->forget(channel.options().id);
        link->set_urgency(channel.options().id, Urgency::normal);
      }
    }
  });
  std::scoped_lock lock(channels_mutex_);
  std::erase_if(channels_, [&](const auto& weak) {
    const auto held = weak.lock();
    return !held || held.get() == &channel;
  });
}

std::uint32_t Engine::next_channel() {
  const auto ranks = static_cast<std::uint32_t>(endpoint_->size());
  return ++proposals_ * ranks + static_cast<std::uint32_t>(endpoint_->rank());
}

std::byte* Engine::place(int peer, const Header& header) {
  if (cut_off_[static_cast<std::size_t>(peer)]) return nullptr;
  const auto at = by_id_.find(header.channel);
  const auto channel = at == by_id_.end() ? nullptr : at->second.lock();
  const int rank = channel ? channel->group_rank(peer) : -1;
  return rank >= 0 ? channel->place(rank, header) : nullptr;
}

void Engine::on_message(int peer, const Header& header, const Payload& payload) {
  if (header.kind == MessageKind::news && !cut_off_[static_cast<std::size_t>(peer)])
    hear_news(peer, header, {reinterpret_cast<const char*>(payload.data), header.bytes});
  if (header.kind == MessageKind::news || cut_off_[static_cast<std::size_t>(peer)] ||
      answer_for_ended(peer, header, payload)) {
    if (payload.lease != 0) endpoint_->link(peer)->release(payload.lease);
    return;
  }
  const auto at = by_id_.find(header.channel);
  const auto channel = at == by_id_.end() ? nullptr : at->second.lock();
  if (channel) {
    if (const int rank = channel->group_rank(peer); rank >= 0) {
      channel->on_message(rank, header, payload);
      return;
    }
  }
  const bool is_early = at == by_id_.end() && !ended_.contains(header.channel);
  if (is_early && early_.keep(peer, header, payload)) return;
  if (payload.lease != 0) endpoint_->link(peer)->release(payload.lease);
  if (is_early) refuse_early(peer);
}

void Engine::refuse_early(int peer) {
  cut_off(peer, {Code::corrupt,
                 fmt::format("rank {} ({}) cannot be understood: it sent more than {} messages, or "
                             "{} MiB, to groups that there are not",
                             peer, endpoint_->whereabouts(peer), EarlyMessages::kMostOfPeer,
                             EarlyMessages::kMostBytesOfPeer >> 20),
                 {endpoint_->rank(), peer, 0}});
}

// A survivor that is late asks about a group that this rank has closed since: it gets the decision. One
// that has decided asks nothing; two who both answered would do so for ever.
bool Engine::answer_for_ended(int peer, const Header& header, const Payload& payload) {
  if (header.kind != MessageKind::view) return false;
  const auto at = decisions_.find(header.channel);
  if (at == decisions_.end()) return false;
  const std::string_view told(reinterpret_cast<const char*>(payload.data), header.bytes);
  const auto opinion = Opinion::decode(told, static_cast<int>(at->second.lost.size()));
  if (!opinion || opinion->is_decision) return true;
  const std::string decision = at->second.encode();
  const auto answer = transport::header_for(MessageKind::view, header.channel, 0);
  (void)endpoint_->link(peer)->send(answer, decision.data(), decision.size(), 0);
  return true;
}

void Engine::on_sent(std::uint64_t token) {
  if (token == 0) return;
  reinterpret_cast<std::atomic<std::uint32_t>*>(token)->fetch_sub(1, std::memory_order_release);
}

void Engine::cut_off(int rank, const Status& why) {
  cut_off_[static_cast<std::size_t>(rank)] = true;
  take_for_lost(rank, why);
}

Status Engine::why_down(int rank) {
  std::scoped_lock lock(poll_lock_);
  return down_[static_cast<std::size_t>(rank)];
}

void Engine::on_down(int peer, const Status& cause) {
  if (!down_[static_cast<std::size_t>(peer)].ok()) return;  // it was cut off before
  Status reason = cause;
  // It is not the peer who went: it has gone on.
  if (const Nanoseconds stood = endpoint_->standstill(peer); stood.count() > 0)
    reason = {Code::peer_lost,
              fmt::format(
                  "rank {} ({}) stood still for {:.1f} s (stopped, or its host was), longer "
                  "than the others wait for a sign of life (TUTTI_DEAD_AFTER)",
                  endpoint_->rank(), endpoint_->whereabouts(endpoint_->rank()), in_seconds(stood)),
              {endpoint_->rank(), endpoint_->rank(), 0}};
  spread_loss(peer, reason);
  take_for_lost(peer, reason);
}

void Engine::take_for_lost(int peer, const Status& reason) {
  if (!down_[static_cast<std::size_t>(peer)].ok()) return;
  down_[static_cast<std::size_t>(peer)] = reason;
  recorder_->note({.peer = peer,
                   .event = trace::Event::peer_down,
                   .code = static_cast<std::uint8_t>(reason.code())});
  for (const auto& [id, weak] : by_id_)
    if (const auto channel = weak.lock())
      if (const int rank = channel->group_rank(peer); rank >= 0) channel->on_down(rank, reason);
}

void Engine::between_polls(const std::function<void(transport::Endpoint&)>& body) {
  std::scoped_lock lock(poll_lock_);
  body(*endpoint_);
}

// Whoever else sleeps over what came here has to be woken; the one that looks once more before it
// sleeps need not wake itself.
bool Engine::poll_once(bool before_sleeping) {
  if (!poll_lock_.try_lock()) return false;
  bool moved = true;
  const Status exhausted = or_exhausted([&] { moved = endpoint_->poll(*this); });
  polls_.fetch_add(1, std::memory_order_release);
  poll_lock_.unlock();
  // What had come is lost: whichever group it was for cannot go on.
  if (!exhausted.ok())
    for (const auto& channel : channels()) channel->fail(exhausted, true);
  if (moved && (followers_.load() > 0 || (sleeping_.load() && !before_sleeping))) notify();
  return moved;
}

std::vector<std::shared_ptr<Channel>> Engine::channels() {
  std::vector<std::shared_ptr<Channel>> alive;
  std::scoped_lock lock(channels_mutex_);
  for (const auto& weak : channels_)
    if (auto channel = weak.lock()) alive.push_back(std::move(channel));
  return alive;
}

// The most urgent first, and again after every piece of one that gives way to them: what came for them
// meanwhile does not wait until all others have had their turn.
bool Engine::step_channels() {
  bool moved = false;
  for (const auto& channel : channels()) {
    const bool stepped = channel->try_step();
    moved |= stepped;
    if (stepped && has_more_urgent(channel->urgency())) attend_more_urgent(channel->urgency());
  }
  return moved;
}

bool Engine::attend_more_urgent(Urgency than) {
  bool moved = poll_once();
  for (const auto& channel : channels()) {
    if (channel->urgency() <= than) break;
    moved |= channel->try_step();
  }
  return moved;
}

bool Engine::step() {
  const bool polled = poll_once();
  return step_channels() || polled;
}

void Engine::drive(Channel& channel, const std::function<bool()>& over, Nanoseconds timeout) {
  const Nanoseconds deadline =
      timeout == Nanoseconds::max() ? timeout : deadline_after(clock_->now(), timeout);
  drivers_.fetch_add(1);
  long idle = 0;
  long looks = 0;
  unsigned busy_rounds = 0;
  while (!over()) {
    // Polled before the first step: a failure that is already here counts.
    if (help(channel)) {
      if (idle > 0 && idle <= looks) spin_budget_->was_rewarded();
      idle = 0;
      // Something else may move without end.
      if (deadline != Nanoseconds::max() && ++busy_rounds % 1024 == 0 && clock_->now() >= deadline)
        break;
      continue;
    }
    if (idle == 0) looks = spin_budget_->looks();
    if (++idle <= looks) {
      pause_cpu();
      continue;
    }
    if (idle == looks + 1) spin_budget_->was_in_vain();
    if (deadline != Nanoseconds::max() && clock_->now() >= deadline) break;
    if (is_progressing()) {
      doze_beside_progress(over);
      idle = 0;  // it may be in a callback that takes its time: this thread looks for itself again
      continue;
    }
    if (idle <= looks + kYields || channel.awaits_device_soon()) {
      home_.yield();
      continue;
    }
    // What is published in host memory is nobody's message: look at that, too, before falling asleep.
    doze(time_to_sleep(std::min(deadline, channel.next_deadline())), false, over,
         [&] { return channel.try_step() || channel.step_awaited(); });
  }
  drivers_.fetch_sub(1);
}

bool Engine::help(Channel& channel) {
  const bool polled =
      has_more_urgent(channel.urgency()) ? attend_more_urgent(channel.urgency()) : poll_once();
  const bool stepped = channel.try_step();
  return channel.step_awaited() || stepped || polled;
}

Nanoseconds Engine::time_to_sleep(Nanoseconds deadline) {
  if (deadline == Nanoseconds::max()) return kLongestSleep;
  return std::clamp<Nanoseconds>(deadline - clock_->now(), 100us, kLongestSleep);
}

// Sleeps until something happens. One thread sleeps on the endpoint; if that is the idle progress
// thread, a driver takes its place, because an idle sleeper is not woken by ordinary messages.
void Engine::doze(Nanoseconds timeout, bool idle, const std::function<bool()>& over,
                  const std::function<bool()>& last_try) {
  std::unique_lock lock(sleep_mutex_);
  if (stop_) return;
  const bool give_way = idle && drivers_.load() > 0;
  if (give_way) {
    // Whatever comes is the driver's. Only new work, or the driver's end, is of interest here.
    if (!over()) work_.wait_for(lock, std::min<Nanoseconds>(timeout, 100ms));
    return;
  }
  if (sleeping_) {
    if (!idle && sleeping_idle_) endpoint_->wake();
    followers_.fetch_add(1);
    if (!over()) activity_.wait_for(lock, std::min<Nanoseconds>(timeout, idle ? 100ms : 5ms));
    followers_.fetch_sub(1);
    return;
  }
  sleeping_ = true;
  sleeping_idle_ = idle;
  lock.unlock();
  endpoint_->sleep(timeout, idle, [&] { return over() || poll_once(true) || last_try() || stop_; });
  lock.lock();
  sleeping_ = sleeping_idle_ = false;
  activity_.notify_all();
}

// The progress thread steps this group as well, and is as likely to need this core: to yield would cost a
// slice of it, and every look at the links what the other thread does already. Woken when something ends,
// or when that thread has nothing to do any more.
void Engine::doze_beside_progress(const std::function<bool()>& over) {
  std::unique_lock lock(sleep_mutex_);
  beside_.fetch_add(1, std::memory_order_seq_cst);
  if (!over() && is_progressing() && !stop_) ended_here_.wait_for(lock, kBesideProgress);
  beside_.fetch_sub(1, std::memory_order_relaxed);
}

void Engine::set_progressing(bool progressing) {
  if (progressing_.exchange(progressing, std::memory_order_seq_cst) == progressing) return;
  if (!progressing && beside_.load(std::memory_order_seq_cst) > 0) notify();
}

void Engine::notify() {
  if (beside_.load(std::memory_order_seq_cst) > 0) {
    std::scoped_lock lock(sleep_mutex_);
    ended_here_.notify_all();
  }
  if (sleeping_.load() && !sleeping_idle_.load()) endpoint_->wake();
  if (followers_.load() > 0) {
    std::scoped_lock lock(sleep_mutex_);
    activity_.notify_all();
  }
}

void Engine::kick(bool waited_for) {
  kicks_.fetch_add(1, std::memory_order_relaxed);
  if (waited_for && watching_.load(std::memory_order_seq_cst)) return;
  if (sleeping_.load()) endpoint_->wake();
  {
    std::scoped_lock lock(sleep_mutex_);
    work_.notify_all();
  }
  notify();
}

// Gives compute back what the thread took beyond its share, in rests long enough to be worth a
// sleep. Whoever waits for the work drives it meanwhile.
class Engine::Allowance {
 public:
  Allowance(double share, const Clock& clock) : rest_per_work_(1 / share - 1), clock_(clock) {}

  void begin() {
    if (rest_per_work_ > 0) began_ = clock_.now();
  }
  void end() {
    if (rest_per_work_ <= 0) return;
    owed_ += std::chrono::duration_cast<Nanoseconds>((clock_.now() - began_) * rest_per_work_);
    if (owed_ < kShortestRest) return;
    const Nanoseconds before = clock_.now();
    std::this_thread::sleep_for(owed_);
    owed_ -= clock_.now() - before;  // a sleep that took longer counts for the next one
  }

 private:
  static constexpr Nanoseconds kShortestRest = 200us;
  double rest_per_work_;
  const Clock& clock_;
  Nanoseconds began_{0};
  Nanoseconds owed_{0};
};

// How long the progress thread may sleep with nothing to do.
Nanoseconds Engine::time_to_idle() {
  const std::uint64_t kicks = kicks_.load(std::memory_order_relaxed);
  looks_in_vain_ = kicks == kicks_seen_ ? looks_in_vain_ + 1 : 0;
  kicks_seen_ = kicks;
  watching_.store(looks_in_vain_ < kLooksInVain, std::memory_order_seq_cst);
  return watching_.load(std::memory_order_relaxed) ? kWatch : kLongestIdleSleep;
}

void Engine::progress_loop() {
  if (!config_.progress_cpus.empty() && !pin_this_thread(config_.progress_cpus))
    log_.warn(Subsystem::init, "TUTTI_PROGRESS_CPUS names cores that this process may not use");
  Allowance allowance(config_.max_core_share, *clock_);
  int idle = 0;
  while (!stop_) {
    bool busy = false;
    bool moved = false;
    Nanoseconds deadline = Nanoseconds::max();
    for (const auto& channel : channels()) {
      if (channel->busy()) {
        busy = true;
        channel->wait_pattern().on_left_alone();
      }
      deadline = std::min(deadline, channel->next_deadline());
    }
    if (busy) watching_.store(false, std::memory_order_seq_cst);
    // While a caller drives the only work there is, stay out of its way.
    if (busy || drivers_.load() == 0) {
      allowance.begin();
      moved = poll_once();
      moved |= step_channels();
    }
    set_progressing(moved && config_.max_core_share >= 1);  // else it rests in between
    if (moved) {
      allowance.end();
      idle = 0;
      continue;
    }
    if (busy && ++idle < looks_of_progress_) {
      pause_cpu();
      continue;
    }
    const auto over = [&] {
      if (stop_) return true;
      if (busy) return false;
      const auto all = channels();
      return std::any_of(all.begin(), all.end(), [](const auto& c) { return c->busy(); });
    };
    doze(busy ? time_to_sleep(deadline) : time_to_idle(), !busy, over,
         [&] { return busy && step_channels(); });
  }
}

}  // namespace tutti::engine
