// tool/run/order.hpp - what a launcher tells the launcher of another host, over its standard input
// (docs/formats/leash.md). Nothing of it is on a command line: neither the secret, which must not
// be, nor the program's words, which a remote shell would take apart.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/secret.hpp"
#include "tool/run/options.hpp"
#include "tutti/status.hpp"

namespace tutti::tool {

struct NodeOrder {
  RunOptions options;  // of that host; its rendezvous has port 0 where node 0 may choose one
  Secret secret;
  std::string folder;                    // to work in
  std::vector<std::string> environment;  // "NAME=value", to add
  std::string mark;                      // with which the launcher there begins its own lines
};

// One line, without its end. Code::invalid_argument for words that are not UTF-8.
Result<std::string> to_line(const NodeOrder& order);
Result<NodeOrder> read_order(std::string_view line);

// What the launcher there says on its standard output, between its ranks' lines.
std::string ready_line(const std::string& mark, int port);
std::string taken_line(const std::string& mark);
std::string ended_line(const std::string& mark, const std::string& report);
// One of these, read back; nothing for a line of a rank's.
struct NodeLine {
  std::string word;  // "ready", "taken" or "ended"
  std::string rest;  // its port, nothing, its report
};
std::optional<NodeLine> read_node_line(const std::string& mark, std::string_view line);

}  // namespace tutti::tool
