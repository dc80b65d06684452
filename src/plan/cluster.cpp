#include "plan/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/words.hpp"

namespace tutti::plan {
namespace {

constexpr std::array<std::string_view, 4> kFabrics = {"flat", "hosts", "fat_tree", "torus_2d"};

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;
constexpr double kMicro = 1e-6;

// Bandwidths, peaks and memories are the makers' figures. Latencies are what NCCL's own tuning
// table counts per hop, rounded; efficiencies are what large training runs report.
Cluster dgx(std::string name, std::string source, double within_gbs, double between_gbs,
            Processor processor) {
  Cluster cluster;
  cluster.name = std::move(name);
  cluster.source = std::move(source);
  cluster.ranks_per_host = 8;
  cluster.within = {1.0 * kMicro, 0.3 * kMicro, within_gbs * kGiga};
  cluster.between = {4.0 * kMicro, 0.5 * kMicro, between_gbs * kGiga};
  cluster.processor = processor;
  return cluster;
}

Cluster h100() {
  return dgx("h100-ib400", "data sheets: DGX H100, NDR InfiniBand; latencies assumed", 450, 50,
             {989 * kTera, 0.45, 80 * kGiga, 3.35 * kTera, 3.35 * kTera / 3});
}

Cluster h100_sharp() {
  Cluster cluster = h100();
  cluster.name = "h100-ib400-sharp";
  cluster.source = "h100-ib400 with switches that fold";
  cluster.in_network_reduction = true;
  return cluster;
}

Cluster h200() {
  return dgx("h200-ib400", "data sheets: HGX H200, NDR InfiniBand; latencies assumed", 450, 50,
             {989 * kTera, 0.45, 141 * kGiga, 4.8 * kTera, 4.8 * kTera / 3});
}

Cluster a100() {
  return dgx("a100-ib200", "data sheets: DGX A100 80 GB, HDR InfiniBand; latencies assumed", 300,
             25, {312 * kTera, 0.5, 80 * kGiga, 2.039 * kTera, 2.039 * kTera / 3});
}

// 4,608 hosts of six V100; two EDR ports for all six; 18 hosts under a leaf, not oversubscribed.
Cluster summit() {
  Cluster cluster;
  cluster.name = "summit";
  cluster.source = "ORNL Summit's published figures; latencies assumed";
  cluster.fabric = Fabric::fat_tree;
  cluster.ranks_per_host = 6;
  cluster.max_ranks = 27648;
  cluster.within = {1.5 * kMicro, 0.4 * kMicro, 50 * kGiga};
  cluster.between = {5.0 * kMicro, 0.6 * kMicro, 25 * kGiga};
  cluster.host_bandwidth = 25 * kGiga;
  cluster.hosts_per_switch = 18;
  cluster.processor = {125 * kTera, 0.4, 16 * kGiga, 0.9 * kTera, 0.3 * kTera};
  return cluster;
}

Cluster gpu_ethernet() {
  Cluster cluster;
  cluster.name = "gpu-ethernet-100g";
  cluster.source = "data sheets: 8 L40S on PCIe 4, one 100 Gbit/s port a host; latencies assumed";
  cluster.fabric = Fabric::fat_tree;
  cluster.ranks_per_host = 8;
  cluster.within = {3.0 * kMicro, 0.5 * kMicro, 25 * kGiga};
  cluster.between = {20.0 * kMicro, 2.0 * kMicro, 12.5 * kGiga};
  cluster.host_bandwidth = 12.5 * kGiga;
  cluster.oversubscription = 3;
  cluster.hosts_per_switch = 32;
  cluster.processor = {362 * kTera, 0.4, 48 * kGiga, 0.864 * kTera, 0.288 * kTera};
  return cluster;
}

Cluster tpu() {
  Cluster cluster;
  cluster.name = "tpu-v5e";
  cluster.source = "published figures of one 16 x 16 pod; latencies assumed";
  cluster.fabric = Fabric::torus_2d;
  cluster.max_ranks = 256;
  cluster.between = {1.0 * kMicro, 0.3 * kMicro, 50 * kGiga};
  cluster.processor = {197 * kTera, 0.5, 16 * kGiga, 0.819 * kTera, 0.273 * kTera};
  return cluster;
}

Cluster cpu_ethernet() {
  Cluster cluster;
  cluster.name = "cpu-ethernet-1g";
  cluster.source = "plain hosts of 4 ranks and one gigabit port; all assumed";
  cluster.ranks_per_host = 4;
  cluster.within = {1.0 * kMicro, 0.2 * kMicro, 8 * kGiga};
  cluster.between = {30.0 * kMicro, 5.0 * kMicro, 0.125 * kGiga};
  cluster.host_bandwidth = 0.125 * kGiga;
  cluster.processor = {0.2 * kTera, 0.5, 8 * kGiga, 20 * kGiga, 8 * kGiga};
  return cluster;
}

Status refuse(std::string_view field, std::string_view what) {
  return {Code::invalid_argument, fmt::format("'{}' {}", field, what)};
}

Status check_wire(std::string_view name, const Wire& wire) {
  if (!(wire.bandwidth > 0)) return refuse(fmt::format("{}.bandwidth", name), "is not above zero");
  if (wire.overhead > wire.latency)
    return refuse(fmt::format("{}.overhead", name),
                  fmt::format("contradicts '{}.latency', which includes it", name));
  return {};
}

Status check_fabric(const Cluster& cluster) {
  if (cluster.fabric == Fabric::flat && cluster.ranks_per_host > 1)
    return refuse("ranks_per_host", "contradicts 'fabric': flat has one rank a host");
  if (cluster.fabric != Fabric::fat_tree && cluster.oversubscription != 1)
    return refuse("oversubscription", "contradicts 'fabric': only a fat_tree has uplinks");
  if (cluster.fabric != Fabric::fat_tree && cluster.hosts_per_switch != 0)
    return refuse("hosts_per_switch", "contradicts 'fabric': only a fat_tree has leaf switches");
  if (cluster.fabric == Fabric::fat_tree && cluster.hosts_per_switch < 1)
    return refuse("hosts_per_switch", "is needed for a fat_tree");
  if (cluster.oversubscription < 1) return refuse("oversubscription", "is below 1");
  if (cluster.in_network_reduction && cluster.fabric == Fabric::torus_2d)
    return refuse("in_network_reduction", "contradicts 'fabric': a torus has no switches");
  return {};
}

}  // namespace

std::string_view to_string(Fabric fabric) noexcept {
  return kFabrics[static_cast<std::size_t>(fabric)];
}

std::optional<Fabric> parse_fabric(std::string_view word) noexcept {
  for (std::size_t i = 0; i < kFabrics.size(); ++i)
    if (kFabrics[i] == word) return static_cast<Fabric>(i);
  return std::nullopt;
}

double Cluster::share_between() const {
  return host_bandwidth > 0 ? std::min(between.bandwidth, host_bandwidth / ranks_per_host)
                            : between.bandwidth;
}

Status check_cluster(const Cluster& cluster) {
  if (cluster.name.empty()) return refuse("name", "is empty");
  if (cluster.ranks_per_host < 1) return refuse("ranks_per_host", "is below 1");
  if (cluster.ranks_per_host > 1)
    if (Status status = check_wire("within", cluster.within); !status.ok()) return status;
  const bool one_host = cluster.max_ranks > 0 && cluster.max_ranks <= cluster.ranks_per_host;
  if (!one_host)
    if (Status status = check_wire("between", cluster.between); !status.ok()) return status;
  if (cluster.max_ranks < 0) return refuse("max_ranks", "is below zero");
  if (cluster.max_ranks % cluster.ranks_per_host != 0)
    return refuse("max_ranks", "contradicts 'ranks_per_host': it is no multiple of it");
  if (cluster.host_bandwidth > 0 && cluster.host_bandwidth < cluster.between.bandwidth)
    return refuse("host_bandwidth", "contradicts 'between.bandwidth', which one rank gets alone");
  if (cluster.processor.efficiency < 0 || cluster.processor.efficiency > 1)
    return refuse("processor.efficiency", "lies outside 0 … 1");
  return check_fabric(cluster);
}

const std::vector<Cluster>& preset_clusters() {
  static const std::vector<Cluster> presets = {h100(),   h100_sharp(),   h200(), a100(),
                                               summit(), gpu_ethernet(), tpu(),  cpu_ethernet()};
  return presets;
}

Result<Cluster> preset_cluster(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Cluster& cluster : preset_clusters()) {
    if (cluster.name == name) return cluster;
    names.push_back(cluster.name);
  }
  return Status(Code::invalid_argument, unknown_word("cluster", name, names));
}

}  // namespace tutti::plan
