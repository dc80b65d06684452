// The JSON form of a Machine: docs/formats/tuning.md.
#include <fmt/format.h>

#include <cmath>

#include "core/json.hpp"
#include "tuner/machine.hpp"

namespace tutti::tuner {
namespace {

constexpr const char* kFormat = "tutti tuning";
constexpr int kVersion = 2;
constexpr double kMostSeconds = 3600;  // for anything; more is a slip of the unit
constexpr int kMostCores = 1 << 20;
constexpr std::size_t kMostPoints = 1024;

// ---- writing: doubles in the shortest form that reads back as the same bits

std::string knots_text(const Curve& curve) {
  std::string text;
  for (const auto& knot : curve.knots())
    text += fmt::format("{}[{}, {}]", text.empty() ? "" : ", ", knot.bytes, knot.seconds);
  return "[" + text + "]";
}

std::string link_text(const LinkCost& link) {
  return fmt::format(
      "{{\"measured\": {}, \"latency_s\": {}, \"message_s\": {}, \"byte_s\": {},\n"
      "     \"bytes\": {}}}",
      link.measured, link.latency_s, link.message_s, link.byte_s, knots_text(link.bytes));
}

// ---- reading: every step names the field that is wrong

class Reader {
 public:
  explicit Reader(const Json& document) : document_(document) {}

  Result<Machine> machine() {
    read_all();
    if (!wrong_.ok()) return wrong_;
    return std::move(machine_);
  }

 private:
  void refuse(const std::string& field, const std::string& what) {
    if (wrong_.ok()) wrong_ = Status(Code::invalid_argument, fmt::format("'{}' {}", field, what));
  }

  const Json* need(const Json& object, const std::string& within, const char* name, Json::Kind kind,
                   const char* kind_name) {
    const std::string full = within.empty() ? name : within + "." + name;
    const Json* value = object.find(name);
    if (value == nullptr) return refuse(full, "is missing"), nullptr;
    if (value->kind() != kind) return refuse(full, fmt::format("is not {}", kind_name)), nullptr;
    return value;
  }

  void allow_only(const Json& object, const std::string& within,
                  std::initializer_list<std::string_view> names) {
    for (const auto& [name, value] : object.fields()) {
      bool known = false;
      for (std::string_view right : names) known |= name == right;
      if (!known) refuse(within.empty() ? name : within + "." + name, "is no field of this format");
    }
  }

  void text(const char* name, std::string& to) {
    if (const Json* value = need(document_, "", name, Json::Kind::string, "a string"))
      to = value->string();
  }

  void number(const Json& object, const std::string& within, const char* name, double most,
              double& to) {
    const Json* value = need(object, within, name, Json::Kind::number, "a number");
    if (value == nullptr) return;
    if (value->number() < 0 || value->number() > most)
      return refuse(within.empty() ? name : within + "." + name,
                    fmt::format("is {}, outside 0 … {}", value->number(), most));
    to = value->number();
  }

  // Pairs of numbers.
  bool pairs(const Json& object, const std::string& within, const char* name,
             std::vector<Curve::Knot>& to) {
    const std::string full = within.empty() ? name : within + "." + name;
    const Json* list = need(object, within, name, Json::Kind::array, "an array");
    if (list == nullptr) return false;
    if (list->items().size() > kMostPoints) return refuse(full, "has too many points"), false;
    for (const Json& item : list->items()) {
      if (item.size() != 2 || item[0].kind() != Json::Kind::number ||
          item[1].kind() != Json::Kind::number)
        return refuse(full, fmt::format("has a point {} that is not a pair of numbers", to.size())),
               false;
      to.push_back({item[0].number(), item[1].number()});
    }
    return true;
  }

