#include "topology/discover.hpp"

#include <fmt/format.h>
#include <hwloc.h>
#include <unistd.h>

#include <memory>

namespace tutti::topology {
namespace {

using Tree = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

std::vector<int> indices(hwloc_const_cpuset_t set) {
  std::vector<int> cpus;
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu))
    cpus.push_back(cpu);
  return cpus;
}

template <class Visit>
void for_each(hwloc_topology_t tree, hwloc_obj_type_t type, Visit visit) {
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(tree, type, object)) != nullptr) visit(*object);
}

Result<Tree> load_tree(bool with_devices = false) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0)
    return Status(Code::io, "hwloc could not be initialised; is its library installed completely?");
  Tree tree(raw, &hwloc_topology_destroy);
  if (with_devices) hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(raw) != 0)
    return Status(Code::io, "hwloc could not read this machine's processors; is /sys mounted?");
  return tree;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// 0,1,2,5 → "0-2,5"
std::string ranges(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (last > i) text += fmt::format("-{}", cpus[last]);
    i = last + 1;
  }
  return text;
}

std::string interface_text(const Interface& interface) {
  std::string text = fmt::format("interface {}: {}{}", interface.name, interface.up ? "up" : "down",
                                 interface.loopback ? ", loopback" : "");
  if (interface.megabits_per_s) text += fmt::format(", {} Mbit/s", *interface.megabits_per_s);
  for (const auto& address : interface.addresses) text += fmt::format(", {}", address);
  return text + "\n";
}

// That of NVIDIA's of which so many come before it on the bus, as drivers count like devices; null: there is
// none.
hwloc_obj_t nth_gpu(hwloc_topology_t tree, int number) {
  constexpr unsigned kNvidia = 0x10de;
  constexpr unsigned kDisplay = 0x03;  // the class of 3D controllers, too
  hwloc_obj_t device = nullptr;
  while (number >= 0 && (device = hwloc_get_next_pcidev(tree, device)) != nullptr) {
    const auto& about = device->attr->pcidev;
    if (about.vendor_id == kNvidia && about.class_id >> 8 == kDisplay && number-- == 0)
      return device;
  }
  return nullptr;
}

// The smallest part of the machine with all the processors that this process may use.
hwloc_obj_t part_in_use(hwloc_topology_t tree) {
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> bound(hwloc_bitmap_alloc(),
                                                                            &hwloc_bitmap_free);
  if (!bound || hwloc_get_cpubind(tree, bound.get(), HWLOC_CPUBIND_PROCESS) != 0) return nullptr;
  return hwloc_get_obj_covering_cpuset(tree, bound.get());
}

double gibibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }
double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

Result<Hardware> discover() {
  auto loaded = load_tree();
  if (!loaded.ok()) return loaded.status();
  const hwloc_topology_t tree = loaded->get();
  Hardware machine;
  machine.host_name = host_name();
  machine.cores = std::max(0, hwloc_get_nbobjs_by_type(tree, HWLOC_OBJ_CORE));
  machine.cpus = std::max(0, hwloc_get_nbobjs_by_type(tree, HWLOC_OBJ_PU));
  machine.memory_bytes = hwloc_get_root_obj(tree)->total_memory;
  for_each(tree, HWLOC_OBJ_NUMANODE, [&](const hwloc_obj& node) {
    machine.numa_nodes.push_back({node.attr->numanode.local_memory, indices(node.cpuset)});
  });
  for_each(tree, HWLOC_OBJ_L3CACHE, [&](const hwloc_obj& cache) {
    machine.l3_domains.push_back({cache.attr->cache.size, indices(cache.cpuset)});
  });
  machine.interfaces = discover_interfaces();
  return machine;
}

Locality discover_locality(int gpu) {
  Locality locality;
  auto loaded = load_tree(true);
  if (!loaded.ok()) return locality;
  const hwloc_topology_t tree = loaded->get();
  hwloc_obj_t part = part_in_use(tree);
  if (const hwloc_obj_t device = nth_gpu(tree, gpu)) {
    const auto& bus = device->attr->pcidev;
    locality.gpu = fmt::format("{:04x}:{:02x}:{:02x}", bus.domain, bus.bus, bus.dev);
    part = hwloc_get_non_io_ancestor_obj(tree, device);
  }
  if (part == nullptr) return locality;
  const hwloc_obj_t socket = part->type == HWLOC_OBJ_PACKAGE
                                 ? part
                                 : hwloc_get_ancestor_obj_by_type(tree, HWLOC_OBJ_PACKAGE, part);
  if (socket != nullptr) locality.socket = static_cast<int>(socket->logical_index);
  if (part->nodeset != nullptr && hwloc_bitmap_weight(part->nodeset) == 1)
    locality.numa = hwloc_bitmap_first(part->nodeset);
  return locality;
}

std::string to_text(const Hardware& machine) {
  std::string text =
      fmt::format("host {}: {} cores, {} cpus, {:.1f} GiB memory\n", machine.host_name,
                  machine.cores, machine.cpus, gibibytes(machine.memory_bytes));
  for (std::size_t i = 0; i < machine.numa_nodes.size(); ++i)
    text += fmt::format("numa {}: {:.1f} GiB, cpus {}\n", i,
                        gibibytes(machine.numa_nodes[i].memory_bytes),
                        ranges(machine.numa_nodes[i].cpus));
  for (std::size_t i = 0; i < machine.l3_domains.size(); ++i)
    text += fmt::format("l3 {}: {:.1f} MiB, cpus {}\n", i, mebibytes(machine.l3_domains[i].bytes),
                        ranges(machine.l3_domains[i].cpus));
  for (const Interface& interface : machine.interfaces) text += interface_text(interface);
  return text;
}

}  // namespace tutti::topology
