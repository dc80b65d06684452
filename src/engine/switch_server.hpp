// engine/switch_server.hpp - the switch's side of collectives by a switch: for every group that introduces
// itself it runs the program of rank n.
//
//   meet ─▶ SwitchedGroup: members, order        arrive, data ─▶ its call: a MessageRun per round ─▶ data
//
// What is kept of a group is a round's result, and of each rank what others have not sent yet: at most a
// round, because no rank begins the next one before all have this one's result.
//
// Thread-safety  one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/log.hpp"
#include "engine/group_view.hpp"
#include "engine/message_run.hpp"
#include "engine/stages.hpp"
#include "engine/uplink.hpp"
#include "transport/endpoint.hpp"
#include "tutti/config.hpp"

namespace tutti::engine {

// One group, as its switch sees it. Peers are its members' numbers.
class SwitchedGroup final : public GroupView {
 public:
  SwitchedGroup(transport::Endpoint& endpoint, std::uint32_t channel, Introduction said,
                std::size_t segment_bytes);

  const std::vector<int>& members() const { return said_.members; }
  int number_of_member(int world_rank) const;
  void on_arrive(int peer, std::uint64_t sequence, const Fingerprint& call);
  void on_data(int peer, const transport::Header& header, Segment segment);
  std::byte* place(int peer, const transport::Header& header) const;
  // True if anything moved. A failure ends the group.
  bool step();
  Status failure() const { return failure_; }
  // It is to be dismissed after this poll.
  void leave() { left_ = true; }
  bool is_left() const { return left_ || !failure_.ok(); }
  // Lets go of all that it holds.
  void abandon();

  // GroupView
  transport::Link& link_to(int peer) override { return *endpoint_.link(world_rank(peer)); }
  bool has_arrived(int peer) const override {
    return call_ && come_[static_cast<std::size_t>(peer)] == call_->sequence;
  }
  bool all_have_arrived() const override;
  std::uint32_t channel() const override { return channel_; }
  int world_rank(int peer) const override { return said_.members[static_cast<std::size_t>(peer)]; }

 private:
  struct Call {
    std::uint64_t sequence = 0;
    Fingerprint said;
    std::size_t round = 0;
    Launch launch;  // of this round
  };
  // Of calls that are not begun.
  struct Announced {
    int peer = 0;
    std::uint64_t sequence = 0;
    Fingerprint call;
  };
  int size() const { return static_cast<int>(said_.members.size()); }
  Status check(const Fingerprint& call) const;
  void begin(std::uint64_t sequence, const Fingerprint& call);
  void begin_round(std::size_t round);
  std::size_t bytes() const { return call_->said.count * size_of(call_->said.dtype); }
  void greet(int peer, const Fingerprint& call);
  void finish();

  transport::Endpoint& endpoint_;
  std::uint32_t channel_;
  Introduction said_;
  std::unique_ptr<MessageRun> run_;
  std::vector<std::uint64_t> come_;  // of each member: the last call that it came to
  std::optional<Call> call_;
  std::vector<Announced> announced_;
  std::vector<EarlySegment> early_;
  std::uint64_t done_ = 0;  // the last call that is over
  bool left_ = false;
  Status failure_;
};

class SwitchServer final : private transport::MessageSink {
 public:
  SwitchServer(std::unique_ptr<transport::Endpoint> endpoint, const Config& config, Log log);

  // Until all ranks have gone, or `stop` says so.
  void serve(const std::function<bool()>& stop);

 private:
  // transport::MessageSink
  std::byte* place(int peer, const transport::Header& header) override;
  void on_message(int peer, const transport::Header& header,
                  const transport::Payload& payload) override;
  void on_sent(std::uint64_t token) override;
  void on_down(int peer, const Status& reason) override;

  bool turn();
  void wait(long idle);
  void introduce(int peer, const transport::Header& header, const transport::Payload& payload);
  void dismiss(SwitchedGroup& group);
  // The parts of a split have one id, and no rank in common.
  SwitchedGroup* find(std::uint32_t channel, int member) const;

  std::unique_ptr<transport::Endpoint> endpoint_;
  std::size_t segment_bytes_;
  long looks_;  // before it yields
  Log log_;
  std::vector<std::unique_ptr<SwitchedGroup>> groups_;
  std::set<std::pair<std::uint32_t, int>> ended_;  // groups that are not served, by id and member
  int ranks_left_ = 0;
};

}  // namespace tutti::engine
