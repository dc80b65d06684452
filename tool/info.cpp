// tutti info - what this build has, what this machine is, and which variables are there to be set.
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "core/auth.hpp"
#include "core/json.hpp"
#include "schedule/catalog.hpp"
#include "tool/command.hpp"
#include "tool/info_fabrics.hpp"
#include "tool/info_gpus.hpp"
#include "topology/discover.hpp"
#include "tutti/config.hpp"
#include "tutti/types.hpp"
#include "tutti/version.h"

namespace tutti::tool {
namespace {

constexpr const char* kInfoFooter = R"(Examples:
  tutti info
  tutti info --json
)";

template <class Enum>
Json words(int count, int first = 0) {
  Json list = Json::array();
  for (int i = first; i < count; ++i) list.push_back(to_string(static_cast<Enum>(i)));
  return list;
}

Json build_facts() {
  return {{"version", TUTTI_VERSION},
          {"protocol", kProtocolVersion},
          {"compiler", __VERSION__},
          {"build_type", TUTTI_BUILD_TYPE},
          {"sanitizers", TUTTI_SANITIZED},
          {"openssl", OpenSSL_version(OPENSSL_VERSION_STRING)},
          {"transports", Json::array({
#define TUTTI_TRANSPORT(word) #word,
#include "tutti/transports.def"
#undef TUTTI_TRANSPORT
                         })},
          {"collectives", words<Collective>(kCollectives)},
          {"algorithms", words<Algorithm>(kAlgorithms - 1, 1)},
          {"dtypes", words<Dtype>(kDtypes)},
          {"reduce_ops", words<ReduceOp>(kReduceOps)},
          {"schedules", schedule::catalog().size()}};
}

Json variable_facts() {
  Json list = Json::array();
  for (const ConfigVariable& variable : config_variables())
    list.push_back({{"name", variable.name},
                    {"meaning", variable.meaning},
                    {"default", variable.default_value},
                    {"value", variable.value}});
  return list;
}

Json machine_facts(const topology::Hardware& machine) {
  Json numa = Json::array();
  for (const auto& node : machine.numa_nodes)
    numa.push_back({{"memory_bytes", node.memory_bytes}, {"cpus", node.cpus}});
  Json caches = Json::array();
  for (const auto& domain : machine.l3_domains)
    caches.push_back({{"bytes", domain.bytes}, {"cpus", domain.cpus}});
  return {{"host", machine.host_name}, {"cores", machine.cores},
          {"cpus", machine.cpus},      {"memory_bytes", machine.memory_bytes},
          {"numa_nodes", numa},        {"l3_domains", caches}};
}

Json interface_facts(const topology::Hardware& machine) {
  Json list = Json::array();
  for (const auto& interface : machine.interfaces) {
    Json row = {{"name", interface.name},
                {"addresses", interface.addresses},
                {"up", interface.up},
                {"loopback", interface.loopback}};
    if (interface.megabits_per_s) row["megabits_per_s"] = *interface.megabits_per_s;
    list.push_back(std::move(row));
  }
  return list;
}

std::string join(const Json& list) {
  std::string text;
  for (const Json& word : list.items()) text += (text.empty() ? "" : " ") + word.string();
  return text;
}

void print_build(const Json& build) {
  const std::string& sanitizers = build["sanitizers"].string();
  fmt::print("tutti {}  (protocol {}, {}{}{}, gcc {}, OpenSSL {})\n", build["version"].string(),
             build["protocol"].integer(), build["build_type"].string(),
             sanitizers.empty() ? "" : ", sanitizers ", sanitizers, build["compiler"].string(),
             build["openssl"].string());
  for (const char* name : {"transports", "collectives", "algorithms", "dtypes", "reduce_ops"})
    fmt::print("  {:12} {}\n", name, join(build[name]));
}

void print_variables(const Json& variables) {
  fmt::print("\nenvironment variables\n");
  for (const Json& variable : variables.items()) {
    const std::string& preset = variable["default"].string();
    const std::string& value = variable["value"].string();
    fmt::print("  {:22} {}{}{}\n", variable["name"].string(), variable["meaning"].string(),
               preset.empty() ? "" : fmt::format(" [{}]", preset),
               value.empty() ? "" : fmt::format("\n  {:22} is set to {}", "", value));
  }
}

int info(bool as_json) {
  const auto machine = topology::discover();
  if (!machine.ok()) return complain("info", machine.status());
  if (as_json) {
    const Json document = {{"build", build_facts()},
                           {"machine", machine_facts(*machine)},
                           {"interfaces", interface_facts(*machine)},
                           {"gpus", gpu_facts()},
                           {"fabrics", fabric_facts()},
                           {"variables", variable_facts()}};
    fmt::print("{}\n", document.dump(1));
    return kDone;
  }
  print_build(build_facts());
  fmt::print("\nmachine and network interfaces\n{}", topology::to_text(*machine));
  fmt::print("\nGPUs\n{}", gpu_text(gpu_facts()));
  fmt::print("\nfabrics (libfabric)\n{}", fabric_text(fabric_facts()));
  print_variables(variable_facts());
  return kDone;
}

}  // namespace

Command make_info(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App* parser = app.add_subcommand(
      "info", "version, what is built in, this machine, its GPUs and fabrics, variables");
  parser->add_flag("--json", *as_json, "as JSON");
  parser->footer(kInfoFooter);
  return {parser, [as_json] { return info(*as_json); }};
}

}  // namespace tutti::tool
