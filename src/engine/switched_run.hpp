// engine/switched_run.hpp - runs a collective by a switch that folds, and goes on without it if it is lost.
//
//      fold:    ranks ──▶ switch ──▶ ranks       the schedule in_network, a round at a time
//      settle:  a barrier among the ranks        everyone has this round's result
//      instead: the launch's second choice       from the first round that not all have; then for good
//
// Whoever loses the switch before it has its result tells all others, and has not come to the barrier: so no
// rank is through with that round, and all do it again. In place the results of a round lie in memory of the
// run's own until the barrier is over: the inputs are still there for the second choice.
//
// Thread-safety  none: whoever holds the group's baton steps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/by_message.hpp"
#include "engine/message_run.hpp"
#include "engine/stages.hpp"
#include "engine/uplink.hpp"
#include "schedule/catalog.hpp"

namespace tutti::engine {

class SwitchedRun final : public ByMessage {
 public:
  // `request`: of the call by the switch. All are lent; the hosts that it names, too.
  SwitchedRun(GroupView& group, Uplink& uplink, const schedule::Catalog& catalog,
              const schedule::Request& request, std::size_t segment_bytes);

  void begin(const Launch& launch, std::uint64_t sequence) override;
  bool step() override;
  bool done() const override { return over_ && group_.all_have_arrived(); }
  std::vector<int> waiting_for() const override { return run_->waiting_for(); }
  void abandon() override;
  Status failure() const override { return failure_.ok() ? run_->failure() : failure_; }

  const Company& company() const override { return company_; }
  void deliver(int peer, const transport::Header& header, Segment segment) override;
  std::byte* place(int peer, const transport::Header& header) const override;

 private:
  std::unique_ptr<MessageRun> make(Collective collective, Algorithm algorithm, int shots,
                                   bool in_place) const;
  MessageRun& second_choice(const Launch& launch);
  Launch part(std::size_t begin, std::size_t end) const;
  void begin_round(std::size_t round);
  void enter(Stage stage, MessageRun& run);
  void settle();
  void go_on();
  void tell_loss();
  void do_instead();

  GroupView& group_;
  Uplink& uplink_;
  const schedule::Catalog& catalog_;
  schedule::Request request_;
  std::size_t segment_bytes_;
  std::unique_ptr<MessageRun> fold_;
  std::unique_ptr<MessageRun> settle_;
  std::map<std::pair<Algorithm, int>, std::unique_ptr<MessageRun>> instead_;

  const Launch* launch_ = nullptr;
  std::uint64_t sequence_ = 0;
  Company company_;
  std::size_t bytes_ = 0;  // of the input
  std::size_t round_ = 0;  // the one under way
  Stage stage_ = Stage::fold;
  bool over_ = false;
  MessageRun* run_ = nullptr;      // of this stage
  Launch part_;                    // what it runs
  Launch barrier_;                 // of settling
  std::vector<std::byte> shadow_;  // results in place, until they are everyone's
  std::vector<EarlySegment> early_;
  // The first round that some rank has no result of; none: as far as is known here.
  std::size_t lost_from_ = ~std::size_t{0};
  Status failure_;
};

}  // namespace tutti::engine
