#include "schedule/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/build/builders.hpp"

namespace tutti::schedule {
namespace {

std::string names_of(const std::vector<Algorithm>& algorithms) {
  std::string names;
  for (Algorithm algorithm : algorithms) {
    names += names.empty() ? "" : ", ";
    names += to_string(algorithm);
  }
  return names;
}

Status check_request(const Request& request, const Entry* entry) {
  const int n = request.size;
  if (n < 1) return {Code::invalid_argument, fmt::format("a group of {} ranks cannot be", n)};
  if (request.rank < 0 || request.rank >= (entry != nullptr ? entry->programs_of(n) : n)) {
    return {Code::invalid_argument, fmt::format("rank {} is not in 0 … {}", request.rank, n - 1)};
  }
  if (request.root < 0 || request.root >= n) {
    return {Code::invalid_argument, fmt::format("root {} is not in 0 … {}", request.root, n - 1)};
  }
  if (!request.host_of.empty() && request.host_of.size() != static_cast<std::size_t>(n)) {
    return {Code::invalid_argument,
            fmt::format("host_of names {} ranks of {}", request.host_of.size(), n)};
  }
  if (!request.walk.empty() && request.walk.size() != static_cast<std::size_t>(n)) {
    return {Code::invalid_argument,
            fmt::format("walk names {} ranks of {}", request.walk.size(), n)};
  }
  return {};
}

std::vector<Entry> built_in_rows() {
  std::vector<Entry> all;
  for (const std::span<const Entry> rows : {
#define TUTTI_ALGORITHM(word, WORD) builders::word##_rows(),
#include "tutti/algorithms.def"
#undef TUTTI_ALGORITHM
       })
    all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

}  // namespace

const Catalog& Catalog::built_in() {
  static const Catalog catalog(built_in_rows());
  return catalog;
}

Catalog::Catalog(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.collective < b.collective; });
}

Catalog Catalog::with(std::span<const Entry> more) const {
  std::vector<Entry> all = entries_;
  all.insert(all.end(), more.begin(), more.end());
  return Catalog(std::move(all));
}

const Entry* Catalog::find(Collective collective, Algorithm algorithm) const {
  for (const Entry& entry : entries_) {
    if (entry.collective == collective && entry.algorithm == algorithm) return &entry;
  }
  return nullptr;
}

std::vector<Algorithm> Catalog::algorithms_for(Collective collective) const {
  std::vector<Algorithm> found;
  for (const Entry& entry : entries_) {
    if (entry.collective == collective) found.push_back(entry.algorithm);
  }
  return found;
}

// Those that exist for this very request, for the message that says so.
std::vector<Algorithm> Catalog::applicable(const Request& request) const {
  std::vector<Algorithm> found;
  for (const Entry& entry : entries_) {
    if (entry.collective != request.collective) continue;
    if (!entry.applies || entry.applies(request)) found.push_back(entry.algorithm);
  }
  return found;
}

Result<Program> Catalog::build(Algorithm algorithm, const Request& request) const {
  const Entry* entry = find(request.collective, algorithm);
  if (Status status = check_request(request, entry); !status.ok()) return status;
  if (!entry) {
    return Status(
        Code::invalid_argument,
        fmt::format("there is no {} for {}; there are {}", to_string(algorithm),
                    to_string(request.collective), names_of(algorithms_for(request.collective))));
  }
  if (entry->applies && !entry->applies(request)) {
    return Status(Code::invalid_argument,
                  fmt::format("{} by {} does not exist for these {} ranks; {} do",
                              to_string(request.collective), to_string(algorithm), request.size,
                              names_of(applicable(request))));
  }
  return entry->build(request);
}

Result<std::vector<Program>> Catalog::build_all(Algorithm algorithm, Request request) const {
  const Entry* entry = find(request.collective, algorithm);
  const int count = entry != nullptr ? entry->programs_of(request.size) : request.size;
  std::vector<Program> programs;
  for (request.rank = 0; request.rank < count; ++request.rank) {
    Result<Program> program = build(algorithm, request);
    if (!program.ok()) return program.status();
    programs.push_back(*std::move(program));
  }
  return programs;
}

}  // namespace tutti::schedule
