// engine/channel.hpp - the engine's side of one group: its queue, its baton, its end.
//
// Collectives run one after the other, in the order they were started; point-to-point messages
// beside them. Everything that a group does is stepped by whoever holds its *baton*, an atomic
// try-lock: a blocking caller, a waiter, or the progress thread. Messages are put into the inbox by
// whoever polls the links, and looked at by the holder of the baton.
//
//   start, run ─▶ Inbox ─▶ Operation ─▶ RunCache ─▶ Run: step, step, …     CallLog tells of it
//                             └ held while Dependencies are not done (channel_held.cpp)
//   on_message ─▶ Inbox ─▶ Arrivals (who came, with which call), Absences (who is gone or late),
//                          MessageRun, PointToPoint
//
// Failure        the first one counts: it is told to every member, the links forget the group's
//                memory, and only then do all works end with that status. Later starts end with it at
//                once.
// Thread-safety  start and post: one at a time. drive, fail, health, on_message: any thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/exhausted.hpp"
#include "core/spin_lock.hpp"
#include "engine/absences.hpp"
#include "engine/arrivals.hpp"
#include "engine/call_log.hpp"
#include "engine/dependencies.hpp"
#include "engine/group_view.hpp"
#include "engine/host_memory.hpp"
#include "engine/inbox.hpp"
#include "engine/launch.hpp"
#include "engine/launched.hpp"
#include "engine/meetings.hpp"
#include "engine/members.hpp"
#include "engine/operation.hpp"
#include "engine/point_to_point.hpp"
#include "engine/run_cache.hpp"
#include "engine/spin_budget.hpp"
#include "engine/survivors.hpp"
#include "engine/uplink.hpp"
#include "engine/wait_pattern.hpp"
#include "engine/work_state.hpp"

