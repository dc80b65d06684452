// tool/run/fleet.hpp - one launcher on each of several hosts, started over a remote shell.
//
//   here    Fleet ── leash: order, signals, input ──▶ ssh a tutti run --leashed     node 0, serves the store
//             │   ◀── ready PORT, output, ended REPORT ──                      │
//             └──── leash, once node 0 is ready ──▶ ssh b tutti run --leashed ─┘ meet as by hand
//
// The nodes are what a user would start by hand (nodes.hpp); this only starts them, gathers what
// they print, and passes signals on. A leash that is cut ends its node: whatever becomes of this
// launcher or of a connection, nothing is left running (leash.hpp).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "core/secret.hpp"
#include "tool/run/keeper.hpp"
#include "tool/run/options.hpp"
#include "tool/run/output.hpp"
#include "tool/run/signals.hpp"
#include "tool/run/spawn.hpp"

namespace tutti::tool {

class Fleet {
 public:
  Fleet(const RunOptions& options, Secret secret, Keeper& keeper, Signals& signals,
        SpawnOptions launch);
  ~Fleet();

  // Returns the exit code: the first failing rank's, else 0.
  int run();
  // After run(): it failed, and is to be tried again.
  bool to_restart() const { return to_restart_; }
  // All nodes' together, after run().
  Json report() const;

 private:
  struct Node {
    Host host;
    pid_t pid = -1;  // of the remote shell; -1 before and after
    Descriptor death;
    Descriptor leash_end;
    std::unique_ptr<OutputSink> leash;
    std::unique_ptr<LineStream> out;
    std::unique_ptr<LineStream> err;
    bool ready = false;
    Json report;
  };

  void start(std::size_t index);
  Status spawn_node(std::size_t index);
  Result<std::string> order_for(std::size_t index) const;
  bool is_here(const Host& host) const;
  void start_others(int port);

  void wait_for_events();
  bool wants_input() const;
  void pass_input_on();
  void handle_signals();
  bool handle_line(std::size_t index, std::string_view line);
  void handle_death(std::size_t index);
  void look_at_clock();
  void fail(std::string sentence, int exit_code);
  void cut_leashes();
  bool running() const;
  int conclude();
  std::string failure_to_restart_after() const;

  const RunOptions& options_;
  Secret secret_;
  Keeper& keeper_;
  Signals& signals_;
  SpawnOptions launch_;
  Sinks sinks_;
  std::string mark_;        // of the nodes' own lines
  std::string rendezvous_;  // complete once node 0 is ready
  std::vector<Node> nodes_;
  std::vector<std::size_t> order_of_ends_;
  bool piece_under_way_ = false;  // of standard input, to rank 0
  bool input_ended_ = false;
  int last_signal_ = 0;
  int signals_taken_ = 0;
  Nanoseconds ready_by_{0};
  std::optional<Nanoseconds> kill_at_;  // the remote shells, after the leashes were cut
  std::string lost_;                    // why the job was ended from here
  int lost_code_ = 0;
  int exit_code_ = 0;
  bool to_restart_ = false;
};

}  // namespace tutti::tool
