#include "transport/linked_endpoint.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "core/check.hpp"
#include "transport/late_links.hpp"

namespace tutti::transport {
namespace {

// With memory links alone the descriptors only tell of deaths and regions: looking now and then is
// enough, and a system call costs as much as a dozen polls of the rings.
constexpr std::uint32_t kPollsPerLook = 256;
// Up to here reading every socket costs less than asking first which of them are ready.
constexpr std::size_t kDirectSockets = 2;
// How long a rank that leaves tries to get its last messages out.
constexpr Nanoseconds kParting = std::chrono::milliseconds(200);
// And how long it waits until they have come to its peers, where nobody is given up for silence. A peer's
// beat that meets a closed socket makes the kernel drop what is still on its way.
constexpr Nanoseconds kArriving = std::chrono::seconds(1);
constexpr Nanoseconds kArrivingTurn = std::chrono::microseconds(200);
constexpr const char* kNoDescriptor =
    "this process has no descriptor left to take it with; raise its limit (ulimit -n)";

}  // namespace

Result<std::unique_ptr<LinkedEndpoint>> LinkedEndpoint::create(Parts parts) {
  auto reactor = Reactor::create();
  if (!reactor.ok()) return reactor.status();
  return std::unique_ptr<LinkedEndpoint>(new LinkedEndpoint(std::move(parts), std::move(*reactor)));
}

LinkedEndpoint::LinkedEndpoint(Parts parts, Reactor reactor)
    : parts_(std::move(parts)),
      reactor_(std::move(reactor)),
      links_(static_cast<std::size_t>(parts_.size)),
      fork_hook_(Hook::on_fork(&LinkedEndpoint::on_fork, this)) {
  // Never moved while another thread forks.
  const auto size = static_cast<std::size_t>(parts_.size);
  up_.reserve(size);
  memory_.reserve(size);
  message_.reserve(size);
  first_.reserve(size);
  lifelines_.reserve(size);
}

void LinkedEndpoint::on_fork(void* context) noexcept {
  auto* endpoint = static_cast<LinkedEndpoint*>(context);
  for (MessageLink* link : endpoint->message_) link->abandon();
  for (auto& lifeline : endpoint->lifelines_) lifeline->abandon();
  if (endpoint->late_) endpoint->late_->abandon();
  endpoint->reactor_.abandon();
}

MemoryLink& LinkedEndpoint::add_memory(MemoryLink::Ends ends) {
  const auto peer = static_cast<std::size_t>(ends.peer);
  ends.self = parts_.rank;
  ends.mine = parts_.window;
  auto link =
      std::make_unique<MemoryLink>(std::move(ends), regions_, parts_.log, parts_.visibility);
  memory_.push_back(link.get());
  come_up(static_cast<int>(peer), std::move(link));
  return *memory_.back();
}

Status LinkedEndpoint::add_lifeline(std::unique_ptr<Lifeline> lifeline) {
  lifelines_.push_back(std::move(lifeline));
  return lifelines_.back()->watch(reactor_);
}

Status LinkedEndpoint::add_message(int peer, std::unique_ptr<MessageLink> link) {
  message_.push_back(link.get());
  if (!late_) first_.push_back(link.get());
  sockets_ += link->sockets();
  has_messages_.store(true, std::memory_order_relaxed);
  if (Status status = link->watch(reactor_); !status.ok()) return status;
  come_up(peer, std::move(link));
  return {};
}

void LinkedEndpoint::come_up(int peer, std::unique_ptr<Link> link) {
  Link& real = *owned_.emplace_back(std::move(link));
  up_.push_back({peer, &real});
  auto& place = links_[static_cast<std::size_t>(peer)];
  {
    std::scoped_lock lock(late_mutex_);
    const auto promised = promised_.find(peer);
    if (promised == promised_.end())
      place.store(&real, std::memory_order_release);
    else
      promised->second->come_up(real);
  }
  came_up_.push_back(peer);
  const bool is_here = real.shares_memory() && static_cast<MemoryLink&>(real).same_process();
  if (pulse_ && !is_here) pulse_->watch({.peer = peer, .link = &real});
}

// ---- links that are made at their first use

Status LinkedEndpoint::keep_open(std::unique_ptr<LateLinks> late) {
  late_ = std::move(late);
  came_up_.clear();
  return late_->stay(reactor_);
}

Link* LinkedEndpoint::promise(int peer) {
  if (peer == parts_.rank) return nullptr;
  auto& place = links_[static_cast<std::size_t>(peer)];
  std::scoped_lock lock(late_mutex_);
  if (Link* found = place.load()) return found;
  auto& made = promised_[peer];
  made = std::make_unique<LazyLink>(late_->promise(peer), [this, peer] {
    late_->want(peer);
    has_news_.store(true, std::memory_order_relaxed);
    wake();
  });
  place.store(made.get(), std::memory_order_release);
  return made.get();
}

bool LinkedEndpoint::is_linked(int peer) {
  std::scoped_lock lock(late_mutex_);
  const auto promised = promised_.find(peer);
  if (promised != promised_.end()) return promised->second->is_up();
  return links_[static_cast<std::size_t>(peer)].load() != nullptr;
}

std::vector<int> LinkedEndpoint::linked() {
  std::vector<int> peers;
  for (int peer = 0; peer < parts_.size; ++peer)
    if (links_[static_cast<std::size_t>(peer)].load() != nullptr && is_linked(peer))
      peers.push_back(peer);
  return peers;
}

bool LinkedEndpoint::is_beside(int peer) {
  return late_ ? late_->is_beside(peer) : Endpoint::is_beside(peer);
}

void LinkedEndpoint::doubt(int peer, const Status& why) {
  if (late_ && !is_linked(peer)) late_->doubt(peer, why);
}

void LinkedEndpoint::suspect(int peer) {
  if (pulse_ && !is_linked(peer)) pulse_->suspect(peer);
}

void LinkedEndpoint::on_farewell(int peer) {
  if (late_) late_->replace(peer, false);
}

bool LinkedEndpoint::attend_late(MessageSink& sink) {
  if (!late_ || !late_->is_due()) return false;
  const auto losses = late_->attend();
  for (const auto& loss : losses)
    if (!loss.quiet) lose(loss.peer, loss.why, sink);
  const bool happened = !losses.empty() || !came_up_.empty();
  for (const int peer : std::exchange(came_up_, {})) sink.on_up(peer);
  return happened;
}

// There is no link, and there will be none.
void LinkedEndpoint::lose(int peer, const Status& why, MessageSink& sink) {
  if (is_linked(peer)) return;
  static_cast<LazyLink*>(link(peer))->lose();
  sink.on_down(peer, {why.code(), why.message(), {parts_.rank, peer, 0}});
}

Nanoseconds LinkedEndpoint::until_due(Nanoseconds timeout) const {
  if (late_ && late_->is_due()) return Nanoseconds(0);
  if (!late_ || late_->due() == Nanoseconds::max()) return timeout;
  return std::min(timeout, late_->due() - steady_clock().now());
}

// The reactor costs a system call that finds nothing most of the time. A few sockets are read
// whether or not it says so; it is asked for what waits for room, and now and then.
bool LinkedEndpoint::time_to_look() {
  if (has_news_.exchange(false, std::memory_order_relaxed)) return true;
  if (++polls_ % kPollsPerLook == 0) return true;
  if (message_.empty()) return false;
  return sockets_ > kDirectSockets ||
         std::any_of(message_.begin(), message_.end(),
                     [](MessageLink* link) { return link->wants_room(); });
}

bool LinkedEndpoint::poll(MessageSink& sink) {
  bool happened = false;
  if (time_to_look()) {
    reactor_.look();
    happened = pulse_ && give_up_silent(sink);
  }
  if (late_) happened |= attend_late(sink);
  // Before the memory links: it is they who report a peer's end.
  for (auto& lifeline : lifelines_)
    if (lifeline->ready()) happened |= attend(*lifeline);
  for (MemoryLink* link : memory_) happened |= link->poll(sink);
  for (MessageLink* link : message_) {
    if (sockets_ <= kDirectSockets) link->suppose_readable();
    if (link->ready()) happened |= link->poll(sink);
  }
  return happened;
}

// Regions that came over the lifeline, and the end of the peer.
bool LinkedEndpoint::attend(Lifeline& lifeline) {
  bool happened = false;
  lifeline.flush();
  while (auto region = lifeline.receive()) {
    happened = true;
    auto mapping = Mapping::shared(region->file->get(), region->bytes, true);
    if (!mapping.ok()) {
      parts_.log.warn(Subsystem::shm, "cannot map memory {} of rank {}: {}", region->id,
                      lifeline.peer(), *region->file ? mapping.status().message() : kNoDescriptor);
    }
    auto mapped = mapping.ok() ? std::make_shared<Mapping>(std::move(*mapping)) : nullptr;
    if (!regions_.add(lifeline.peer(), region->id, std::move(mapped)))
      lifeline.link().distrust(kBadRegion);
    else if (mapping.ok())
      lifeline.link().tell_mapped(region->id);
  }
  if (!lifeline.ended()) return happened;
  lifeline.link().lose(
      gone(lifeline.peer(), "is gone: its process ended without destroying its group"));
  return true;
}

Status LinkedEndpoint::gone(int peer, const std::string& why) const {
  return {Code::peer_lost,
          fmt::format("rank {} ({}) {}", peer, whereabouts(peer), why),
          {parts_.rank, peer, 0}};
}

Status LinkedEndpoint::start_pulse(Nanoseconds dead_after) {
  std::vector<Pulse::Watched> watched;
  for (const auto& [peer, link] : up_) {
    const bool here = std::any_of(memory_.begin(), memory_.end(), [&](MemoryLink* each) {
      return each == link && each->same_process();
    });
    if (!here) watched.push_back({.peer = peer, .link = link});
  }
  std::sort(watched.begin(), watched.end(),
            [](const auto& a, const auto& b) { return a.peer < b.peer; });
  if (watched.empty()) return {};
  dead_after_ = dead_after;
  const auto look = [this] {
    has_news_.store(true);
    wake();
  };
  pulse_ = std::make_unique<Pulse>(Pulse::Options{dead_after, parts_.window.get(), look, look},
                                   std::move(watched));
  return pulse_->start();
}

// All of them at once, the lowest rank first: ranks that are cut off from the same peers then say the
// same.
bool LinkedEndpoint::give_up_silent(MessageSink& sink) {
  for (const int peer : pulse_->take_suspects()) sink.on_suspicion(peer);
  const auto silent = pulse_->take_silent();
  std::string names;
  for (const int peer : silent) names += fmt::format("{}{}", names.empty() ? "" : ", ", peer);
  for (const int peer : silent) {
    const auto why = fmt::format(
        "is silent: no sign of life for {:g} s (TUTTI_DEAD_AFTER), so its process is stopped or its "
        "host cut off{}",
        in_seconds(dead_after_), silent.size() > 1 ? "; silent are ranks " + names : "");
    const auto at =
        std::find_if(up_.begin(), up_.end(), [&](const Up& each) { return each.peer == peer; });
    if (at != up_.end())
      at->link->give_up(sink, gone(peer, why));
    else
      lose(peer, gone(peer, why), sink);
  }
  return !silent.empty();
}

Status LinkedEndpoint::look_for_the_gone() {
  std::map<int, std::string> gone_now;
  for (const auto& lifeline : lifelines_)
    if (lifeline->is_cut())
      gone_now[lifeline->peer()] = "is gone: its process ended without destroying its group";
  for (const auto& [peer, link] : up_)
    if (link->is_cut()) gone_now.try_emplace(peer, "is gone: it closed its connection");
  const auto gone_before = std::exchange(seemed_gone_, std::move(gone_now));
  for (const auto& [peer, why] : seemed_gone_)
    if (gone_before.contains(peer)) return gone(peer, why);
  return {};
}

void LinkedEndpoint::all_have_joined() {
  if (pulse_) pulse_->expect_all();
}

Nanoseconds LinkedEndpoint::standstill(int peer) const {
  return pulse_ ? pulse_->standstill(peer) : Nanoseconds(0);
}

void LinkedEndpoint::set_doorbell(std::uint32_t state) {
  parts_.window->head().doorbell.exchange(sleeps_ << 2 | state, std::memory_order_seq_cst);
}

// The bell is waited for here alone: a poll by another thread cannot swallow a ring.
void LinkedEndpoint::wait_for_news(Nanoseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec span{static_cast<time_t>(seconds.count()),
                      static_cast<long>((timeout - seconds).count())};
  const int bell = parts_.window->bell();
  pollfd watched[2] = {{bell, POLLIN, 0}, {reactor_.descriptor(), POLLIN, 0}};
  if (::ppoll(watched, 2, &span, nullptr) <= 0) return;  // bounded: by the span
  if (watched[1].revents != 0) has_news_.store(true, std::memory_order_relaxed);
  if (watched[0].revents == 0) return;
  std::uint64_t rings = 0;
  // bounded: EFD_NONBLOCK
  [[maybe_unused]] const auto drained = ::read(bell, &rings, sizeof rings);
}

void LinkedEndpoint::sleep(Nanoseconds timeout, bool idle, const std::function<bool()>& again) {
  ++sleeps_;
  set_doorbell(idle ? kIdle : kSleeping);
  // Between the bell and every look that follows: `again` reads lines and marks with acquire only.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // What was read already is no news: the reactor forgets it here.
  if (has_messages_.load(std::memory_order_relaxed))
    has_news_.store(true, std::memory_order_relaxed);
  // Whatever was published before the doorbell was set is seen now; whatever comes later rings.
  if (!again()) wait_for_news(std::clamp(until_due(timeout), Nanoseconds(0), longest_nap(idle)));
  set_doorbell(kAwake);
}

Nanoseconds LinkedEndpoint::longest_nap(bool idle) const {
  Nanoseconds longest = Nanoseconds::max();
  for (MessageLink* link : first_) longest = std::min(longest, link->longest_nap(idle));
  return longest;
}

Result<MemoryRegion> LinkedEndpoint::allocate_region(std::uint64_t id, std::size_t bytes,
                                                     const std::vector<int>& peers) {
  const auto is_wanted = [&](int peer) {
    return std::find(peers.begin(), peers.end(), peer) != peers.end();
  };
  const bool moves = std::any_of(first_.begin(), first_.end(),
                                 [](MessageLink* link) { return link->wants_regions(); });
  const bool shared =
      moves || std::any_of(lifelines_.begin(), lifelines_.end(),
                           [&](const auto& line) { return is_wanted(line->peer()); });
  auto made = regions_.allocate(id, bytes, shared);
  if (!made.ok()) return made.status();
  for (auto& lifeline : lifelines_)
    if (is_wanted(lifeline->peer())) lifeline->send({id, bytes, made->file});
  for (MemoryLink* link : memory_)
    if (link->same_process() && is_wanted(link->peer()))
      link->tell_region(id, regions_.mapping(id));
  for (MessageLink* link : first_)
    if (link->wants_regions()) link->add_region(id, made->region, made->file->get());
  return made->region;
}

void LinkedEndpoint::free_region(std::uint64_t id) {
  for (MessageLink* link : first_) link->drop_region(id);
  regions_.free(id);
}

bool LinkedEndpoint::unshare_region(std::uint64_t id) {
  for (MessageLink* link : first_) link->drop_region(id);
  return regions_.unshare(id);
}

bool LinkedEndpoint::share_heap(const std::vector<int>& peers) {
  HeapArena* heap = HeapArena::of_process();
  if (heap == nullptr) return false;
  const auto is_new = [&](int peer) {
    return std::find(peers.begin(), peers.end(), peer) != peers.end() &&
           have_heap_.insert(peer).second;
  };
  regions_.add_heap(*heap, !lifelines_.empty());
  for (auto& lifeline : lifelines_)
    if (is_new(lifeline->peer()))
      lifeline->send({kHeapRegion, heap->mapping()->bytes(), heap->file()});
  for (MemoryLink* link : memory_)
    if (link->same_process() && is_new(link->peer()))
      link->tell_region(kHeapRegion, heap->mapping());
  return true;
}

void LinkedEndpoint::withdraw(const void* data, std::size_t bytes) {
  if (!regions_.withdraw(data, bytes))
    parts_.log.warn(Subsystem::shm,
                    "{} bytes of the shared heap cannot be taken back after a failure: a rank that "
                    "has not noticed it may still write there",
                    bytes);
}

std::string LinkedEndpoint::whereabouts(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  const std::string place =
      index < parts_.whereabouts.size() ? parts_.whereabouts[index] : "this process";
  std::scoped_lock lock(labels_mutex_);
  const auto label = labels_.find(rank);
  return label == labels_.end() ? place : fmt::format("{}; {}", label->second, place);
}

void LinkedEndpoint::label(int rank, std::string label) {
  std::scoped_lock lock(labels_mutex_);
  if (label.empty())
    labels_.erase(rank);
  else
    labels_[rank] = std::move(label);
}

// The last messages (goodbye, abort) should get out, but a peer that takes nothing must not hold
// us.
void LinkedEndpoint::say_goodbye() {
  const Nanoseconds deadline = steady_clock().now() + kParting;
  const auto all_out = [&] {
    bool out = true;
    for (MemoryLink* link : memory_) out &= link->flush();
    for (MessageLink* link : message_) out &= link->flush();
    return out;
  };
  while (!all_out() && steady_clock().now() < deadline) std::this_thread::yield();
  // A cut may heal until then, and its other side still waits for our last words.
  const Nanoseconds patience = dead_after_ > Nanoseconds(0) ? dead_after_ : kArriving;
  const Nanoseconds last = steady_clock().now() + patience;
  const auto is_on_its_way = [](MessageLink* link) { return !link->has_arrived(); };
  while (std::any_of(message_.begin(), message_.end(), is_on_its_way) &&
         steady_clock().now() < last)
    std::this_thread::sleep_for(kArrivingTurn);
}

LinkedEndpoint::~LinkedEndpoint() {
  if (fork_guard_.crossed()) {
    // Its thread is not in this process, and its end would wait for it. What the links held when the
    // parent forked may be half-changed.
    (void)pulse_.release();
    for (auto& link : owned_) (void)link.release();
    (void)late_.release();
    for (auto& lifeline : lifelines_) (void)lifeline.release();
    return;  // the window is still our parent's
  }
  pulse_.reset();
  late_.reset();
  say_goodbye();
  parts_.window->head().departed.store(1, std::memory_order_release);
  for (MemoryLink* link : memory_) link->depart();
}

}  // namespace tutti::transport
