#include "tool/bench/report.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <ctime>

#include "core/files.hpp"
#include "core/json.hpp"
#include "tool/bench/arithmetic.hpp"
#include "topology/discover.hpp"

namespace tutti::tool {

double Row::algbw_gbs() const { return tool::algbw_gbs(bytes, timing.median_us); }
double Row::busbw_gbs() const { return algbw_gbs() * bus_factor(collective, ranks); }

std::optional<double> Row::floor_share() const {
  if (!floor_us || timing.median_us <= 0) return std::nullopt;
  return *floor_us / timing.median_us;
}

std::optional<double> Row::cpu_s_per_gb() const {
  if (bytes == 0) return std::nullopt;
  return cpu_s / (static_cast<double>(bytes) * 1e-9);
}

namespace {

std::string processor_name() {
  const std::string text = read_text("/proc/cpuinfo");
  const auto value = value_after(text, "model name");
  return value ? std::string(value->substr(std::min(value->find(':') + 2, value->size())))
               : "unknown";
}

}  // namespace

Json row_json(const Row& row) {
  return {
      {"collective", to_string(row.collective)},
      {"ranks", row.ranks},
      {"transport", row.transport},
      {"memory", row.memory},
      {"device", row.device},
      {"meeting", row.meeting.empty() ? Json() : Json(row.meeting)},
      {"algorithm", row.algorithm},
      {"dtype", to_string(row.dtype)},
      {"op", has_reduction(row.collective) ? to_string(row.op) : "none"},
      {"order", has_reduction(row.collective) ? to_string(row.order) : "none"},
      {"bytes", row.bytes},
      {"count", row.count},
      {"in_place", row.in_place},
      {"time_us",
       {{"median", row.timing.median_us}, {"p99", row.timing.p99_us}, {"min", row.timing.min_us}}},
      {"algbw_gbs", row.algbw_gbs()},
      {"busbw_gbs", row.busbw_gbs()},
      {"predicted_us", row.predicted_us},
      {"floor_share", row.floor_share()},
      {"cpu_s_per_gb", row.cpu_s_per_gb()},
      {"host_us", row.host_us},
      {"wrong", row.wrong}};
}

Json machine_json() {
  utsname names{};
  ::uname(&names);
  Json document = {{"processor", processor_name()},
                   {"kernel", fmt::format("{} {}", names.sysname, names.release)}};
  if (const auto machine = topology::discover(); machine.ok()) {
    document["host"] = machine->host_name;
    document["cores"] = machine->cores;
    document["cpus"] = machine->cpus;
    document["numa_nodes"] = machine->numa_nodes.size();
    document["memory_bytes"] = machine->memory_bytes;
  }
  return document;
}

void add_device(Json& machine, const cuda::DeviceFacts& facts, std::optional<double> ceiling_gbs) {
  machine["gpu"] = facts.name;
  machine["mps"] = facts.under_mps;
  machine["copy_ceiling_gbs"] = ceiling_gbs;
}

std::string date_word() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string report_text(const Json& machine, const std::vector<Row>& rows) {
  Json results = Json::array();
  for (const Row& row : rows) results.push_back(row_json(row));
  const Json document = {
      {"machine", machine}, {"date", date_word()}, {"results", std::move(results)}};
  return document.dump(1) + "\n";
}

std::size_t results_since(const std::string& path, const std::string& date) {
  const auto document = Json::parse(read_text(path));
  if (!document.ok() || (*document)["date"].string() < date) return 0;
  return (*document)["results"].size();
}

}  // namespace tutti::tool
