#include "tool/doctor/report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/units.hpp"
#include "tool/fitted_table.hpp"

namespace tutti::tool::doctor {
namespace {

using plan::short_text;
using plan::Unit;

std::string measured(double value, Unit unit) { return value > 0 ? short_text(value, unit) : "–"; }
std::string bytes(std::int64_t value) {
  return value < 0 ? "any" : short_text(static_cast<double>(value), Unit::bytes);
}

FittedTable table_of(const Examination& examination, std::size_t width) {
  std::size_t names = 4;
  for (const HostRecord& host : examination.hosts) names = std::max(names, host.name.size());
  const auto left = TableColumn::Side::left;
  return {{{"host", "", names, 100, left, ""},
           {"ranks", "", 5, 90},
           {"cores", "", 5, 70},
           {"NUMA", "nodes", 5, 40},
           {"ping", "", 8, 99},
           {"sends", "", 10, 98},
           {"receives", "", 10, 97},
           {"within", "a host", 10, 80},
           {"control", "of TCP", 7, 50, TableColumn::Side::right, "  "},
           {"MTU", "", 5, 30},
           {"files", "", 8, 60},
           {"locked", "memory", 8, 35},
           {"/dev/shm", "free", 8, 45},
           {"memory", "free", 8, 55},
           {"cgroup", "memory", 8, 20},
           {"CPUs", "cgroup", 6, 15}},
          width};
}

std::vector<std::string> cells_of(const HostRecord& host, const Vitals& vitals) {
  return {host.name,
          fmt::format("{}", host.ranks),
          fmt::format("{}", host.cpus),
          fmt::format("{}", host.numa_nodes),
          measured(vitals.latency_s, Unit::seconds),
          measured(vitals.send_bytes_per_s, Unit::bytes_per_s),
          measured(vitals.receive_bytes_per_s, Unit::bytes_per_s),
          measured(vitals.within_bytes_per_s, Unit::bytes_per_s),
          host.congestion,
          host.mtu < 0 ? "–" : fmt::format("{}", host.mtu),
          host.descriptors < 0 ? "any" : fmt::format("{}", host.descriptors),
          bytes(host.locked_memory),
          host.shm_bytes < 0 ? "none" : bytes(host.shm_bytes),
          bytes(host.memory_bytes),
          bytes(host.cgroup_memory),
          host.cgroup_cpus < 0 ? "any" : fmt::format("{:.1f}", host.cgroup_cpus)};
}

const char* word_of(Ailment::Level level) {
  return level == Ailment::Level::mend ? "mend" : "note";
}

std::string conclusion(const std::vector<Ailment>& findings) {
  const auto grave = std::ranges::count(findings, Ailment::Level::mend, &Ailment::level);
  if (grave == 0) return "nothing has to be mended\n";
  return fmt::format("{} thing{} to mend\n", grave, grave == 1 ? "" : "s");
}

}  // namespace

std::string to_text(const Examination& examination, std::size_t width) {
  const FittedTable table = table_of(examination, width);
  const auto vitals = vitals_of(examination);
  std::string text = table.names() + "\n" + table.units() + "\n";
  for (std::size_t i = 0; i < examination.hosts.size(); ++i)
    text += table.line(cells_of(examination.hosts[i], vitals[i])) + "\n";
  if (const std::string left_out = table.left_out(); !left_out.empty())
    text += fmt::format("left out in this narrow window: {}\n", left_out);
  text += "\n";
  const auto findings = diagnose(examination);
  for (const Ailment& finding : findings)
    text +=
        fmt::format("{}: {}{}\n      {}\n", word_of(finding.level),
                    finding.host.empty() ? "" : finding.host + ": ", finding.what, finding.advice);
  return text + conclusion(findings);
}

Json to_report(const Examination& examination) {
  Json report = to_json(examination);
  const auto vitals = vitals_of(examination);
  Json hosts = Json::array();
  for (std::size_t i = 0; i < examination.hosts.size(); ++i) {
    Json host = to_json(examination.hosts[i]);
    host.update({{"latency_s", vitals[i].latency_s},
                 {"send_bytes_per_s", vitals[i].send_bytes_per_s},
                 {"receive_bytes_per_s", vitals[i].receive_bytes_per_s},
                 {"within_bytes_per_s", vitals[i].within_bytes_per_s}});
    hosts.push_back(std::move(host));
  }
  report["hosts"] = hosts;
  Json findings = Json::array();
  for (const Ailment& finding : diagnose(examination))
    findings.push_back({{"level", word_of(finding.level)},
                        {"host", finding.host},
                        {"what", finding.what},
                        {"advice", finding.advice}});
  report["findings"] = findings;
  report["fine"] = !is_ill(examination);
  return report;
}

bool is_ill(const Examination& examination) {
  const auto findings = diagnose(examination);
  return std::ranges::any_of(
      findings, [](const Ailment& finding) { return finding.level == Ailment::Level::mend; });
}

}  // namespace tutti::tool::doctor
