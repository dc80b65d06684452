// What is left of a failed group goes on in a new one, on the links that it has.
//
//   end it here ─▶ agree on the survivors (engine/agreement.hpp) ─▶ cut off the lost ─▶ open a group
//
// Nothing of the old group reaches the new one: its id, its host memory and its regions are fresh, and
// a rank that was cut off is neither heard nor given any of them. It may still write into symmetric
// memory that it mapped before; so that becomes private here, contents and all.
#include <fmt/format.h>

#include <algorithm>

#include "core/clock.hpp"
#include "group/rank_group.hpp"

namespace tutti::group {
namespace {

using namespace std::chrono_literals;

// Failures that are on their way say more than that this rank wants to go on.
constexpr Nanoseconds kLookForFailure = 10ms;
// Whoever wakes up so late from a wait did not run.
constexpr Nanoseconds kStopped = 500ms;

}  // namespace

Result<std::shared_ptr<Group>> RankGroup::shrink(std::string name,
                                                 std::chrono::nanoseconds timeout) {
  if (Status status = check_process(); !status.ok()) return status;
  const Nanoseconds patience = timeout.count() > 0 ? timeout : setting_.config->timeout;
  if (name.empty()) name = this->name();
  if (Status status = end_for_good(); !status.ok()) return status;
  if (Status status = agree_on_survivors(patience); !status.ok()) return status;
  cut_off_the_lost();
  const engine::Survivors& survivors = channel_->survivors();
  auto made = open(survivors.opinion().channel, {name, setting_.order, urgency()},
                   survivors.ranks(), Start::as_heir);
  if (survivors.is_excluded()) return channel_->exclusion();
  if (!made.ok()) return made.status();
  // Somebody died since they agreed. All that are left of the new group hear of it, and shrink it.
  if (!(*made)->health().ok()) return (*made)->shrink(std::move(name), timeout);
  return as_group(std::move(made));
}

// Whatever is under way in this group ends, here and elsewhere.
Status RankGroup::end_for_good() {
  engine::Engine& engine = world_->engine();
  engine.drive(
      *channel_, [&] { return !health().ok(); }, kLookForFailure);
  channel_->fail(
      {Code::aborted,
       fmt::format("rank {} goes on from group '{}' without those who are lost", rank(), name()),
       {rank(), -1, 0}},
      true);
  if (channel_->survivors().join(engine.next_channel())) return {};
  return {Code::invalid_argument,
          fmt::format("group '{}' was shrunk before; go on with what came of it", name())};
}

Status RankGroup::agree_on_survivors(std::chrono::nanoseconds timeout) {
  engine::Engine& engine = world_->engine();
  engine::Survivors& survivors = channel_->survivors();
  const auto is_over = [&] { return survivors.is_decided() || survivors.is_excluded(); };
  while (!is_over()) {
    // Whoever is missed anew gives the others reason to speak again: their time begins anew.
    const std::uint64_t changes = survivors.changes();
    const auto changed = [&] { return is_over() || survivors.changes() != changes; };
    const Nanoseconds began = engine.clock().now();
    engine.drive(*channel_, changed, timeout);
    // One that has been stopped meanwhile listens before it gives up on anybody.
    const Nanoseconds late = engine.clock().now() - deadline_after(began, timeout);
    if (changed() || late > kStopped) continue;
    for (const int silent : survivors.give_up_waiting())
      engine.log().warn(Subsystem::watch,
                        "{} did not come to shrink group '{}' within {:g} s: the others go on "
                        "without it",
                        where(silent), name(), in_seconds(timeout));
  }
  return survivors.is_excluded() || was_given_up() ? channel_->exclusion() : Status();
}

// It lost others because they took it for dead: in an earlier group, or because it gave no sign of life
// for so long that they cannot tell it any more.
bool RankGroup::was_given_up() const {
  engine::Engine& engine = world_->engine();
  const auto& members = channel_->options().members;
  return std::any_of(members.begin(), members.end(), [&](int member) {
    return engine.why_down(member).peer() == engine.endpoint().rank();
  });
}

void RankGroup::cut_off_the_lost() {
  const engine::Opinion decision = channel_->survivors().opinion();
  engine::Engine& engine = world_->engine();
  engine.between_polls([&](transport::Endpoint& endpoint) {
    for (int peer = 0; peer < size(); ++peer) {
      if (!decision.lost[static_cast<std::size_t>(peer)]) continue;
      const int member = channel_->options().members[static_cast<std::size_t>(peer)];
      engine.cut_off(member, {Code::peer_lost,
                              fmt::format("{} was lost with group '{}'", where(peer), name()),
                              {endpoint.rank(), member, 0}});
    }
    for (std::uint32_t number = 1; number <= allocations_; ++number)
      if (!endpoint.unshare_region(region_id(number)))
        engine.log().warn(Subsystem::shm,
                          "no memory to take symmetric memory of group '{}' back with: a rank that "
                          "was cut off may still write there",
                          name());
  });
}

}  // namespace tutti::group
