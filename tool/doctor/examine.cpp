// The ranks' role: everybody measures, the first rank of a host looks at it, rank 0 gathers.
#include <algorithm>
#include <array>

#include "tool/doctor/diagnosis.hpp"
#include "tool/doctor/doctor.hpp"

namespace tutti::tool::doctor {
namespace {

constexpr std::uint32_t kGatherTag = 8;
constexpr std::size_t kMostAgain = 32;  // paths that are measured a second time

// Of every rank, on rank 0.
Result<std::vector<std::string>> gather(Group& group, const std::string& own) {
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(group.size()));
  const std::vector<std::uint64_t> size = {own.size()};
  if (Status status = group.all_gather(ConstBuffer::of(size), Buffer::of(sizes)); !status.ok())
    return status;
  std::vector<std::string> texts;
  if (group.rank() != 0) {
    const std::vector<std::uint8_t> bytes(own.begin(), own.end());
    if (Status status = group.send(ConstBuffer::of(bytes), 0, kGatherTag); !status.ok())
      return status;
    return texts;
  }
  texts.push_back(own);
  for (int rank = 1; rank < group.size(); ++rank) {
    std::vector<std::uint8_t> bytes(sizes[static_cast<std::size_t>(rank)]);
    if (auto got = group.recv(Buffer::of(bytes), rank, kGatherTag); !got.ok()) return got.status();
    texts.emplace_back(bytes.begin(), bytes.end());
  }
  return texts;
}

// The facts of this host, told by its first rank; before anything is measured, for how busy it is.
Json facts_to_tell(const Group& group) {
  const auto hosts = group.hosts();
  const int mine = hosts[static_cast<std::size_t>(group.rank())];
  if (std::find(hosts.begin(), hosts.end(), mine) - hosts.begin() != group.rank()) return nullptr;
  const auto beside = static_cast<int>(std::count(hosts.begin(), hosts.end(), mine));
  return to_json(look_at_this_host(beside, group.size()));
}

Status take_in(const std::string& text, Examination& examination) {
  const auto json = Json::parse(text);
  if (!json.ok()) return json.status();
  if (const Json& host = (*json)["host"]; !host.is_null()) {
    auto facts = read_facts(host);
    if (!facts.ok()) return facts.status();
    examination.hosts.push_back(*std::move(facts));
  }
  for (const Json& item : (*json)["paths"].items()) {
    const auto path = read_path(item);
    if (!path.ok()) return path.status();
    examination.paths.push_back(*path);
  }
  return {};
}

Status gather_findings(Group& group, const Json& facts, const std::vector<Path>& paths,
                       Examination& examination) {
  Json list = Json::array();
  for (const Path& path : paths) list.push_back(to_json(path));
  const auto texts = gather(group, Json{{"host", facts}, {"paths", list}}.dump());
  if (!texts.ok()) return texts.status();
  for (const std::string& text : *texts)
    if (Status status = take_in(text, examination); !status.ok()) return status;
  return {};
}

// Rank 0's list, on every rank.
Result<std::vector<Path>> share_paths(Group& group, const std::vector<Path>& paths) {
  std::array<std::int64_t, 1 + 2 * kMostAgain> words{};
  words[0] = static_cast<std::int64_t>(std::min(paths.size(), kMostAgain));
  for (std::size_t i = 0; i < static_cast<std::size_t>(words[0]); ++i) {
    words[1 + 2 * i] = paths[i].from;
    words[2 + 2 * i] = paths[i].to;
  }
  if (Status status = group.broadcast(Buffer::of(words), 0); !status.ok()) return status;
  std::vector<Path> shared;
  for (std::size_t i = 0; i < static_cast<std::size_t>(words[0]); ++i)
    shared.push_back(
        {static_cast<int>(words[1 + 2 * i]), static_cast<int>(words[2 + 2 * i]), 0, 0});
  return shared;
}

// A path that is odd may only have been disturbed.
Status look_again(Group& group, const ProbeOptions& options, Examination& examination) {
  const auto odd =
      share_paths(group, group.rank() == 0 ? odd_paths(examination) : std::vector<Path>());
  if (!odd.ok()) return odd.status();
  if (odd->empty()) return {};
  const auto paths = probe_again(group, options, *odd);
  if (!paths.ok()) return paths.status();
  Examination second;
  if (Status status = gather_findings(group, nullptr, *paths, second); !status.ok()) return status;
  for (const Path& better : second.paths)
    for (Path& path : examination.paths)
      if (path.from == better.from && path.to == better.to)
        path.bytes_per_s = std::max(path.bytes_per_s, better.bytes_per_s);
  return {};
}

}  // namespace

Result<Examination> examine(Group& group, const ProbeOptions& options) {
  const Json facts = facts_to_tell(group);
  const auto paths = probe(group, options);
  if (!paths.ok()) return paths.status();
  Examination examination;
  examination.host_of = group.hosts();
  if (Status status = gather_findings(group, facts, *paths, examination); !status.ok())
    return status;
  if (Status status = look_again(group, options, examination); !status.ok()) return status;
  return examination;
}

}  // namespace tutti::tool::doctor
