#include "tool/run/order.hpp"

#include <fmt/format.h>

#include "core/json.hpp"
#include "core/words.hpp"
#include "tutti/version.h"

namespace tutti::tool {
namespace {

constexpr const char* kFormat = "tutti order 1";

std::vector<std::string> words_of(const Json& list) {
  std::vector<std::string> words;
  for (const Json& word : list.items()) words.push_back(word.string());
  return words;
}

}  // namespace

Result<std::string> to_line(const NodeOrder& order) {
  const RunOptions& options = order.options;
  for (const auto* words : {&options.program, &order.environment})
    for (const std::string& word : *words)
      if (!is_utf8(word))
        return Status(Code::invalid_argument,
                      fmt::format("'{}' is not UTF-8 and cannot be told to another host", word));
  return Json{{"format", kFormat},
              {"version", TUTTI_VERSION},
              {"secret", to_hex(order.secret)},
              {"mark", order.mark},
              {"folder", order.folder},
              {"environment", order.environment},
              {"program", options.program},
              {"ranks", options.ranks},
              {"nodes", options.nodes},
              {"node", options.node_rank},
              {"rendezvous", options.rendezvous},
              {"join_timeout_ms", options.join_timeout.count()},
              {"grace_ms", options.grace.count()},
              {"with_switch", options.with_switch},
              {"leave_daemons", options.leave_daemons},
              {"max_restarts", options.max_restarts},
              {"restart", options.restart},
              {"prefixes", options.tee},
              {"makes_groups", options.makes_groups},
              {"log_dir", options.log_dir}}
      .dump_ascii();
}

Result<NodeOrder> read_order(std::string_view line) {
  auto document = Json::parse(line);
  if (!document.ok()) return document.status().annotate("the order cannot be read");
  const Json& said = *document;
  if (said["format"] != kFormat || said["version"] != TUTTI_VERSION)
    return Status(Code::mismatch,
                  fmt::format("it is tutti {}, and the launcher that started it is tutti {}; "
                              "install the same on every host",
                              TUTTI_VERSION, said["version"].string()));
  NodeOrder order;
  order.secret = from_hex(said["secret"].string());
  order.mark = said["mark"].string();
  order.folder = said["folder"].string();
  order.environment = words_of(said["environment"]);
  RunOptions& options = order.options;
  options.program = words_of(said["program"]);
  options.ranks = static_cast<int>(said["ranks"].integer());
  options.nodes = static_cast<int>(said["nodes"].integer());
  options.node_rank = static_cast<int>(said["node"].integer());
  options.rendezvous = said["rendezvous"].string();
  options.join_timeout = std::chrono::milliseconds(said["join_timeout_ms"].integer());
  options.grace = std::chrono::milliseconds(said["grace_ms"].integer());
  options.with_switch = said["with_switch"].boolean();
  options.leave_daemons = said["leave_daemons"].boolean();
  options.max_restarts = static_cast<int>(said["max_restarts"].integer());
  options.restart = static_cast<int>(said["restart"].integer());
  options.tee = said["prefixes"].boolean();
  options.prefixes = false;
  options.makes_groups = said["makes_groups"].boolean();
  options.log_dir = said["log_dir"].string();
  if (options.program.empty() || order.secret.empty() || order.mark.empty())
    return Status(Code::corrupt, "the order says too little");
  return order;
}

std::string ready_line(const std::string& mark, int port) {
  return fmt::format("tutti-{} ready {}\n", mark, port);
}

std::string taken_line(const std::string& mark) { return fmt::format("tutti-{} taken \n", mark); }

std::string ended_line(const std::string& mark, const std::string& report) {
  return fmt::format("tutti-{} ended {}\n", mark, report);
}

std::optional<NodeLine> read_node_line(const std::string& mark, std::string_view line) {
  const std::string beginning = fmt::format("tutti-{} ", mark);
  if (!line.starts_with(beginning)) return std::nullopt;
  line.remove_prefix(beginning.size());
  const std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  return NodeLine{std::string(line.substr(0, blank)), std::string(line.substr(blank + 1))};
}

}  // namespace tutti::tool
