#include "engine/device_run.hpp"

#include <fmt/format.h>

#include <utility>

#include "engine/numbers.hpp"
#include "schedule/host/push.hpp"

namespace tutti::engine {

DeviceRun::DeviceRun(DeviceSide& side, std::vector<schedule::HostForm> forms)
    : side_(side), plan_(forms, side.rank()) {
  if (auto pushing = schedule::pushed(forms)) push_plan_.emplace(*std::move(pushing), side.rank());
}

DevicePlan& DeviceRun::plan_for(const Launch& launch) {
  const bool pushes = push_plan_ && push_plan_->shown_bytes(launch) >= side_.push_from();
  return pushes ? *push_plan_ : plan_;
}

void DeviceRun::begin(const Launch& launch, std::uint64_t sequence) {
  launch_ = &launch;
  sequence_ = sequence;
  ticket_ = side_.next_ticket();
  failure_ = {};
  progress_ = Progress::room;
}

void DeviceRun::fail(const Status& status) {
  failure_ = {status.code(),
              fmt::format("{} on cuda:{}: {}", numbered(to_string(launch_->collective), sequence_),
                          side_.device().facts().ordinal, status.message()),
              {side_.rank(), status.peer(), number_of(sequence_)}};
}

bool DeviceRun::step() {
  if (!failure_.ok()) return false;
  switch (progress_) {
    case Progress::room: return step_room();
    case Progress::mapping: return step_mapping();
    case Progress::reaching:
    case Progress::entering:
    case Progress::working:
    case Progress::leaving: return step_by_host();
    case Progress::done: return false;
  }
  return false;
}

// One allocation holds most chunks of a call: it is asked about once. What peers have not mapped yet is
// staged in memory that they have: mapping takes their driver, which may be busy until this very
// collective is over there (DeviceContext::may_gate). Only what is too large for that waits for them.
Status DeviceRun::bind(bool for_good) {
  DeviceReach& reach = side_.context().reach();
  DeviceReach::View& view = view_ = {};
  bool may_wait = for_good;
  bool has_new = false;
  const auto can_show = [&](const std::byte* data) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    if (!view.can_be_shown || !view.holds(address)) {
      view = reach.find(address, side_.members());
      if (view.can_be_shown) reach.show(view, side_.members(), side_.channel());
    }
    if (!view.can_be_shown || view.sight == DeviceReach::Sight::hidden) return false;
    if (may_wait || view.sight == DeviceReach::Sight::seen) return true;
    has_new = true;
    return false;
  };
  DevicePlan& plan = plan_for(*launch_);
  plan.bind(*launch_, can_show, work_);
  if (has_new && work_.staging_bytes > side_.staging_bytes()) {
    may_wait = true;
    plan.bind(*launch_, can_show, work_);
  }
  if (work_.staging_bytes == 0) return {};
  auto base = side_.staging(work_.staging_bytes, for_good);
  if (!base.ok()) return base.status();
  DevicePlan::place_staging(work_, *base);
  return {};
}

bool DeviceRun::step_room() {
  if (!side_.has_room(ticket_)) return false;
  side_.publish(ticket_, sequence_, *launch_);
  if (const int peer = side_.find_difference(ticket_); peer >= 0) {
    failure_ = {Code::mismatch, "another call", {side_.rank(), peer, number_of(sequence_)}};
    return true;
  }
  if (Status status = bind(false); !status.ok()) {
    fail(status);
    return true;
  }
  progress_ = Progress::mapping;
  step_mapping();
  return true;
}

bool DeviceRun::step_mapping() {
  const auto mapped = side_.translate(work_, view_);
  if (mapped.ok() && !*mapped) return false;
  Status status = mapped.status();
  const bool by_host = side_.way() == DeviceMeeting::host;
  if (status.ok())
    status = by_host ? side_.begin_by_host(work_, *launch_, ticket_)
                     : side_.launch(work_, *launch_, ticket_);
  if (!status.ok())
    fail(status);
  else
    progress_ = by_host ? Progress::reaching : Progress::done;
  return true;
}

// What must have come about is waited for here; what follows is done at once.
bool DeviceRun::step_by_host() {
  const auto over = [&]() -> Result<bool> {
    switch (progress_) {
      case Progress::reaching:
      case Progress::working: return side_.has_reached(ticket_);
      case Progress::entering: return side_.all_entered(ticket_);
      default: return side_.all_left(ticket_);
    }
  }();
  if (over.ok() && !*over) return false;
  Status status = over.status();
  if (!status.ok()) return fail(status), true;
  switch (progress_) {
    case Progress::reaching:
      side_.enter_by_host(work_, ticket_);
      progress_ = Progress::entering;
      break;
    case Progress::entering:
      status = side_.work_by_host(work_, launch_->dtype, ticket_);
      progress_ = Progress::working;
      break;
    case Progress::working:
      side_.leave_by_host(ticket_);
      progress_ = Progress::leaving;
      break;
    default: status = side_.finish_by_host(work_, ticket_); progress_ = Progress::done;
  }
  if (status.code() == Code::mismatch)
    failure_ = status;
  else if (!status.ok())
    fail(status);
  return true;
}

std::vector<int> DeviceRun::waiting_for() const {
  std::vector<int> late;
  if (progress_ == Progress::done) return late;
  for (int peer = 0; peer < side_.size(); ++peer)
    if (peer != side_.rank() && !side_.has_called(peer, ticket_)) late.push_back(peer);
  return late;
}

Result<bool> DeviceRun::capture(const Launch& launch) {
  if (side_.way() != DeviceMeeting::kernel)
    return Status(
        Code::unsupported,
        fmt::format("{} cannot be captured in a CUDA graph here: ranks meet by {}, whose "
                    "numbers would pass at once when the graph is replayed; ranks that meet "
                    "in kernels can (MPS, or a GPU each; TUTTI_CUDA_MEET=kernel)",
                    to_string(launch.collective), to_string(side_.way())));
  launch_ = &launch;
  if (Status status = bind(true); !status.ok()) return status;
  const auto mapped = side_.translate(work_, view_);
  if (!mapped.ok() || !*mapped) return mapped;
  if (Status status = side_.capture(work_, launch); !status.ok()) return status;
  return true;
}

}  // namespace tutti::engine
