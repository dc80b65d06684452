// engine/engine.hpp - what makes one rank's groups move: polls the links, steps the groups, sleeps.
//
// One engine per rank (and per process, unless ranks are threads). All groups that were made from
// one another share it, with its links and its progress thread. A thread that waits drives: it
// polls and steps its own group, spins a little, yields, then sleeps. The progress thread takes
// care of what was started asynchronously, and sleeps when that is nothing. Whoever steps gives groups
// that are more urgent their turn between two pieces of a group that gives way to them.
//
// Without a progress thread and with a virtual clock the same code runs under simulation: call
// step().
//
// Thread-safety  any thread, any method. Locks: at most one of {baton of a group → poll lock}, in
// this
//                order; the poll lock is never held while waiting for a baton.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/board.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/spin_lock.hpp"
#include "engine/channel.hpp"
#include "engine/device_context.hpp"
#include "engine/early_messages.hpp"
#include "engine/home_core.hpp"
#include "engine/spin_budget.hpp"
#include "schedule/catalog.hpp"
#include "trace/recorder.hpp"
#include "trace/tracer.hpp"
#include "transport/endpoint.hpp"
#include "tutti/config.hpp"

namespace tutti::engine {

// Yields between spinning and sleeping. A cross-core wake costs some 33 µs (2-core virtual machine,
// 2026-11), a yield under 1 µs: sleep late.
inline constexpr int kYields = 100;

// What a rank is doing, for the launcher's board.
struct Activity {
  const std::string& group;
  std::uint64_t sequence = 0;
  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::u8;
  std::uint64_t bytes = 0;  // of the rank's own argument
  BoardState state = BoardState::done;
};

// Told once per failed group, from whatever thread found out; implemented by the group room.
class FailureSink {
 public:
  virtual ~FailureSink() = default;
  // Before those who wait hear of it. Must not block.
  virtual void on_failure(const Channel& channel, const Status& status) = 0;
  // After that, with nothing held: time for logs and files.
  virtual void report_failure(const Channel& channel, const Status& status) = 0;
  // A collective has begun or ended; for the launcher's board.
  virtual void on_activity(const Activity& activity) = 0;
};

struct EngineOptions {
  std::unique_ptr<transport::Endpoint> endpoint;
  Config config;
  Log log;
  const Clock* clock = nullptr;  // null: the system's
  std::weak_ptr<FailureSink> failures;
  std::unique_ptr<trace::Tracer> tracer;             // null: nothing is traced
  std::shared_ptr<const schedule::Catalog> catalog;  // null: the built-in one
};

class Engine final : private transport::MessageSink, public std::enable_shared_from_this<Engine> {
 public:
  static std::shared_ptr<Engine> create(EngineOptions options);
  // Ends the progress thread, which keeps the engine alive until then. To be called once, after the
  // last group is closed.
  void shutdown();

  std::shared_ptr<Channel> open_channel(ChannelOptions options);
  void close_channel(Channel& channel);

  // Polls and steps everything once. True if anything moved. For simulations and tests; threads
  // that wait use drive().
  bool step();
  void drive(Channel& channel, const std::function<bool()>& over, Nanoseconds timeout);
  // One round of it: polls, steps the group and what it waits for. True if anything moved.
  bool help(Channel& channel);

  // Operations that are queued or under way in groups of that urgency.
  void count_open(Urgency urgency, int more) {
    open_[static_cast<std::size_t>(urgency)].fetch_add(more, std::memory_order_relaxed);
  }
  // Whether some are in groups that go before those of `than`. Costs a look or two at memory.
  bool has_more_urgent(Urgency than) const {
    for (auto each = static_cast<std::size_t>(than) + 1; each < open_.size(); ++each)
      if (open_[each].load(std::memory_order_relaxed) > 0) return true;
    return false;
  }
  // The progress thread is at work, and steps every group as it goes.
  bool is_progressing() const { return progressing_.load(std::memory_order_seq_cst); }
  // Gives those groups their turn, in this thread: to be called between bounded pieces of what gives way
  // to them. True if anything moved.
  bool attend_more_urgent(Urgency than);

