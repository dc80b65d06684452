// The JSON form of a Cluster: docs/formats/cluster.md.
#include <fmt/format.h>

#include <initializer_list>

#include "core/json.hpp"
#include "core/words.hpp"
#include "plan/cluster.hpp"
#include "plan/units.hpp"

namespace tutti::plan {
namespace {

constexpr const char* kFormat = "tutti cluster";
constexpr int kVersion = 1;
constexpr int kMostRanks = 1 << 24;
constexpr std::size_t kMostPoints = 1024;

// ---- reading: the first thing that is wrong is kept, and names its field

class Reader {
 public:
  explicit Reader(const Json& document) : document_(document) {}

  Result<Cluster> cluster() {
    read_all();
    if (wrong_.ok()) wrong_ = check_cluster(cluster_);
    if (!wrong_.ok()) return wrong_;
    return std::move(cluster_);
  }

 private:
  void refuse(std::string_view field, std::string_view what) {
    if (wrong_.ok()) wrong_ = Status(Code::invalid_argument, fmt::format("'{}' {}", field, what));
  }

  static std::string full_name(std::string_view within, std::string_view name) {
    return within.empty() ? std::string(name) : fmt::format("{}.{}", within, name);
  }

  void allow_only(const Json& object, std::string_view within,
                  std::initializer_list<std::string_view> names) {
    for (const auto& [name, value] : object.fields()) {
      bool known = false;
      for (const std::string_view right : names) known |= name == right;
      if (!known)
        refuse(full_name(within, name), fmt::format("is no field of this format; there are: {}",
                                                    list_words({names.begin(), names.size()})));
    }
  }

  const Json* find(const Json& object, std::string_view within, std::string_view name, bool needed,
                   Json::Kind kind, std::string_view kind_name) {
    const Json* value = object.find(name);
    if (value == nullptr) {
      if (needed) refuse(full_name(within, name), "is missing");
      return nullptr;
    }
    if (value->kind() == kind) return value;
    const bool lacks_unit = kind == Json::Kind::string && value->kind() == Json::Kind::number;
    refuse(full_name(within, name),
           lacks_unit ? std::string("is a bare number: write it as text with its unit")
                      : fmt::format("is not {}", kind_name));
    return nullptr;
  }

  void text(std::string_view name, bool needed, std::string& to) {
    if (const Json* value = find(document_, "", name, needed, Json::Kind::string, "text"))
      to = value->string();
  }

  void quantity(const Json& object, std::string_view within, std::string_view name, bool needed,
                Unit unit, double& to) {
    const Json* value = find(object, within, name, needed, Json::Kind::string, "text with a unit");
    if (value == nullptr) return;
    const auto read = read_quantity(value->string(), unit);
    if (!read.ok()) return refuse(full_name(within, name), "is " + read.status().message());
    to = *read;
  }

  void number(const Json& object, std::string_view within, std::string_view name, double& to) {
    if (const Json* value = find(object, within, name, false, Json::Kind::number, "a number"))
      to = value->number();
  }

  void count(const Json& object, std::string_view within, std::string_view name, bool needed,
             int& to) {
    const Json* value = find(object, within, name, needed, Json::Kind::number, "a number");
    if (value == nullptr) return;
    if (const auto count = value->whole(); !count || *count < 0 || *count > kMostRanks)
      return refuse(full_name(within, name),
                    fmt::format("is {}, no whole number in 0 … {}", value->number(), kMostRanks));
    to = static_cast<int>(value->integer());
  }

  void wire(std::string_view name, bool needed, Wire& to) {
    const Json* object = find(document_, "", name, needed, Json::Kind::object, "an object");
    if (object == nullptr) return;
    allow_only(*object, name, {"latency", "overhead", "bandwidth"});
    quantity(*object, name, "latency", true, Unit::seconds, to.latency);
    quantity(*object, name, "overhead", false, Unit::seconds, to.overhead);
    quantity(*object, name, "bandwidth", true, Unit::bytes_per_s, to.bandwidth);
  }

  void processor() {
    const Json* object = find(document_, "", "processor", false, Json::Kind::object, "an object");
    if (object == nullptr) return;
    const std::string_view name = "processor";
    allow_only(*object, name,
               {"peak", "efficiency", "memory", "memory_bandwidth", "reduce_bandwidth"});
    Processor& to = cluster_.processor;
    quantity(*object, name, "peak", false, Unit::flops, to.peak_flops);
    number(*object, name, "efficiency", to.efficiency);
    quantity(*object, name, "memory", false, Unit::bytes, to.memory_bytes);
    quantity(*object, name, "memory_bandwidth", false, Unit::bytes_per_s, to.memory_bandwidth);
    quantity(*object, name, "reduce_bandwidth", false, Unit::bytes_per_s, to.reduce_bandwidth);
  }

