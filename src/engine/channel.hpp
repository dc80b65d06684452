// engine/channel.hpp - the engine's side of one group: its queue, its baton, its failure.
//
// Collectives run one after the other, in the order they were started; point-to-point messages
// beside them. Everything that a group does is stepped by whoever holds its *baton*, an atomic
// try-lock: a blocking caller, a waiter, or the progress thread. Messages are put into the inbox by
// whoever polls the links, and looked at by the holder of the baton.
//
// Arrival        no collective ends on any rank before every rank has arrived with the same call.
//                On a stage (all ranks on one host) every rank looks at every other's line. Without
//                one, ranks tell those they exchange messages with, where the data's way does the
//                rest (all_reduce, all_gather …); in rooted collectives and scans they tell all.
// Failure        the first one counts: it is told to every member, the links forget the group's
// memory,
//                and only then do all works end with that status. Later starts end with it at once.
// Thread-safety  start and post: one at a time. drive, fail, health, on_message: any thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/clock.hpp"
#include "core/spin_lock.hpp"
#include "engine/habit.hpp"
#include "engine/launch.hpp"
#include "engine/patience.hpp"
#include "engine/plan.hpp"
#include "engine/point_to_point.hpp"
#include "engine/stage.hpp"
#include "engine/stage_run.hpp"
#include "engine/work_state.hpp"
#include "trace/recorder.hpp"
#include "transport/link.hpp"

namespace tutti::engine {

class Engine;

struct ChannelOptions {
  std::uint32_t id = 0;
  std::string name;
  std::vector<int> members;  // world rank of each group rank
  int rank = 0;              // of this process, in the group
  std::vector<int> host_of;  // host of each group rank
};

class Channel final : public PlanHost, public Driver, public std::enable_shared_from_this<Channel> {
 public:
  Channel(std::shared_ptr<Engine> engine, ChannelOptions options);

  const ChannelOptions& options() const { return options_; }
  int size() const { return static_cast<int>(options_.members.size()); }

  // From the next collective on, ranks meet there. To be called by all of them, between the same
  // two collectives.
  void set_stage(std::unique_ptr<Stage> stage);
  bool has_stage() const { return stage_ != nullptr; }

  // Runs a collective to its end in this thread. On a stage, while nothing else is under way, that
  // costs no allocation, no lock but the baton and no system call.
  // `interrupted`, where there is one, is asked now and then while it waits; true ends the group.
  Status run(const Launch& launch, bool (*interrupted)() = nullptr);
  // Puts a collective into the queue. `caller_drives`: the progress thread need not bother.
  std::shared_ptr<WorkState> start(Launch launch, bool caller_drives);
  std::shared_ptr<WorkState> post(std::vector<Posting> postings, bool caller_drives);

  // Waits for a work that the caller drives.
  Status finish(WorkState& work, bool (*interrupted)());

  void drive(const WorkState& work, Nanoseconds timeout) override;
  // Steps once if nobody else does. True if anything moved.
  bool try_step();
  // Whether there is anything that the progress thread should step for: asynchronous works, and
  // nobody who drives them.
  bool busy() const {
    return busy_.load(std::memory_order_seq_cst) > 0 &&
           driven_.load(std::memory_order_seq_cst) == 0;
  }
  Habit& habit() { return habit_; }
  Nanoseconds next_deadline() const { return Nanoseconds(next_deadline_.load()); }

  // Ends the group with `status`, and tells the other members if asked to.
  void fail(const Status& status, bool tell_others);
  Status health() const;

  // From inside a poll, in order of arrival. `peer` is a group rank.
  std::byte* place(int peer, const transport::Header& header);
  void on_message(int peer, const transport::Header& header, const transport::Payload& payload);
  void on_down(int peer, const Status& reason);

  // Ends what is still under way with `status`, here only, as no failure of the group: its owner
  // goes.
  void end(const Status& status);
  // Sends a failure to the other members.
  void tell(const Status& status);
  // Leaves in good order: later messages of this channel are nobody's.
  void say_goodbye();
  int group_rank(int world_rank) const;

  // PlanHost
  transport::Link& link_to(int peer) override;
  bool has_arrived(int peer) const override;
  std::uint32_t channel() const override { return options_.id; }
  trace::Tracer* tracer() override;

 private:
  struct Queued {
    std::unique_ptr<const Launch> owned;  // empty: the caller waits and keeps it
    const Launch* lent = nullptr;
    std::uint64_t sequence = 0;
    Nanoseconds queued{0};
    Nanoseconds begun{0};  // only when there is a trace
    Nanoseconds deadline = Nanoseconds::max();
    std::shared_ptr<WorkState> work;
    bool counted = false;  // in busy_

