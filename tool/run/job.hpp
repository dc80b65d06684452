// tool/run/job.hpp - the ranks of this host, from their start to the last line they print.
//
// One thread, one poll loop: signals, deaths (in the order in which they happened), output, input,
// news from other nodes. Whatever way the loop is left, no rank of this host is alive afterwards.
#pragma once

#include <poll.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/board.hpp"
#include "core/json.hpp"
#include "tool/run/culprit.hpp"
#include "tool/run/input.hpp"
#include "tool/run/job_socket.hpp"
#include "tool/run/keeper.hpp"
#include "tool/run/leash.hpp"
#include "tool/run/memory_kills.hpp"
#include "tool/run/nodes.hpp"
#include "tool/run/options.hpp"
#include "tool/run/output.hpp"
#include "tool/run/signals.hpp"
#include "tool/run/spawn.hpp"
#include "tool/run/verdict.hpp"

namespace tutti::tool {

class Job {
 public:
  // `leash`: null where the user started this launcher.
  Job(const RunOptions& options, Rendezvous& rendezvous, Keeper& keeper, Signals& signals,
      Leash* leash)
      : options_(options),
        rendezvous_(rendezvous),
        keeper_(keeper),
        signals_(signals),
        leash_(leash),
        escalation_(options.grace),
        sinks_(Sinks::of_this_process()) {}
  ~Job();

  // Opens the socket of `tutti show job`. A job that cannot be looked at runs all the same.
  void let_look(const std::string& path);
  // Starts every rank. One that cannot be started is a failure that run() reports.
  void start(SpawnOptions launch, const std::string& secret);
  // Returns the exit code: the first failing rank's, else 0.
  int run();
  // After run(): it failed, and whoever started this launcher is to try again.
  bool to_restart() const { return to_restart_; }
  // How it went, after run() (docs/formats/run.md).
  Json report() const;

 private:
  struct Rank {
    int rank = 0;
    int returns = 0;  // how often it was started again
    pid_t pid = -1;
    Descriptor death;
    std::unique_ptr<LineStream> out;
    std::unique_ptr<LineStream> err;
    bool alive = false;
    Ending ending;  // when it is not
  };

  // A process of the launcher's own beside the ranks; how it ends is no matter of the job.
  struct Companion {
    pid_t pid = -1;
    std::unique_ptr<LineStream> out;
    std::unique_ptr<LineStream> err;
  };

  Status start_ranks(const std::string& secret);
  Status start_switch();
  std::vector<LineStream*> streams() const;
  Status start_rank(Rank& rank);
  Result<Descriptor> open_log(const Rank& rank, const char* ending) const;
  std::string log_path(int rank, const char* ending) const;
  std::string prefix_of(int rank) const;

  void wait_for_events();
  std::string snapshot() const;
  void handle_signals();
  void handle_signal(int signal);
  void handle_leash();
  void pass_input_on();
  void handle_deaths();
  void handle_death(Rank& rank);
  void handle_news();
  int left_in_job() const;
  int not_lost() const;  // they may have ended
  bool survivors_go_on() const;
  bool is_here(int rank) const;
  void go_on_without(Rendezvous::EndedRank lost);
  bool is_waiting(int rank) const;
  bool may_return(const Rank& rank) const;
  void start_again(Rank& rank);
  bool nobody_ended_well() const;
  void judge();
  void escalate();
  void pump_output();
  void look_for_lost_output();
  bool finished();
  bool streams_open() const;
  void send(int signal);
  int conclude();
  bool failed_here() const;
  int say_verdict() const;
  bool can_restart() const;
  int announce_restart(const Rendezvous::Failure& failure);

  const RunOptions& options_;
  Rendezvous& rendezvous_;
  Keeper& keeper_;
  Signals& signals_;
  Leash* leash_;
  Escalation escalation_;
  SpawnOptions launch_;
  Sinks sinks_;
  std::optional<Input> input_;
  std::optional<Board> board_;
  std::optional<JobSocket> socket_;
  Descriptor secret_;
  Descriptor deaths_;  // an epoll of pidfds: it keeps the order of events
  std::vector<Rank> ranks_;
  std::optional<Companion> switch_;
  std::size_t alive_ = 0;
  Nanoseconds began_{0};
  MemoryKills memory_kills_;

  std::vector<Ending> failures_;  // of ranks here, in order; none after a signal to them
  std::vector<Rendezvous::EndedRank> losses_;  // of ranks anywhere, that the job could do without
  std::vector<int> returned_;                  // ranks that were started again
  std::optional<Nanoseconds> judge_at_;        // at the latest
  std::optional<Ending> first_failure_;
  std::optional<Rendezvous::Failure> own_report_;
  std::optional<Rendezvous::Failure> job_failure_;  // the one that all nodes agree on
  std::optional<Nanoseconds> give_up_at_;           // on streams and on other nodes
  std::optional<Nanoseconds> remind_at_;            // that ranks go on after a signal
  int last_signal_ = 0;
  bool hurried_ = false;  // ranks got a signal because others failed
  bool killed_ = false;   // ranks got SIGKILL from here
  Status lost_output_;
  bool left_ = false;
  bool quit_ = false;
  std::optional<Nanoseconds> cut_at_;  // the leash
  bool feeding_ = false;               // a piece of input that came over it is on its way
  int exit_code_ = 0;
  bool to_restart_ = false;
  Nanoseconds took_{0};
};

}  // namespace tutti::tool
