// group/world.hpp - everything that the groups of one rank share: engine, links, recorder, board.
//
// Made once per Group::create; every group split from that one holds it. The last one to go takes
// it down: progress thread, sockets, windows, descriptors.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/process_hooks.hpp"
#include "engine/engine.hpp"
#include "group/launcher_board.hpp"
#include "tuner/machine.hpp"
#include "tutti/group.hpp"

namespace tutti::group {

class World final : public engine::FailureSink {
 public:
  // Meets the others and links up. `server` is kept as long as the world. `has_grown`: among the others
  // are ranks that came later.
  static Result<std::shared_ptr<World>> create(std::shared_ptr<Store> store,
                                               const GroupOptions& options, Config config,
                                               std::unique_ptr<StoreServer> server, bool has_grown);
  ~World() override;

  engine::Engine& engine() { return *engine_; }
  const std::vector<int>& host_of() const { return host_of_; }
  // What operations cost; the same on all ranks. Built in, until the ranks have agreed on another,
  // which they do before the first group is handed out, if `tunes`.
  bool tunes() const { return tunes_; }
  const std::shared_ptr<const tuner::Machine>& machine() const { return machine_; }
  // The machine of each rank, where ranks have said; empty: every host is one.
  const std::vector<int>& machine_of() const { return machine_of_; }
  void set_machine(std::shared_ptr<const tuner::Machine> machine, std::vector<int> machine_of) {
    machine_ = std::move(machine);
    machine_of_ = std::move(machine_of);
  }
  // The rank of the switch that folds, behind the last; -1: there is none.
  int switch_rank() const {
    return has_switch_ && size_ <= engine::kMostSwitchedRanks ? size_ : -1;
  }
  // What an all_reduce by it takes, by bytes, as all ranks measured; null: they did not.
  const std::shared_ptr<const cost::Curve>& switch_cost() const { return switch_cost_; }
  void set_switch_cost(cost::Curve cost) {
    switch_cost_ = std::make_shared<const cost::Curve>(std::move(cost));
  }
  // True in a child of fork(), where nothing of this may be used.
  bool is_foreign() const { return fork_guard_.crossed(); }
  std::string describe() const;
  // What the program calls some of the ranks, by their number in this world.
  void label(const std::map<int, std::string>& labels);
  // To the launcher, once there is a group that a lost rank can come back to.
  void say_takes_back();

  // engine::FailureSink
  void on_failure(const engine::Channel& channel, const Status& status) override;
  void report_failure(const engine::Channel& channel, const Status& status) override;
  void on_activity(const engine::Activity& activity) override;

 private:
  World() = default;
  int write_dump(std::string_view reason) const noexcept;
  static void dump_on_signal(void* self) noexcept;
  void note(const BoardNote& note);
  void note_failure(const std::string& group, const Status& status, int culprit);

  std::shared_ptr<engine::Engine> engine_;
  std::vector<int> host_of_;
  bool tunes_ = false;
  std::shared_ptr<const tuner::Machine> machine_;
  std::vector<int> machine_of_;
  bool has_switch_ = false;
  std::shared_ptr<const cost::Curve> switch_cost_;
  std::unique_ptr<StoreServer> server_;
  std::optional<LauncherBoard> board_;
  std::mutex labels_mutex_;
  std::vector<std::string> labels_;  // by rank
  int rank_ = 0;
  int size_ = 0;
  std::string dump_path_;  // of the flight recorder; empty: stderr
  ForkGuard fork_guard_;
  Hook dump_hook_;
};

}  // namespace tutti::group
