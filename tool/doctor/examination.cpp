// An examination as JSON, and back.
#include "tool/doctor/examination.hpp"

namespace tutti::tool::doctor {
namespace {

// Every field once, for both ways.
template <class Facts, class Visit>
void each_field(Facts& facts, Visit visit) {
  visit("name", facts.name);
  visit("ranks", facts.ranks);
  visit("version", facts.version);
  visit("cpus", facts.cpus);
  visit("numa_nodes", facts.numa_nodes);
  visit("memory_bytes", facts.memory_bytes);
  visit("interface", facts.interface);
  visit("mtu", facts.mtu);
  visit("congestion", facts.congestion);
  visit("send_buffer", facts.send_buffer);
  visit("receive_buffer", facts.receive_buffer);
  visit("descriptors", facts.descriptors);
  visit("needed_descriptors", facts.needed_descriptors);
  visit("needed_memory", facts.needed_memory);
  visit("threads", facts.threads);
  visit("needed_threads", facts.needed_threads);
  visit("locked_memory", facts.locked_memory);
  visit("shm_bytes", facts.shm_bytes);
  visit("cgroup_memory", facts.cgroup_memory);
  visit("cgroup_cpus", facts.cgroup_cpus);
  visit("load", facts.load);
  visit("numa_balancing", facts.numa_balancing);
  visit("governor", facts.governor);
  visit("pinning", facts.pinning);
}

void take(const Json& json, std::string& field) { field = json.string(); }
void take(const Json& json, std::int64_t& field) { field = json.integer(); }
void take(const Json& json, double& field) { field = json.number(); }

template <class Record, class Read>
Status read_list(const Json& json, const char* name, std::vector<Record>& list, Read read) {
  const Json* items = json.find(name);
  if (items == nullptr) return {Code::corrupt, std::string("there is no ") + name};
  for (const Json& item : items->items()) {
    auto record = read(item);
    if (!record.ok()) return record.status();
    list.push_back(*std::move(record));
  }
  return {};
}

}  // namespace

Json to_json(const HostRecord& facts) {
  Json json = Json::object();
  each_field(facts, [&](const char* name, const auto& field) { json.append(name, Json(field)); });
  return json;
}

Result<HostRecord> read_facts(const Json& json) {
  HostRecord facts;
  const char* missing = nullptr;
  each_field(facts, [&](const char* name, auto& field) {
    if (const Json* value = json.find(name))
      take(*value, field);
    else
      missing = name;
  });
  if (missing != nullptr) return Status(Code::corrupt, std::string("a host has no ") + missing);
  return facts;
}

Json to_json(const Path& path) {
  return {{"from", path.from},
          {"to", path.to},
          {"latency_s", path.latency_s},
          {"bytes_per_s", path.bytes_per_s}};
}

Result<Path> read_path(const Json& json) {
  for (const char* name : {"from", "to", "latency_s", "bytes_per_s"})
    if (json.find(name) == nullptr)
      return Status(Code::corrupt, std::string("a path has no ") + name);
  return Path{static_cast<int>(json["from"].integer()), static_cast<int>(json["to"].integer()),
              json["latency_s"].number(), json["bytes_per_s"].number()};
}

Json to_json(const Examination& examination) {
  Json hosts = Json::array();
  for (const HostRecord& host : examination.hosts) hosts.push_back(to_json(host));
  Json paths = Json::array();
  for (const Path& path : examination.paths) paths.push_back(to_json(path));
  return {{"hosts", hosts}, {"host_of", examination.host_of}, {"paths", paths}};
}

Result<Examination> read_examination(const Json& json) {
  Examination examination;
  if (Status status = read_list(json, "hosts", examination.hosts, read_facts); !status.ok())
    return status;
  if (Status status = read_list(json, "paths", examination.paths, read_path); !status.ok())
    return status;
  const auto read_host = [](const Json& item) -> Result<int> {
    return static_cast<int>(item.integer());
  };
  if (Status status = read_list(json, "host_of", examination.host_of, read_host); !status.ok())
    return status;
  return examination;
}

}  // namespace tutti::tool::doctor
