#include "engine/run_cache.hpp"

#include <utility>

#include "core/check.hpp"
#include "schedule/passes.hpp"
#include "tutti/shape.hpp"

namespace tutti::engine {
namespace {

schedule::Request request_of(const Launch& launch, const Members& members) {
  schedule::Request request;
  request.collective = launch.collective;
  request.size = members.size();
  request.rank = members.rank();
  request.root = launch.root;
  request.in_place = launch.in_place;
  request.shots = launch.shots;
  request.host_of = members.options().host_of;
  request.order = launch.order;
  request.walk = members.options().walk;
  return request;
}

}  // namespace

void RunCache::meet_in(HostMemory* memory) {
  memory_ = memory;
  runs_.clear();  // what was made for messages may have a host form
  last_ = nullptr;
}

void RunCache::use_device(DeviceSide* side) {
  device_ = side;
  runs_.clear();
  last_ = nullptr;
}

// The group room asked the catalog before it made the launch, so building cannot fail.
PreparedRun& RunCache::find_or_make(const Launch& launch, std::uint64_t key) {
  PreparedRun& prepared = runs_[key];
  if (prepared.on_host || prepared.on_device || prepared.by_message) return prepared;
  if (launch.on_device)
    prepared.on_device = make_on_device(launch);
  else
    prepared.on_host = make_on_host(launch);
  if (!prepared.on_host && !prepared.on_device) prepared.by_message = make_by_message(launch);
  return prepared;
}

std::unique_ptr<HostRun> RunCache::make_on_host(const Launch& launch) const {
  if (memory_ == nullptr || !launch.to_peer.empty()) return nullptr;
  if (launch.algorithm == Algorithm::in_network)
    return nullptr;  // the switch is in nobody's memory
  auto forms = schedule::host_forms(launch.algorithm, request_of(launch, members_), catalog_);
  TUTTI_CHECK(forms.ok());
  if (!*forms) return nullptr;
  auto run = std::make_unique<HostRun>(*memory_, **std::move(forms));
  run->trace_to(group_.tracer(), members_.channel());
  return run;
}

// Where all ranks reach each other's devices, and it is more than moving bytes that only the host can do.
std::unique_ptr<DeviceRun> RunCache::make_on_device(const Launch& launch) const {
  if (device_ == nullptr || !device_->reaches_all() || launch.reduction.op == ReduceOp::user)
    return nullptr;
  auto forms =
      schedule::host_forms_of_all(launch.algorithm, request_of(launch, members_), catalog_);
  TUTTI_CHECK(forms.ok());
  if (!*forms) return nullptr;
  std::vector<schedule::HostForm> mapped;
  for (schedule::HostForms& each : **forms) mapped.push_back(std::move(each.mapped));
  if (!DeviceRun::fits(mapped, members_.rank())) return nullptr;
  return std::make_unique<DeviceRun>(*device_, std::move(mapped));
}

std::unique_ptr<ByMessage> RunCache::make_by_message(const Launch& launch) const {
  if (launch.algorithm == Algorithm::in_network && members_.size() > 1)
    return std::make_unique<SwitchedRun>(group_, uplink_, catalog_, request_of(launch, members_),
                                         segment_bytes_);
  auto program = catalog_.build(launch.algorithm, request_of(launch, members_));
  TUTTI_CHECK(program.ok());
  schedule::Program ready = schedule::fuse_folds(*std::move(program));
  if (launch.on_device) ready = schedule::stage(std::move(ready));
  if (members_.is_lazy() && !shape_of(launch.collective).all_meet())
    ready = schedule::with_barrier(std::move(ready), barrier_beside(launch));
  return std::make_unique<MessageRun>(group_, compile(std::move(ready)), segment_bytes_,
                                      launch.on_device ? device_ : nullptr);
}

// By the tree of few links.
schedule::Program RunCache::barrier_beside(const Launch& launch) const {
  schedule::Request request = request_of(launch, members_);
  request.collective = Collective::barrier;
  request.root = 0;
  request.in_place = false;
  auto barrier = catalog_.build(Algorithm::binomial_tree, request);
  TUTTI_CHECK(barrier.ok());
  return *std::move(barrier);
}

}  // namespace tutti::engine
