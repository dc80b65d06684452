// topology/racks.hpp - which rack each host stands in, as a file says it (docs/formats/racks.md).
//
//   # rack: hosts
//   row1/r1: node[01-16]
//   row1/r2: node17 node18
//
// Pure: TUTTI_RACKS names the file, and group reads it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tutti/status.hpp"

namespace tutti::topology {

inline constexpr std::size_t kLongestRack = 95;

class Racks {
 public:
  // Code::invalid_argument names the line, and what is wrong with it.
  static Result<Racks> parse(std::string_view text);

  // By its name, or by that before the first dot; empty: not in the file.
  std::string rack_of(const std::string& host) const;

 private:
  Status add_line(std::string_view line, int number);
  Status add_host(const std::string& host, const std::string& rack, int line);

  struct Entry {
    std::string rack;
    int line = 0;
  };
  std::map<std::string, Entry> hosts_;
};

}  // namespace tutti::topology
