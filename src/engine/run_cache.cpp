#include "engine/run_cache.hpp"

#include "core/check.hpp"
#include "schedule/passes.hpp"

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
  return request;
}

}  // namespace

void RunCache::meet_in(HostMemory* memory) {
  memory_ = memory;
  runs_.clear();  // what was made for messages may have a host form
  last_ = nullptr;
}

// The group room asked the catalog before it made the launch, so building cannot fail.
PreparedRun& RunCache::find_or_make(const Launch& launch, std::uint64_t key) {
  PreparedRun& prepared = runs_[key];
  if (prepared.on_host || prepared.by_message) return prepared;
  const schedule::Request request = request_of(launch, members_);
  if (memory_ != nullptr && launch.to_peer.empty()) {
    auto forms = schedule::host_forms(launch.algorithm, request, catalog_);
    TUTTI_CHECK(forms.ok());
    if (*forms) {
      prepared.on_host = std::make_unique<HostRun>(*memory_, **std::move(forms));
      prepared.on_host->trace_to(group_.tracer(), members_.channel());
      return prepared;
    }
  }
  auto program = catalog_.build(launch.algorithm, request);
  TUTTI_CHECK(program.ok());
  prepared.by_message = std::make_unique<MessageRun>(
      group_, compile(schedule::fuse_folds(*std::move(program))), segment_bytes_);
  return prepared;
}

}  // namespace tutti::engine