  void fabric() {
    std::string word = "hosts";
    text("fabric", true, word);
    if (const auto read = parse_fabric(word))
      cluster_.fabric = *read;
    else
      refuse("fabric", fmt::format("is '{}', not flat, hosts, fat_tree or torus_2d", word));
    if (const Json* value = find(document_, "", "in_network_reduction", false, Json::Kind::boolean,
                                 "true or false"))
      cluster_.in_network_reduction = value->boolean();
  }

  void machine() {
    const Json* object = find(document_, "", "machine", false, Json::Kind::object, "an object");
    if (object == nullptr) return;
    auto read = tuner::machine_of(*object);
    if (!read.ok()) return refuse("machine", "has a fault: " + read.status().message());
    cluster_.machine = *std::move(read);
  }

  void points(const Json& list, const std::string& field, std::vector<Correction::Point>& to) {
    if (list.items().empty() || list.items().size() > kMostPoints)
      return refuse(field, fmt::format("has {} points", list.items().size()));
    for (const Json& item : list.items()) {
      const bool pair = item.size() == 2 && item[0].kind() == Json::Kind::number &&
                        item[1].kind() == Json::Kind::number;
      if (!pair) return refuse(field, "has a point that is not a pair of numbers");
      const Correction::Point point{item[0].number(), item[1].number()};
      if (!(point.ratio > 0) || (!to.empty() && point.bytes <= to.back().bytes))
        return refuse(field, "does not rise in bytes, or has a ratio that is not above zero");
      to.push_back(point);
    }
  }

  void correction(const Json& item, const std::string& field) {
    if (item.kind() != Json::Kind::object) return refuse(field, "is not an object");
    allow_only(item, field, {"collective", "algorithm", "ranks", "ratios"});
    Correction read;
    const Json* word = find(item, field, "collective", true, Json::Kind::string, "text");
    const auto collective = word ? parse_collective(word->string()) : std::nullopt;
    if (!collective) return refuse(field + ".collective", "names no collective");
    word = find(item, field, "algorithm", true, Json::Kind::string, "text");
    const auto algorithm = word ? parse_algorithm(word->string()) : std::nullopt;
    if (!algorithm) return refuse(field + ".algorithm", "names no algorithm");
    read.collective = *collective;
    read.algorithm = *algorithm;
    count(item, field, "ranks", true, read.ranks);
    if (const Json* list = find(item, field, "ratios", true, Json::Kind::array, "an array"))
      points(*list, field + ".ratios", read.points);
    cluster_.corrections.push_back(std::move(read));
  }

  void corrections() {
    const Json* list = find(document_, "", "corrections", false, Json::Kind::array, "an array");
    if (list == nullptr) return;
    if (!cluster_.machine) refuse("corrections", "contradicts 'machine', which is missing");
    for (std::size_t i = 0; i < list->items().size() && wrong_.ok(); ++i)
      correction(list->items()[i], fmt::format("corrections[{}]", i));
  }

  bool is_ours() {
    if (document_.kind() != Json::Kind::object) {
      wrong_ = Status(Code::invalid_argument, "the document is not an object");
      return false;
    }
    std::string format;
    text("format", true, format);
    if (format != kFormat) refuse("format", fmt::format("is '{}', not '{}'", format, kFormat));
    int version = 0;
    count(document_, "", "version", true, version);
    if (version != kVersion)
      refuse("version", fmt::format("is {}; this build reads {}", version, kVersion));
    return wrong_.ok();
  }

