// group/rank_group.hpp - one rank's handle of a group: joins the public calls to the engine.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/exhausted.hpp"
#include "engine/channel.hpp"
#include "engine/vote.hpp"
#include "group/call.hpp"
#include "group/chooser.hpp"
#include "group/device_setup.hpp"
#include "group/recent_calls.hpp"
#include "group/world.hpp"
#include "tutti/group.hpp"

namespace tutti::group {

inline constexpr std::string_view kDifferentGroups = "ranks mean different groups";

class RankGroup final : public Group {
 public:
  RankGroup(std::shared_ptr<World> world, std::shared_ptr<engine::Channel> channel,
            ReductionOrder order);
  ~RankGroup() override;

  int rank() const override { return setting_.rank; }
  int size() const override { return setting_.size; }
  const std::string& name() const override { return channel_->options().name; }
  ReductionOrder reduction_order() const override { return setting_.order; }
  Urgency urgency() const override { return channel_->options().urgency; }
  std::vector<int> hosts() const override;
  Status label_ranks(std::span<const std::string> labels) override;

  Status run(const Call& call) override;
  Work start(const Call& call) override;
  Work transfer(std::span<const Transfer> transfers, const CallOptions& options) override;
  Result<Received> exchange(std::span<const Transfer> transfers,
                            const CallOptions& options) override;

  Result<std::shared_ptr<Group>> split(int color, int key, GroupSpec spec) override;
  Result<std::shared_ptr<Group>> subgroup(std::span<const int> ranks, std::uint32_t tag,
                                          GroupSpec spec,
                                          std::chrono::nanoseconds timeout) override;
  Result<std::shared_ptr<Group>> duplicate(GroupSpec spec) override;
  Result<std::shared_ptr<Group>> shrink(std::string name,
                                        std::chrono::nanoseconds timeout) override;
  Result<std::shared_ptr<Group>> grow(std::shared_ptr<Store> store, int most,
                                      GroupOptions options) override;

  Result<SymmetricMemory> allocate(std::size_t bytes, Device device) override;
  void forget(const void* allocation) override;
  Result<Prediction> predict(Collective collective, std::size_t bytes) override;
  Result<Prediction> predict(Collective collective, std::size_t bytes,
                             std::span<const int> ranks) override;
  void abort(const std::string& reason) override;
  Status health() const override { return channel_->health(); }
  std::string describe() const override;
  trace::Sink* trace() const override { return world_->engine().tracer(); }

  // Gives the group memory to meet in, if all its ranks are on one host. Collective; once, at the
  // start.
  Status share_host_memory();
  // Prepares it for device memory as the group that it is made from is, so that its first call there need
  // not block. Collective, likewise.
  Status inherit_device(const RankGroup& parent);
  // Where ranks sit on several hosts, in what order rings and trees take them. Collective, likewise.
  Status find_walk();
  // Agrees with the other ranks on what operations cost, if they are to; before any other call.
  Status tune();
  // By which ranks talk while a group is made: directly, or where links are made at their first use by few
  // of them.
  Algorithm set_up_algorithm(Collective collective) const;
  // What follows are the callers' own collectives. To be called last.
  void end_set_up() { channel_->end_set_up(); }
  void all_have_joined() { world_->engine().endpoint().all_have_joined(); }

