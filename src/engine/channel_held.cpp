// An operation that comes after works of other groups: it is at the head of its queue, and waits for them.
#include <fmt/format.h>

#include "engine/channel.hpp"
#include "engine/engine.hpp"
#include "engine/numbers.hpp"

namespace tutti::engine {
namespace {

// Beyond its deadline: what it waits for has one that is over sooner, as a rule, and knows who is at fault.
constexpr Nanoseconds kPatience = std::chrono::seconds(1);

}  // namespace

Nanoseconds Channel::end_of_patience(const Operation& held) {
  return deadline_after(held.deadline, kPatience);
}

void Channel::await(const std::shared_ptr<Dependencies>& works) {
  awaited_.add(works);
  works->watch([group = weak_from_this()] {
    if (const auto channel = group.lock()) channel->engine_->kick();
  });
}

bool Channel::help() { return engine_->help(*this); }

// When the works are done; on the device also when its stream waits for those that are not.
bool Channel::may_begin(Operation& operation) {
  const Launch& launch = *operation.launch;
  Dependencies& works = *launch.after;
  if (works.all_clear()) return true;
  if (fails_with(works, operation)) return false;
  if (launch.on_device && runs_.find(launch).on_device) {
    const auto follows = device()->follow(works);
    if (!follows.ok()) fail(follows.status(), true);
    if (!follows.ok() || *follows) return follows.ok();
  }
  if (!operation.told_to_wait) log_.waits(operation, works.describe());
  operation.told_to_wait = true;
  return false;
}

bool Channel::fails_with(const Dependencies& works, const Operation& operation) {
  const Status failure = works.failure();
  if (failure.ok()) return false;
  fail({failure.code(),
        fmt::format("{} on group '{}' comes after an operation of rank {} that failed: {}",
                    numbered(to_string(operation.launch->collective), operation.sequence),
                    members_.name(), members_.rank(), failure.message()),
        {members_.rank(), -1, number_of(operation.sequence)}},
       true);
  return true;
}

// Ranks whose groups wait for each other, round about, never get further: the deadline ends that.
Status Channel::look_for_held() const {
  if (!held_ || engine_->clock().now() < end_of_patience(*held_)) return {};
  return {
      Code::timed_out,
      fmt::format("{} did not begin {} on group '{}' within {:g} s: there it waits for {}",
                  members_.where(members_.rank()),
                  numbered(to_string(held_->launch->collective), held_->sequence), members_.name(),
                  in_seconds(held_->launch->timeout), held_->launch->after->describe()),
      {members_.rank(), members_.rank(), number_of(held_->sequence)}};
}

}  // namespace tutti::engine