    const Launch& launch() const { return *lent; }
  };
  // A program made ready: for the stage if it fits there, else for messages.
  struct Ready {
    std::unique_ptr<Plan> plan;
    std::unique_ptr<StagePlan> staged;
  };
  struct Incoming {
    int peer = 0;
    transport::Header header;
    Segment segment;
  };
  struct Announced {  // an arrival that was not looked at yet
    std::uint64_t sequence = 0;
    Fingerprint call;
  };
  struct Peer {
    std::deque<Announced> announced;
    std::uint64_t arrived = 0;   // the last collective at which it was seen with the same call
    bool left = false;           // in good order
    bool lost = false;           // died, or the link to it broke
    std::string report;          // its answer to our query
    std::uint64_t reported = 0;  // the collective at which it said to be
  };
  struct Completion {
    std::shared_ptr<WorkState> work;
    Status status;
    Received received;
  };

  std::shared_ptr<WorkState> enqueue(Queued queued, bool caller_drives);
  void leave_to_progress(Nanoseconds now);
  bool step();
  bool drain_inbox();
  void handle(Incoming& message);
  void handle_arrive(int peer, std::uint64_t sequence, const Fingerprint& theirs);
  void handle_data(Incoming& message);
  bool judge_departed();
  void fail_without(int peer);
  void take_postings();
  bool run_collectives();
  bool begin_next();
  void begin(Queued queued, Ready& ready);
  bool begin_at_once(const Launch& launch);
  bool watch_stage();
  std::shared_ptr<WorkState> hand_over();
  void note_at_once();
  void end_at_once();
  bool step_current();
  bool current_done() const;
  void look_at_lines();
  void choose_company();
  void announce();
  void look_at_announced();
  void compare(int peer, std::uint64_t sequence, const Fingerprint& theirs);
  void fail_mismatch(int peer, std::uint64_t sequence, const Fingerprint& mine,
                     const Fingerprint& theirs);
  bool everyone_arrived() const;
  bool check_deadline();
  std::vector<int> suspects() const;
  void ask_suspects();
  std::vector<int> at_fault() const;
  Status late_status() const;
  void answer_query(int peer);
  void update_deadline();
  void tear_down();
  Ready& ready_for(const Launch& launch);
  std::unique_ptr<StagePlan> stage_plan_for(const Launch& launch) const;
  Result<schedule::Program> program_for(const Launch& launch, int rank) const;
  void finish_current();
  void complete_all();
  trace::Record record_of(trace::Event event, const Launch& launch, std::uint64_t sequence) const;
  void tell_board(const Launch& launch, std::uint64_t sequence, bool running);
  void note(trace::Event event, const Queued& queued, const Status& status);
  void trace_collective(const Queued& queued, const Status& status);
  std::string where(int peer) const;

  std::shared_ptr<Engine> engine_;
  ChannelOptions options_;
  SpinLock baton_;
  std::atomic<int> busy_{0};    // asynchronous works that are not done
  std::atomic<int> driven_{0};  // threads that wait here
  Habit habit_;
  std::atomic<std::int64_t> next_deadline_{Nanoseconds::max().count()};

  // Handed over from any thread to the holder of the baton.
  mutable SpinLock inbox_lock_;
  std::vector<Incoming> inbox_;
  std::deque<Queued> queue_;
  std::vector<Posting> postings_;
  std::atomic<std::size_t> queued_{0};  // in queue_
  std::atomic<std::uint64_t> next_sequence_{1};
  Fingerprint last_call_;  // for those who ask what we are doing
  std::atomic<std::uint64_t> last_sequence_{0};
  std::uint32_t last_print_ = 0;
  std::atomic<bool> last_running_{false};
  std::atomic<std::uint32_t> open_messages_{0};
  Status failure_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> has_news_{false};  // inbox, postings or failure want attention

  // Owned by the holder of the baton.
  std::vector<Incoming> draining_;
  std::vector<Peer> peers_;
  std::unordered_map<std::uint64_t, Ready> plans_;
  std::uint64_t last_key_ = ~std::uint64_t{0};  // and what it leads to: calls repeat
  Ready* last_ready_ = nullptr;
  Ready* ready_ = nullptr;  // of current_
  std::optional<Queued> current_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<StageRun> stage_run_;
  std::unique_ptr<Patience> patience_;  // of a caller that watches the stage
  struct AtOnce {                       // a blocking call, as long as its caller steps it itself
    const Launch* launch = nullptr;
    std::uint64_t sequence = 0;
    std::uint64_t began = 0;      // in ticks
    Nanoseconds traced_from{0};   // only when there is a trace
    std::uint64_t last_told = 0;  // when the board heard of one
    bool told = false;            //   and whether it heard of this one
    trace::Record record;
    std::uint32_t record_print = 0;  // of the call that `record` tells of, when it has no name
    trace::Tickets tickets;
  };
  AtOnce at_once_;
  bool arrivals_held_ = false;  // told to the links, which may wait for more to send
  std::vector<int>
      company_;  // ranks that are told of current_, and whose arrival it waits for; sorted
  std::deque<Incoming> early_;  // data of collectives that were not begun yet
  std::vector<Fingerprint> history_;
  PointToPoint point_to_point_;
  std::vector<Completion> completions_;
  bool torn_down_ = false;
  bool someone_departed_ = false;
  std::uint64_t departed_at_ = 0;  // in polls of the engine
  Nanoseconds asked_until_{0};     // when not zero: queries are out
  std::vector<int> suspects_;      // who was asked
};

}  // namespace tutti::engine
