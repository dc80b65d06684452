#include "returns.hpp"

#include <cstdlib>
#include <utility>

namespace pretrain {

using tutti::Code;
using tutti::Group;
using tutti::Result;
using tutti::Status;

namespace {

constexpr std::chrono::seconds kStoreAnswers{10};
constexpr std::chrono::milliseconds kBetweenLooks{200};
constexpr std::chrono::seconds kStoreRests{30};  // after it has not answered
// Whoever waited a moment ago and does not come within this time has died: training goes on without.
constexpr std::chrono::seconds kMeeting{10};

// With the limits of a meeting between ranks that are all there.
Result<tutti::GroupOptions> for_meeting(tutti::GroupOptions options) {
  if (!options.config) {
    auto config = tutti::Config::from_environment();
    if (!config.ok()) return config.status();
    options.config = *std::move(config);
  }
  if (options.config->join_timeout > kMeeting) options.config->join_timeout = kMeeting;
  return options;
}

// It went well for all of them, or it did for none.
Status agree(Group& group, const Status& mine) {
  std::int32_t all_ok = mine.ok() ? 1 : 0;
  const Status status = group.all_reduce(tutti::Buffer::of(&all_ok, 1), tutti::ReduceOp::min);
  if (!status.ok()) return status;
  if (all_ok == 1 || !mine.ok()) return mine;
  return {Code::aborted, "another rank could not meet those that came back"};
}

}  // namespace

bool has_returned() {
  const char* returned = std::getenv("TUTTI_RETURNED");
  return returned != nullptr && *returned != '\0';
}

Result<std::shared_ptr<Group>> come_back(const tutti::GroupOptions& options) {
  auto store = tutti::launcher_store(kStoreAnswers);
  if (!store.ok()) return store.status();
  auto meeting = for_meeting(options);
  if (!meeting.ok()) return meeting.status();
  // Until the launcher, or its board, says that nobody is left to wait for. Another newcomer's end ends a
  // meeting, too.
  for (;;) {
    auto group = Group::join(*store, *meeting);
    const Status& status = group.status();
    const bool by_others = status.code() == Code::timed_out || status.code() == Code::aborted ||
                           (status.code() == Code::peer_lost && status.peer() >= 0);
    if (!by_others) return group;
  }
}

Result<std::shared_ptr<tutti::Store>> Returns::store() {
  if (store_) return store_;
  auto found = tutti::launcher_store(kStoreAnswers);
  if (found.ok()) store_ = *found;
  return found;
}

bool Returns::somebody_waits(int ranks) {
  if (ranks >= full_ || Clock::now() < look_at_) return false;
  look_at_ = Clock::now() + kBetweenLooks;
  const auto found = store();
  if (found.status().code() == Code::unsupported)
    full_ = ranks;  // nobody can come: not asked again
  if (!found.ok()) {
    look_at_ = Clock::now() + kStoreRests;
    return false;
  }
  const auto waiting = Group::waiting(*found, options_.name);
  return waiting.ok() && *waiting > 0;
}

Result<std::shared_ptr<Group>> Returns::take_in(Group& group) {
  const auto found = store();
  if (Status status = agree(group, found.status()); !status.ok()) return status;
  auto options = for_meeting(options_);
  if (!options.ok()) return options.status();  // of the environment, which all have alike
  auto larger = group.grow(*found, full_, *std::move(options));
  if (Status status = agree(group, larger.status()); !status.ok()) return status;
  return larger;
}

}  // namespace pretrain
