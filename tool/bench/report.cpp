#include "tool/bench/report.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <ctime>
#include <fstream>

#include "core/json.hpp"
#include "core/sockets.hpp"
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
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

}  // namespace

Json row_json(const Row& row) {
  return {
      {"collective", to_string(row.collective)},
      {"ranks", row.ranks},
      {"transport", row.transport},
      {"memory", row.memory},
      {"algorithm", row.algorithm},
      {"dtype", to_string(row.dtype)},
      {"op", has_reduction(row.collective) ? to_string(row.op) : "none"},
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

std::string date_word() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Status write_json(const std::string& path, const Json& document) {
  if (path == "-") {
    fmt::print("{}\n", document.dump(1));
    return {};
  }
  std::ofstream file(path);
  file << document.dump(1) << '\n';
  file.close();
  if (!file) return errno_status(fmt::format("cannot write {}", path));
  return {};
}

Status write_report(const std::string& path, const std::vector<Row>& rows) {
  Json results = Json::array();
  for (const Row& row : rows) results.push_back(row_json(row));
  return write_json(
      path, {{"machine", machine_json()}, {"date", date_word()}, {"results", std::move(results)}});
}

}  // namespace tutti::tool
