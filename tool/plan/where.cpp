#include "tool/plan/where.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <numeric>

#include "tool/numbers.hpp"

namespace tutti::tool::plan {
namespace {

constexpr int kFewestRanks = 2, kMostRanks = 64;

Status refuse(std::string why) { return {Code::invalid_argument, std::move(why)}; }

}  // namespace

std::vector<int> Where::host_of(int n) const {
  std::vector<int> list;
  for (int rank = 0; rank < n && !hosts.empty(); ++rank) list.push_back(rank / per_host());
  return list;
}

void add_where(CLI::App& parser, WhereWords& words) {
  parser.add_option("-n,--ranks", words.ranks, "rank processes, at most, on this host")
      ->check(between(kFewestRanks, kMostRanks));
  parser
      .add_option("--hosts", words.hosts,
                  "measure on several hosts, and between them: a:2,b:2, as tutti run starts ranks")
      ->check(filled())
      ->type_name("LIST");
  parser
      .add_option("--ssh", words.remote_shell,
                  "remote shell for --hosts (default ssh, and none for localhost)")
      ->type_name("CMD");
  parser
      .add_option("--rendezvous", words.rendezvous,
                  "HOST:PORT on the first host where launchers meet (found when not given)")
      ->type_name("HOST:PORT");
}

Result<Where> understand(const WhereWords& words) {
  Where where{words.ranks, {}, words.remote_shell, words.rendezvous};
  if (words.hosts.empty()) {
    if (words.ranks == 0)
      return refuse("say how many ranks to measure with: -n 4, or --hosts a:2,b:2");
    if (!words.remote_shell.empty() || !words.rendezvous.empty())
      return refuse("--ssh and --rendezvous go with --hosts");
    return where;
  }
  auto hosts = parse_hosts(words.hosts);
  if (hosts.ok() && words.ranks > 0) hosts = take_places(*std::move(hosts), words.ranks);
  if (!hosts.ok()) return hosts.status().annotate("--hosts");
  where.hosts = *std::move(hosts);
  where.ranks = 0;
  for (const Host& host : where.hosts) {
    where.ranks += host.ranks;
    if (host.ranks != where.per_host())
      return refuse(fmt::format(
          "--hosts {}: {} takes {} ranks and {} takes {}; all hosts take as many", words.hosts,
          where.hosts.front().name, where.per_host(), host.name, host.ranks));
  }
  if (where.ranks < kFewestRanks || where.ranks > kMostRanks)
    return refuse(fmt::format("--hosts {}: {} ranks lie outside {} … {}", words.hosts, where.ranks,
                              kFewestRanks, kMostRanks));
  return where;
}

}  // namespace tutti::tool::plan
