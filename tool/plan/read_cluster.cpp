#include "tool/plan/read_cluster.hpp"

#include <fmt/format.h>

#include "core/files.hpp"

namespace tutti::tool::plan {

Result<tutti::plan::Cluster> read_cluster(const std::string& word) {
  const bool is_file = word.find('/') != std::string::npos || word.ends_with(".json");
  if (!is_file) return tutti::plan::preset_cluster(word);
  const auto text = read_file(word);
  if (!text.ok())
    return Status(Code::invalid_argument, fmt::format("--cluster {}", text.status().message()));
  auto cluster = tutti::plan::parse_cluster(*text);
  if (!cluster.ok())
    return Status(Code::invalid_argument,
                  fmt::format("--cluster {}: {}", word, cluster.status().message()));
  return cluster;
}

}  // namespace tutti::tool::plan
