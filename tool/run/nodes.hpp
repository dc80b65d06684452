// tool/run/nodes.hpp - where the launchers of a job meet: one on one host, several on several.
//
// Node 0's launcher serves the store. The launchers exchange how many ranks each has, so hosts may
// have different numbers of them; ranks are numbered node by node. Afterwards a thread tells the
// others of a failure here, learns of one there, and notices a launcher that fell silent. Keys:
//
//   launch/restart   "restart max_restarts"        by node 0; the only key that all restarts share: the
//                                                  others begin with "restart/N/" from the first on
//   launch/node/K    "nodes ranks host token"      claimed once; nodes 0: its user stopped it
//   launch/world     "job master_port"             by node 0
//   launch/beat/K    counter                       once per round of the thread
//   launch/ended     counter of ranks that have ended
//   launch/ended/I   "rank wait_status goes_on\nsentence", the I-th of them
//   launch/verdict   "exit_code final\nsentence"   the first one stays
//   launch/left      counter of launchers whose ranks have ended
//   launch/gone      counter of launchers that need the store no more
//
// Thread-safety  everything but the thread's own work belongs to the launcher's main thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/sockets.hpp"
#include "tool/run/environment.hpp"
#include "tool/run/options.hpp"
#include "tutti/status.hpp"
#include "tutti/store.hpp"

namespace tutti::tool {

class Rendezvous {
 public:
  // Serves or connects, and waits for all nodes: at most options.join_timeout, or until
  // `interrupted` says so (Code::aborted). `former`: of the attempt that failed, whose store stays.
  static Result<std::unique_ptr<Rendezvous>> meet(const RunOptions& options,
                                                  const std::string& secret,
                                                  const std::function<bool()>& interrupted,
                                                  std::unique_ptr<Rendezvous> former = nullptr);
  ~Rendezvous();

  const JobWorld& world() const { return world_; }
  // How long a launcher may be silent that is not taken for dead (TUTTI_DEAD_AFTER).
  Nanoseconds dead_after() const { return dead_after_; }
  // Becomes readable when there may be something to take, or over() may have changed.
  int descriptor() const { return news_.get(); }
  void acknowledge();

  struct Failure {
    int exit_code = 1;
    std::string sentence;
    bool final = false;  // another attempt would not help, or is not wanted
  };
  // What another node reported, once.
  std::optional<Failure> take_failure();

  struct EndedRank {
    int rank = 0;
    int wait_status = 0;
    bool goes_on = false;  // it failed, and the ranks of its node can do without it
    std::string sentence;  // how it ended, for people
  };
  // Tells the other nodes that a rank of this one has ended, well or not.
  void tell_of(EndedRank ended);
  // Ranks of any node that have ended since the last call.
  std::vector<EndedRank> take_ended();

  // Every start of a rank or of the job after a failure counts: whether there may be another one.
  bool may_start_again() const { return next_restart() <= world_.max_restarts; }
  int next_restart() const { return world_.restart + returns_ + 1; }
  // A rank is started again, alone.
  void count_return() { ++returns_; }

  // Tells the other nodes; only the first report of a job counts.
  void report(const Failure& failure);
  // This node's ranks have ended.
  void leave();
  // Whoever meets again need not wait for this node.
  void refuse_restart();
  // All nodes' ranks have.
  bool over();

 private:
  Rendezvous() = default;
  Status serve_here(const RunOptions& options, const std::string& secret);
  Status reserve_master_port();
  Status join(const RunOptions& options, const std::string& secret,
              const std::function<bool()>& interrupted);
  Status find_attempt(int restart, Nanoseconds deadline, const std::function<bool()>& interrupted);
  Result<bool> claim_place(const RunOptions& options);
  Status learn_nodes(const RunOptions& options, Nanoseconds deadline,
                     const std::function<bool()>& interrupted);
  Status learn_world(Nanoseconds deadline, const std::function<bool()>& interrupted);

  void watch();  // the thread's work
  Status round();
  Status exchange_ended();
  Status look_for_silence();
  void say_goodbye();
  Failure loss_of_store(const Status& status) const;
  std::string silence_of(std::size_t node) const;
  void publish(std::optional<Failure> failure, bool over);

  JobWorld world_;
  int returns_ = 0;  // of ranks in this attempt
  std::string address_;
  Nanoseconds dead_after_{0};
  std::unique_ptr<StoreServer> server_;
  std::shared_ptr<Store> common_store_;
  std::shared_ptr<Store> store_;  // the same, with the keys of this attempt
  Descriptor master_socket_;      // bound, not listening: keeps the port for rank 0's program
  Descriptor news_;
  std::vector<std::string> hosts_;  // of each node

  std::thread thread_;
  std::mutex mutex_;  // guards what follows
  bool stop_ = false;
  bool leaving_ = false;
  bool over_ = false;
  bool told_ = false;
  std::optional<Failure> to_report_;
  std::optional<Failure> failure_;
  std::vector<EndedRank> ended_here_;
  std::vector<EndedRank> ended_anywhere_;

  // The thread's own.
  struct Pulse {
    std::int64_t beats = 0;
    Nanoseconds silence{0};
  };
  std::vector<Pulse> pulses_;
  Nanoseconds looked_at_{0};
  int silent_ = 0;  // nodes that are
  bool left_ = false;
  std::int64_t ended_seen_ = 0;
};

}  // namespace tutti::tool