 private:
  Status run_call(const Call& call);
  Status run_on_device(const Call& call);
  Result<Work> start_on_device(const Call& call, bool in_stream);
  // Whoever has no memory for its part of a call cannot come to it, and the others must not wait for
  // it: the group fails.
  template <class Body>
  std::invoke_result_t<Body> guarded(const Body& body) {
    bool ended = false;
    auto result = or_exhausted([&]() -> std::invoke_result_t<Body> {
      auto made = body();
      ended = true;
      return made;
    });
    if (!ended) channel_->fail(status_of(result), true);
    return result;
  }
  static const Status& status_of(const Status& status) { return status; }
  template <class T>
  static Status status_of(const Result<T>& result) {
    return result.status();
  }
  // Symmetric memory, and the name under which peers know it.
  struct SharedMemory {
    std::uint64_t id = 0;
    SymmetricMemory memory;
  };
  tuner::CallFacts facts_of(Collective collective, std::size_t bytes) const;
  Result<Prediction> predict_by(tuner::CallFacts facts, Chooser& chooser) const;
  void take_machine();
  Status price_switch();
  Status check_process() const;
  Result<std::vector<engine::Posting>> postings_of(std::span<const Transfer> transfers,
                                                   const CallOptions& options);
  Status put_on_device(engine::Posting& posting, void* stream);
  Status check_list(std::span<const int> ranks) const;
  Status end_for_good();
  Status agree_on_survivors(std::chrono::nanoseconds timeout);
  bool was_given_up() const;
  void cut_off_the_lost();
  // A new group of some of this one's ranks. as_heir: this one has failed, and its failure is none of
  // the new group's. on_device: all of its ranks are prepared for device memory in this one.
  enum class Start : std::uint8_t { plain, as_heir, on_device };
  Result<std::shared_ptr<RankGroup>> open(std::uint32_t id, GroupSpec spec,
                                          const std::vector<int>& ranks,
                                          Start start = Start::plain);
  // With nothing left open but the name.
  GroupSpec completed(GroupSpec spec) const;
  enum class Division : std::uint8_t { split, duplicate };
  struct Ballot;
  Result<std::shared_ptr<Group>> divide(Division division, int color, int key, GroupSpec spec);
  Status check_ballots(std::span<const Ballot> ballots) const;
  // Code::mismatch with a table of who said what, the same on all ranks; ok if all said the same.
  Status find_difference(std::string_view about, const std::vector<engine::Said>& said) const;
  std::string where(int rank) const;
  Result<SharedMemory> share_memory(std::size_t bytes, const CallOptions& call);
  // All ranks ask for as much.
  Status check_same_size(std::size_t bytes, const CallOptions& call);
  // Device memory (device_setup.cpp). Collective, before the first call with such a buffer; `ordinal`
  // is its GPU, -1: any.
  Status prepare_device(int ordinal, std::chrono::nanoseconds patience);
  Result<std::shared_ptr<engine::DeviceContext>> open_device(int ordinal);
  Status check_cards(const std::vector<DeviceCard>& cards) const;
  Result<std::shared_ptr<engine::DeviceSide>> make_device_side(engine::DeviceSideOptions options,
                                                               bool near, const CallOptions& call);
  Status make_own_board(engine::DeviceSideOptions& options);
  Status share_boards(engine::DeviceSideOptions& options, const CallOptions& call);
  Status share_control(engine::DeviceSideOptions& options, const CallOptions& call);
  Status choose_meeting(engine::DeviceSide& side, const std::vector<DeviceCard>& cards,
                        const CallOptions& call);
  Result<std::int64_t> agree_on_time(engine::DeviceSide& side, engine::DeviceMeeting way,
                                     const CallOptions& call);
  Result<SymmetricMemory> allocate_on_device(std::size_t bytes);
  Status share_staging(engine::DeviceSide& side, const CallOptions& call);
  Status show_to_all(engine::DeviceSide& side, std::uint64_t address, const CallOptions& call);
  std::vector<int> mapped_members() const;
  bool share_heap();
  Status await_heaps(const std::vector<bool>& has_heap, const CallOptions& call);
  Status open_links(const std::vector<int>& members, Nanoseconds timeout);
  std::uint64_t region_id(std::uint32_t number) const {
    return static_cast<std::uint64_t>(channel_->options().id) << 32 | number;
  }

  std::shared_ptr<World> world_;
  std::shared_ptr<engine::Channel> channel_;
  Setting setting_;
  Chooser chooser_;
  RecentCalls recent_;
  std::uint32_t allocations_ = 0;
};

// Meets the others in `store`. `server`: kept as long as the group; null: somebody else's. `has_grown`:
// among them are ranks that came later.
Result<std::shared_ptr<Group>> create_group(std::shared_ptr<Store> store, GroupOptions options,
                                            std::unique_ptr<StoreServer> server,
                                            bool has_grown = false);

inline Result<std::shared_ptr<Group>> as_group(Result<std::shared_ptr<RankGroup>> made) {
  if (!made.ok()) return made.status();
  return std::shared_ptr<Group>(*std::move(made));
}

}  // namespace tutti::group
