#include "tool/plan/read_cluster.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace tutti::tool::plan {

Result<tutti::plan::Cluster> read_cluster(const std::string& word) {
  const bool is_file = word.find('/') != std::string::npos || word.ends_with(".json");
  if (!is_file) return tutti::plan::preset_cluster(word);
  std::ifstream file(word, std::ios::binary);
  if (!file)
    return Status(Code::invalid_argument,
                  fmt::format("--cluster {} cannot be read: {}", word, std::strerror(errno)));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  auto cluster = tutti::plan::parse_cluster(text);
  if (!cluster.ok())
    return Status(Code::invalid_argument,
                  fmt::format("--cluster {}: {}", word, cluster.status().message()));
  return cluster;
}

}  // namespace tutti::tool::plan