  void curve(const Json& object, const std::string& within, const char* name, bool may_be_empty,
             Curve& to) {
    const std::string full = within.empty() ? name : within + "." + name;
    std::vector<Curve::Knot> knots;
    if (!pairs(object, within, name, knots)) return;
    if (knots.empty() && !may_be_empty) return refuse(full, "has no points");
    if (!knots.empty() && knots.back().seconds > kMostSeconds)
      return refuse(full, fmt::format("goes beyond {} s", kMostSeconds));
    auto made = Curve::from_knots(std::move(knots));
    if (!made.ok()) return refuse(full, ": " + made.status().message());
    to = *std::move(made);
  }

  void link(const Json& links, const char* name, LinkCost& to) {
    const Json* object = need(links, "links", name, Json::Kind::object, "an object");
    if (object == nullptr) return;
    const std::string within = fmt::format("links.{}", name);
    allow_only(*object, within, {"measured", "latency_s", "message_s", "byte_s", "bytes"});
    if (const Json* value = need(*object, within, "measured", Json::Kind::boolean, "true or false"))
      to.measured = value->boolean();
    number(*object, within, "latency_s", kMostSeconds, to.latency_s);
    number(*object, within, "message_s", kMostSeconds, to.message_s);
    number(*object, within, "byte_s", kMostSeconds, to.byte_s);
    curve(*object, within, "bytes", false, to.bytes);
  }

  void read_all() {
    if (document_.kind() != Json::Kind::object) {
      wrong_ = Status(Code::invalid_argument, "the document is not an object");
      return;
    }
    std::string format;
    text("format", format);
    if (wrong_.ok() && format != kFormat)
      refuse("format", fmt::format("is '{}', not '{}'", format, kFormat));
    double version = 0;
    number(document_, "", "version", 1e9, version);
    if (wrong_.ok() && version != kVersion)
      refuse("version", fmt::format("is {}; this build reads {}", version, kVersion));
    if (!wrong_.ok()) return;
    allow_only(document_, "",
               {"format", "version", "machine", "date", "fingerprint", "cores", "links", "copy",
                "fold", "pull", "meet"});
    text("machine", machine_.name);
    text("date", machine_.date);
    text("fingerprint", machine_.fingerprint);
    double cores = 0;
    number(document_, "", "cores", kMostCores, cores);
    if (cores != std::floor(cores)) refuse("cores", "is not a whole number");
    machine_.cores = static_cast<int>(cores);
    if (const Json* links = need(document_, "", "links", Json::Kind::object, "an object")) {
      allow_only(*links, "links", {"memory", "tcp"});
      link(*links, "memory", machine_.memory);
      link(*links, "tcp", machine_.tcp);
    }
    curve(document_, "", "copy", false, machine_.copy);
    curve(document_, "", "fold", false, machine_.fold);
    curve(document_, "", "pull", true, machine_.pull);
    curve(document_, "", "meet", false, machine_.meet);
  }

  const Json& document_;
  Machine machine_;
  Status wrong_;
};

}  // namespace

std::string to_json(const Machine& machine) {
  return fmt::format(
      "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"machine\": {},\n  \"date\": {},\n"
      "  \"fingerprint\": {},\n  \"cores\": {},\n  \"links\": {{\n    \"memory\": {},\n"
      "    \"tcp\": {}\n  }},\n  \"copy\": {},\n  \"fold\": {},\n  \"pull\": {},\n  \"meet\": "
      "{}\n}}\n",
      kFormat, kVersion, json_quoted(machine.name), json_quoted(machine.date),
      json_quoted(machine.fingerprint), machine.cores, link_text(machine.memory),
      link_text(machine.tcp), knots_text(machine.copy), knots_text(machine.fold),
      knots_text(machine.pull), knots_text(machine.meet));
}

Result<Machine> parse_machine(std::string_view json) {
  auto document = Json::parse(json);
  if (!document.ok()) return document.status();
  return machine_of(*document);
}

Result<Machine> machine_of(const Json& document) { return Reader(document).machine(); }

}  // namespace tutti::tuner
