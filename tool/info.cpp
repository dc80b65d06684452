// tutti info - what this build has, what this machine is, and which variables are there to be set.
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/auth.hpp"
#include "schedule/catalog.hpp"
#include "tool/command.hpp"
#include "topology/discover.hpp"
#include "tutti/config.hpp"
#include "tutti/types.hpp"

namespace tutti::tool {
namespace {

using nlohmann::json;

constexpr const char* kFooter = R"(Examples:
  tutti info
  tutti info --json
)";

template <class Enum>
json words(int count, int first = 0) {
  json list = json::array();
  for (int i = first; i < count; ++i) list.push_back(std::string(to_string(static_cast<Enum>(i))));
  return list;
}

json build_facts() {
  return {{"version", TUTTI_VERSION},
          {"protocol", kProtocolVersion},
          {"compiler", __VERSION__},
          {"build_type", TUTTI_BUILD_TYPE},
          {"sanitizers", TUTTI_SANITIZED},
          {"openssl", OpenSSL_version(OPENSSL_VERSION_STRING)},
          {"transports",
           {
#define TUTTI_TRANSPORT(word) #word,
#include "tutti/transports.def"
#undef TUTTI_TRANSPORT
           }},
          {"collectives", words<Collective>(kCollectives)},
          {"algorithms", words<Algorithm>(kAlgorithms - 1, 1)},
          {"dtypes", words<Dtype>(kDtypes)},
          {"reduce_ops", words<ReduceOp>(kReduceOps)},
          {"schedules", schedule::catalog().size()}};
}

json variable_facts() {
  json list = json::array();
  for (const ConfigVariable& variable : config_variables())
    list.push_back({{"name", variable.name},
                    {"meaning", variable.meaning},
                    {"default", variable.default_value},
                    {"value", variable.value}});
  return list;
}

json machine_facts(const topology::Machine& machine) {
  json numa = json::array();
  for (const auto& node : machine.numa_nodes)
    numa.push_back({{"memory_bytes", node.memory_bytes}, {"cpus", node.cpus}});
  json caches = json::array();
  for (const auto& domain : machine.l3_domains)
    caches.push_back({{"bytes", domain.bytes}, {"cpus", domain.cpus}});
  return {{"host", machine.host_name}, {"cores", machine.cores},
          {"cpus", machine.cpus},      {"memory_bytes", machine.memory_bytes},
          {"numa_nodes", numa},        {"l3_domains", caches}};
}

json interface_facts(const topology::Machine& machine) {
  json list = json::array();
  for (const auto& interface : machine.interfaces) {
    json row = {{"name", interface.name},
                {"addresses", interface.addresses},
                {"up", interface.up},
                {"loopback", interface.loopback}};
    if (interface.megabits_per_s) row["megabits_per_s"] = *interface.megabits_per_s;
    list.push_back(std::move(row));
  }
  return list;
}

std::string join(const json& list) {
  return fmt::format("{}", fmt::join(list.get<std::vector<std::string>>(), " "));
}

void print_build(const json& build) {
  const std::string sanitizers = build["sanitizers"];
  fmt::print("tutti {}  (protocol {}, {}{}{}, gcc {}, OpenSSL {})\n", std::string(build["version"]),
             build["protocol"].get<int>(), std::string(build["build_type"]),
             sanitizers.empty() ? "" : ", sanitizers ", sanitizers, std::string(build["compiler"]),
             std::string(build["openssl"]));
  for (const char* name : {"transports", "collectives", "algorithms", "dtypes", "reduce_ops"})
    fmt::print("  {:12} {}\n", name, join(build[name]));
}

void print_variables(const json& variables) {
  fmt::print("\nenvironment variables\n");
  for (const auto& variable : variables) {
    const std::string preset = variable["default"];
    const std::string value = variable["value"];
    fmt::print("  {:22} {}{}{}\n", std::string(variable["name"]), std::string(variable["meaning"]),
               preset.empty() ? "" : fmt::format(" [{}]", preset),
               value.empty() ? "" : fmt::format("\n  {:22} is set to {}", "", value));
  }
}

int info(bool as_json) {
  const auto machine = topology::discover();
  if (!machine.ok()) return complain("info", machine.status());
  if (as_json) {
    const json document = {{"build", build_facts()},
                           {"machine", machine_facts(*machine)},
                           {"interfaces", interface_facts(*machine)},
                           {"variables", variable_facts()}};
    fmt::print("{}\n", document.dump(1));
    return kDone;
  }
  print_build(build_facts());
  fmt::print("\nmachine and network interfaces\n{}", topology::to_text(*machine));
  print_variables(variable_facts());
  return kDone;
}

}  // namespace

Command make_info(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App* parser =
      app.add_subcommand("info", "version, what is built in, this machine, variables");
  parser->add_flag("--json", *as_json, "as JSON");
  parser->footer(kFooter);
  return {parser, [as_json] { return info(*as_json); }};
}

}  // namespace tutti::tool