namespace tutti::engine {

class Engine;

class Channel final : public GroupView,
                      public Driver,
                      public std::enable_shared_from_this<Channel> {
 public:
  Channel(std::shared_ptr<Engine> engine, ChannelOptions options);

  const ChannelOptions& options() const { return members_.options(); }
  int size() const { return members_.size(); }
  Urgency urgency() const { return options().urgency; }
  // size(): the switch that folds for it.
  int group_rank(int world_rank) const { return members_.group_rank(world_rank); }
  std::vector<int> everyone() const { return members_.everyone(); }

  // From the next collective on, ranks meet there. To be called by all of them, between the same
  // two collectives.
  void meet_in(std::unique_ptr<HostMemory> memory);
  // From the next collective on, device memory can be passed. To be called likewise.
  void use_device(std::shared_ptr<DeviceSide> side);
  const std::shared_ptr<DeviceSide>& device() const { return launched_.side(); }

  // schedule::Request::walk of what follows. To be called by all of them, before any collective that goes along it.
  void set_walk(std::vector<int> walk) { members_.set_walk(std::move(walk)); }

  // Between the two, collectives are tutti's own, and take no number that callers see. All ranks end
  // it after the same collective.
  void begin_set_up();
  void end_set_up();

  // Runs a collective to its end in this thread. Where ranks meet in memory, and nothing else is
  // under way, that costs no allocation, no lock but the baton and no system call.
  // `interrupted`, where there is one, is asked now and then while it waits; true ends the group.
  Status run(const Launch& launch, bool (*interrupted)() = nullptr);
  // Puts a collective into the queue. `caller_drives`: the progress thread need not bother.
  std::shared_ptr<WorkState> start(Launch launch, bool caller_drives);
  // The same on device memory, whose stream is being captured: nothing runs now.
  Status capture(const Launch& launch);
  // `after`: works that they wait for, all of them; null: none.
  std::shared_ptr<WorkState> post(std::vector<Posting> postings, bool caller_drives,
                                  std::shared_ptr<Dependencies> after = nullptr);
  // Waits for a work that the caller drives.
  Status finish(WorkState& work, bool (*interrupted)());

  void drive(const WorkState& work, Nanoseconds timeout) override;
  void drive_to_device(const WorkState& work) override;
  bool help() override;
  bool goes_on_alone() const override;
  const std::string& group_name() const override { return members_.name(); }
  // Steps once if nobody else does. True if anything moved.
  bool try_step();
  // Moves on what its operations wait for in other groups, likewise.
  bool step_awaited() { return awaited_.help(); }
  // Whether there is anything that the progress thread should step for: asynchronous works, and
  // nobody who drives them.
  bool busy() const {
    return busy_.load(std::memory_order_seq_cst) > 0 &&
           driven_.load(std::memory_order_seq_cst) == 0;
  }
  WaitPattern& wait_pattern() { return wait_pattern_; }
  Nanoseconds next_deadline() const { return Nanoseconds(next_deadline_.load()); }
  // Whether a message waits for the device alone, and has not done so for long: nobody wakes a sleeper then.
  bool awaits_device_soon() const;

  // Ends the group with `status`, and tells the other members if asked to.
  void fail(const Status& status, bool tell_others);
  Status health() const { return inbox_.failure(); }
  // Between the two, a group that is being made from this one fails with it: a rank that has heard of
  // the failure does not come to the child any more.
  void bring_up(const std::shared_ptr<Channel>& child);
  void let_go(const Channel& child);
  // What members say to each other while they make a group from a list.
  Meetings& meetings() { return meetings_; }
  void say_at_meeting(int peer, std::uint32_t tag, const MeetingNote& note);
  // Who goes on after this group's failure.
  Survivors& survivors() { return survivors_; }
  // Why this rank does not: the others took it for dead.
  Status exclusion() const;
  // Ends what is still under way with `status`, here only, as no failure of the group: its owner
  // goes. A failure that came before is reported by then.
  void end(const Status& status);
  // Sends a failure to the other members.
  void tell(const Status& status);
  // Leaves in good order: later messages of this channel are nobody's.
  void say_goodbye();

  // From inside a poll, in order of arrival. `peer` is a group rank.
  std::byte* place(int peer, const transport::Header& header);
  void on_message(int peer, const transport::Header& header, const transport::Payload& payload);
  void on_down(int peer, const Status& reason);

  // GroupView
  transport::Link& link_to(int peer) override { return members_.link_to(peer); }
  bool has_arrived(int peer) const override {
    if (peer == size()) return current_ && uplink_.has_come(current_->sequence);
    return current_ && arrivals_.has_arrived(peer);
  }
  bool all_have_arrived() const override { return arrivals_.all_have_arrived(); }
  void precede_data(int peer) override { arrivals_.announce_to(peer); }
  std::uint32_t channel() const override { return members_.channel(); }
  int world_rank(int peer) const override { return members_.world_rank(peer); }
  std::string where(int peer) const override { return members_.where(peer); }
  trace::Tracer* tracer() override;

 private:
  struct Completion {
    std::shared_ptr<WorkState> work;
    Status status;
    Received received;
  };

  // Starting.
  std::shared_ptr<WorkState> enqueue(Operation operation, bool caller_drives);
  void leave_to_progress(Nanoseconds now);
  bool begin_at_once(const Launch& launch);
  bool watch();
  std::shared_ptr<WorkState> hand_over();
  void await(const std::shared_ptr<Dependencies>& works);

  // Stepping, in the hands of the baton's holder.
  bool step();
  // Where memory runs out in the middle of something, the group is over: half of it was done.
  template <class Body>
  Status with_baton(const Body& body) {
    const Status status = or_exhausted(body);
    if (!status.ok()) fail(status, true);
    return status;
  }
  void give_back(const Launch& launch);
  bool drain_inbox();
  bool run_operations();
  bool begin_next();
  bool may_begin(Operation& operation);
  bool fails_with(const Dependencies& works, const Operation& operation);
  Status look_for_held() const;
  static Nanoseconds end_of_patience(const Operation& held);
  void begin_by_message();
  bool step_current();
  void finish_current();
  bool step_device();
  void look_for_device_trouble();
  void note_device_mismatch(const Operation& operation, int peer);
  void end(Operation& operation, const Status& status);
  void leave_queue(Operation& operation, const Status& status);
  void handle(Incoming& message);
  void handle_data(Incoming& message);
  void handle_switch(Incoming& message);
  void let_go_of_switch();
  void tell_of_switch();
  bool keep_early(const Incoming& message);
  void refuse(const Incoming& message);
  void answer(int peer);
  bool may_have_failed(int peer) const;
  void fail_as_run_says();
  void hear_of_survivors(int peer, std::string_view opinion);
  bool settle_dispute();
  bool look_for_absent();
  bool is_time_to_ask_device();
  Status look_for_late(const Operation& operation, bool& asked);
  bool look_for_other_kind(const Operation& operation);
  void hear_of_device_memory(int peer, const transport::Header& header,
                             const transport::Payload& payload);
  void update_deadline();
  void complete_all();
  void end_failed();
  void await_report() const;
  void end_in_hand(const Status& status);
  void tear_down();
  void release(const Incoming& message);
  template <class Messages>
  void release_all(Messages& messages);
  bool is_mapped() const {
    return prepared_ && prepared_->on_host && prepared_->on_host->was_mapped();
  }
  // What ran last may be gone by now.
  bool is_on_device() const { return current_ && prepared_ && prepared_->on_device; }
  const Operation* watched() const;
  std::unique_ptr<Attendance> attendance_of(const Operation& operation) const;

  std::shared_ptr<Engine> engine_;
  Members members_;
  SpinLock baton_;
  Inbox inbox_;
  Meetings meetings_;
  Survivors survivors_;
  std::atomic<int> busy_{0};    // asynchronous works that are not done
  std::atomic<int> driven_{0};  // threads that wait here
  AwaitedWorks awaited_;
  WaitPattern wait_pattern_;
  std::atomic<std::int64_t> next_deadline_{Nanoseconds::max().count()};
  std::atomic<std::int64_t> device_since_{
      Nanoseconds::max().count()};  // max: no message waits for it
  // Who writes about the group's failure, as long as it does.
  std::atomic<std::thread::id> reporter_{};

  // Owned by the holder of the baton.
  std::unique_ptr<HostMemory> memory_;  // null: ranks do not all share a host
  SpinBudget spin_budget_;              // of a caller that watches the memory
  Arrivals arrivals_;
  Absences absences_;
  CallLog log_;
  Uplink uplink_;
  RunCache runs_;
  PointToPoint point_to_point_;
  std::optional<Operation> held_;  // the next one, while it waits for other works
  std::optional<Operation> current_;
  PreparedRun* prepared_ = nullptr;  // of current_; null: it could not be made
  Launched launched_;
  Nanoseconds device_asked_{0};  // when it was last asked whether it is well
  std::deque<Incoming> early_;   // data of collectives that were not begun yet,
  std::vector<int> early_of_;    //   how many of each peer
  std::vector<Incoming> draining_;
  std::vector<Posting> posting_;
  std::vector<Completion> completions_;
  Inbox::Rest rest_;  // of a group that has failed
  bool torn_down_ = false;
  bool leaves_ = false;  // in good order: nothing had failed

  std::mutex children_mutex_;
  std::vector<std::weak_ptr<Channel>> children_;  // that are being made
};

}  // namespace tutti::engine