  // Something has happened that a sleeping thread may wait for.
  void notify();
  // There is asynchronous work for the progress thread. `waited_for`: its starter is expected to
  // drive it in a moment, so that it is enough if the thread finds it when it looks next.
  void kick(bool waited_for = false);
  // From now on this rank is dead to us: every group with it hears so, and nothing that it sends is
  // looked at. What was sent to it may still arrive. `why` names ranks of the world. Only between polls,
  // or from inside one.
  void cut_off(int rank, const Status& why);
  // Runs `body` while nobody polls.
  void between_polls(const std::function<void(transport::Endpoint&)>& body);

  transport::Endpoint& endpoint() { return *endpoint_; }
  const Config& config() const { return config_; }
  const Log& log() const { return log_; }
  const Clock& clock() const { return *clock_; }
  trace::Recorder& recorder() { return *recorder_; }
  const schedule::Catalog& catalog() const { return *catalog_; }
  trace::Tracer* tracer() { return tracer_.get(); }
  // The GPU that this rank's groups use; null until one of them does.
  std::shared_ptr<DeviceContext> device_context() const {
    std::scoped_lock lock(device_mutex_);
    return device_context_;
  }
  void set_device_context(std::shared_ptr<DeviceContext> context) {
    std::scoped_lock lock(device_mutex_);
    device_context_ = std::move(context);
    has_device_.store(true, std::memory_order_release);
  }
  bool has_device() const { return has_device_.load(std::memory_order_acquire); }
  // Of a group that is in use; null: nobody wants to hear.
  FailureSink* failures() { return raw_failures_; }
  // For as long as it is held; null also when it is going.
  std::shared_ptr<FailureSink> hold_failures() { return failures_.lock(); }
  // A group's failure goes round to all ranks, also to those without a link to this one. Any thread.
  void spread_failure(const ChannelOptions& group, const Status& status);
  // Why the link to a rank of the world is gone; ok while it is there. Not from inside a poll.
  Status why_down(int rank);
  // How often all links were polled, by whomever.
  std::uint64_t polls() const { return polls_.load(std::memory_order_acquire); }
  // Polls before a waiting thread yields.
  long spins() const { return spins_; }
  // By which it yields.
  HomeCore& home() { return home_; }
  // Of the collectives started so far, for the launcher's board. Two groups that count at once may
  // lose one: an exact sum would cost every call a locked instruction.
  void count_call(std::uint64_t bytes) {
    calls_.store(calls() + 1, std::memory_order_relaxed);
    called_bytes_.store(called_bytes() + bytes, std::memory_order_relaxed);
  }
  std::uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  std::uint64_t called_bytes() const { return called_bytes_.load(std::memory_order_relaxed); }
  // A proposal for the id of a new group, made once and by this rank alone: if all members make one
  // and the largest counts, no two groups get the same, also when threads make several at once.
  std::uint32_t next_channel();

 private:
  class Allowance;

  explicit Engine(EngineOptions options);

  // transport::Sink
  std::byte* place(int peer, const transport::Header& header) override;
  void on_message(int peer, const transport::Header& header,
                  const transport::Payload& payload) override;
  void on_sent(std::uint64_t token) override;
  void on_down(int peer, const Status& reason) override;
  void on_up(int peer) override;
  void on_suspicion(int peer) override;

