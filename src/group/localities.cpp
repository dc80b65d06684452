// Where the ranks of a new world sit, which decides in what order rings and trees take them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/files.hpp"
#include "group/gather_all.hpp"
#include "group/rank_group.hpp"
#include "topology/discover.hpp"
#include "topology/racks.hpp"
#include "transport/address.hpp"

namespace tutti::group {
namespace {

// What each rank says of itself.
struct SaidLocality {
  char rack[topology::kLongestRack + 1] = {};
  char gpu[16] = {};
  std::int32_t socket = -1;
  std::int32_t numa = -1;

  explicit SaidLocality(const topology::Locality& locality = {})
      : socket(locality.socket), numa(locality.numa) {
    locality.rack.copy(rack, sizeof rack - 1);
    locality.gpu.copy(gpu, sizeof gpu - 1);
  }
  topology::Locality locality() const { return {rack, socket, numa, gpu}; }
};

// Two ranks are neighbours whichever comes first, and on one node there is nothing to tell apart: hwloc takes
// tens of milliseconds to look.
bool is_worth_a_look(int ranks_here) {
  constexpr int kFewest = 3;
  const std::string nodes = read_text("/sys/devices/system/node/online");
  return ranks_here >= kFewest && nodes.find_first_of("-,") != std::string::npos;
}

// The GPU that a rank uses before it says so: the one it may see, or that of its place on the host.
int expected_gpu(int place_on_host) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const auto number = first_number(visible == nullptr ? "" : visible);
  return number ? static_cast<int>(*number) : place_on_host;
}

Result<topology::Racks> read_racks(const std::string& path) {
  auto text = read_file(path);
  if (!text.ok()) return text.status().annotate("TUTTI_RACKS");
  auto racks = topology::Racks::parse(*text);
  if (!racks.ok()) return racks.status().annotate(fmt::format("TUTTI_RACKS={}", path));
  return racks;
}

}  // namespace

Status RankGroup::find_walk() {
  const auto& host_of = setting_.host_of;
  const int host = host_of[static_cast<std::size_t>(rank())];
  const auto here = std::count(host_of.begin(), host_of.end(), host);
  if (here == size()) return {};
  topology::Locality mine;
  if (is_worth_a_look(static_cast<int>(here)))
    mine = topology::discover_locality(expected_gpu(
        static_cast<int>(std::count(host_of.begin(), host_of.begin() + rank(), host))));
  Status status;
  const Log& log = world_->engine().log();
  if (const std::string& path = setting_.config->racks; !path.empty()) {
    const auto racks = read_racks(path);
    const std::string name = transport::this_host_name();
    if (!racks.ok())
      status = racks.status();
    else if (mine.rack = racks->rack_of(name); mine.rack.empty())
      log.warn(Subsystem::init, "TUTTI_RACKS={} names no rack of host {}", path, name);
  }
  const auto said =
      gather_all(*this, SaidLocality(mine), internal_call(setting_.config->join_timeout));
  if (!status.ok()) return status;
  if (!said.ok()) return said.status();
  std::vector<topology::Locality> localities;
  for (const SaidLocality& each : *said) localities.push_back(each.locality());
  setting_.walk = topology::walk_of(host_of, localities);
  channel_->set_walk(setting_.walk);
  if (rank() == 0 && !setting_.walk.empty())
    log.info(Subsystem::init, "rings and trees take the ranks in the order {}",
             fmt::join(setting_.walk, " "));
  return {};
}

}  // namespace tutti::group