  void read_all() {
    if (!is_ours()) return;
    allow_only(document_, "",
               {"format", "version", "name", "source", "fabric", "ranks_per_host", "max_ranks",
                "within", "between", "host_bandwidth", "oversubscription", "hosts_per_switch",
                "in_network_reduction", "processor", "machine", "corrections"});
    text("name", true, cluster_.name);
    text("source", false, cluster_.source);
    fabric();
    count(document_, "", "ranks_per_host", false, cluster_.ranks_per_host);
    count(document_, "", "max_ranks", false, cluster_.max_ranks);
    const bool one_host = cluster_.max_ranks > 0 && cluster_.max_ranks <= cluster_.ranks_per_host;
    wire("within", cluster_.ranks_per_host > 1, cluster_.within);
    wire("between", !one_host, cluster_.between);
    if (cluster_.ranks_per_host == 1 && document_.find("within") != nullptr)
      refuse("within", "contradicts 'ranks_per_host', which is 1");
    quantity(document_, "", "host_bandwidth", false, Unit::bytes_per_s, cluster_.host_bandwidth);
    number(document_, "", "oversubscription", cluster_.oversubscription);
    count(document_, "", "hosts_per_switch", false, cluster_.hosts_per_switch);
    processor();
    machine();
    corrections();
  }

  const Json& document_;
  Cluster cluster_;
  Status wrong_;
};

// ---- writing

std::string wire_text(const Wire& wire) {
  return fmt::format("{{\"latency\": \"{}\", \"overhead\": \"{}\", \"bandwidth\": \"{}\"}}",
                     quantity_text(wire.latency, Unit::seconds),
                     quantity_text(wire.overhead, Unit::seconds),
                     quantity_text(wire.bandwidth, Unit::bytes_per_s));
}

std::string processor_text(const Processor& processor) {
  std::string text;
  const auto add = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", name, value);
  };
  const auto quantity = [&](std::string_view name, double value, Unit unit) {
    if (value > 0) add(name, json_quoted(quantity_text(value, unit)));
  };
  quantity("peak", processor.peak_flops, Unit::flops);
  if (processor.efficiency > 0) add("efficiency", fmt::format("{}", processor.efficiency));
  quantity("memory", processor.memory_bytes, Unit::bytes);
  quantity("memory_bandwidth", processor.memory_bandwidth, Unit::bytes_per_s);
  quantity("reduce_bandwidth", processor.reduce_bandwidth, Unit::bytes_per_s);
  return "{" + text + "}";
}

std::string corrections_text(const std::vector<Correction>& corrections) {
  std::string text;
  for (const Correction& each : corrections) {
    std::string points;
    for (const auto& point : each.points)
      points += fmt::format("{}[{}, {}]", points.empty() ? "" : ", ", point.bytes, point.ratio);
    text += fmt::format(
        "{}\n    {{\"collective\": \"{}\", \"algorithm\": \"{}\", \"ranks\": {}, \"ratios\": "
        "[{}]}}",
        text.empty() ? "" : ",", to_string(each.collective), to_string(each.algorithm), each.ranks,
        points);
  }
  return "[" + text + "\n  ]";
}

std::string indented(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::string out;
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "  ";
  }
  return out;
}

}  // namespace

Result<Cluster> parse_cluster(std::string_view json) {
  auto document = Json::parse(json);
  if (!document.ok()) return Status(Code::invalid_argument, document.status().message());
  return Reader(*document).cluster();
}

std::string to_json(const Cluster& cluster) {
  std::string text;
  const auto add = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{}\n  \"{}\": {}", text.empty() ? "" : ",", name, value);
  };
  add("format", json_quoted(kFormat));
  add("version", std::to_string(kVersion));
  add("name", json_quoted(cluster.name));
  if (!cluster.source.empty()) add("source", json_quoted(cluster.source));
  add("fabric", json_quoted(to_string(cluster.fabric)));
  add("ranks_per_host", std::to_string(cluster.ranks_per_host));
  if (cluster.max_ranks > 0) add("max_ranks", std::to_string(cluster.max_ranks));
  if (cluster.ranks_per_host > 1) add("within", wire_text(cluster.within));
  if (cluster.between.bandwidth > 0) add("between", wire_text(cluster.between));
  if (cluster.host_bandwidth > 0)
    add("host_bandwidth", json_quoted(quantity_text(cluster.host_bandwidth, Unit::bytes_per_s)));
  if (cluster.fabric == Fabric::fat_tree) {
    add("oversubscription", fmt::format("{}", cluster.oversubscription));
    add("hosts_per_switch", std::to_string(cluster.hosts_per_switch));
  }
  if (cluster.in_network_reduction) add("in_network_reduction", "true");
  if (cluster.processor != Processor{}) add("processor", processor_text(cluster.processor));
  if (cluster.machine) add("machine", indented(tuner::to_json(*cluster.machine)));
  if (!cluster.corrections.empty()) add("corrections", corrections_text(cluster.corrections));
  return "{" + text + "\n}\n";
}

}  // namespace tutti::plan