  // News (news.cpp): what goes round where not every pair has a link.
  void hear_news(int from, const transport::Header& header, std::string_view told);
  void pass_on(const transport::Header& header, std::string_view told, int except);
  void hear_of_failure(int from, const transport::Header& header, std::string_view told);
  void hear_of_loss(int from, const transport::Header& header, std::string_view told);
  bool is_first_news(std::uint64_t group, const std::string& told);
  void spread_loss(int peer, const Status& reason);
  void say_farewell();
  void take_for_lost(int peer, const Status& reason);
  bool poll_once(bool before_sleeping = false);
  bool step_channels();
  std::vector<std::shared_ptr<Channel>> channels();
  void progress_loop();
  Nanoseconds time_to_idle();
  // `last_try` is asked just before falling asleep, with the doorbell set and no lock held.
  void doze(Nanoseconds timeout, bool idle, const std::function<bool()>& over,
            const std::function<bool()>& last_try);
  void doze_beside_progress(const std::function<bool()>& over);
  void set_progressing(bool progressing);
  Nanoseconds time_to_sleep(Nanoseconds deadline);
  bool answer_for_ended(int peer, const transport::Header& header,
                        const transport::Payload& payload);
  void refuse_early(int peer);

  std::unique_ptr<transport::Endpoint> endpoint_;
  Config config_;
  Log log_;
  const Clock* clock_;
  std::weak_ptr<FailureSink> failures_;
  FailureSink* raw_failures_;
  std::unique_ptr<trace::Recorder> recorder_;
  std::shared_ptr<const schedule::Catalog> catalog_;
  std::unique_ptr<trace::Tracer> tracer_;
  long spins_ = 0;
  int looks_of_progress_ = 0;  // before the progress thread sleeps over work that is under way
  std::unique_ptr<SpinBudget> spin_budget_;  // of those who drive
  HomeCore home_;

  SpinLock poll_lock_;
  std::atomic<std::uint64_t> polls_{0};
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<std::uint64_t> called_bytes_{0};
  // Under the poll lock:
  std::unordered_map<std::uint32_t, std::weak_ptr<Channel>> by_id_;
  EarlyMessages early_;
  std::unordered_set<std::uint32_t> ended_;  // ids of groups that were here
  std::vector<Status> down_;                 // per world rank: why its link is gone
  std::vector<bool> cut_off_;                // per world rank
  // Where links are made at their first use: who was in groups that have ended here, world ranks that
  // left in good order, and whose loss has gone round.
  std::unordered_map<std::uint32_t, std::vector<int>> members_of_ended_;
  std::vector<bool> left_, lost_by_news_;
  std::vector<bool> suspected_;
  std::mutex news_mutex_;                                         // of the next
  std::unordered_map<std::uint64_t, std::string> failed_groups_;  // by key_of; the status, encoded
  // Of groups that were here and went on without some: for ranks that did not hear of it in time.
  std::unordered_map<std::uint32_t, Opinion> decisions_;

  mutable std::mutex device_mutex_;
  std::shared_ptr<DeviceContext> device_context_;
  std::atomic<bool> has_device_{false};

  std::mutex channels_mutex_;
  std::vector<std::weak_ptr<Channel>> channels_;  // the most urgent first
  std::array<std::atomic<int>, 3> open_{};        // by urgency
  std::atomic<std::uint32_t> proposals_{1};       // of ids; the first group's is 1

  // Sleeping: one thread at a time sleeps on the endpoint, the others on the condition variable.
  std::mutex sleep_mutex_;
  std::condition_variable activity_;
  std::condition_variable work_;  // for the progress thread while it leaves the field to a driver
  std::condition_variable ended_here_;  // for drivers beside the progress thread at work
  std::atomic<int> followers_{0};
  std::atomic<int> beside_{0};
  std::atomic<bool> progressing_{false};
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> sleeping_idle_{false};
  std::atomic<int> drivers_{0};
  // The progress thread looks every kWatch or sooner, busy or not: not every start must wake it.
  std::atomic<bool> watching_{false};
  std::atomic<std::uint64_t> kicks_{0};
  std::uint64_t kicks_seen_ = 0;  // by the progress thread
  int looks_in_vain_ = 0;
  std::atomic<bool> stop_{false};
  std::thread progress_;
};

}  // namespace tutti::engine
