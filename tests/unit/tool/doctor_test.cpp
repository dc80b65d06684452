// What `tutti doctor` makes of examinations.
#include <gtest/gtest.h>

#include <set>

#include "tool/doctor/diagnosis.hpp"
#include "tool/doctor/probes.hpp"
#include "tool/doctor/report.hpp"

namespace tutti::tool::doctor {
namespace {

constexpr double kUsual = 125e6;

HostRecord well(std::string name) {
  HostRecord host;
  host.name = std::move(name);
  host.ranks = 1;
  host.version = "1";
  host.cpus = 8;
  host.numa_nodes = 1;
  host.mtu = 1500;
  host.congestion = "cubic";
  return host;
}

// One rank on each; all pairs are equally fast.
Examination cluster(int hosts) {
  Examination examination;
  for (int from = 0; from < hosts; ++from) {
    examination.hosts.push_back(well(std::string(1, static_cast<char>('a' + from))));
    examination.host_of.push_back(from);
    for (int to = 0; to < hosts; ++to)
      if (to != from) examination.paths.push_back({from, to, 50e-6, kUsual});
  }
  return examination;
}

template <class Which>
void slow_down(Examination& examination, Which which, double share) {
  for (Path& path : examination.paths)
    if (which(path)) path.bytes_per_s *= share;
}

std::vector<Ailment> to_mend(const Examination& examination) {
  std::vector<Ailment> found = diagnose(examination);
  std::erase_if(found, [](const Ailment& one) { return one.level == Ailment::Level::note; });
  return found;
}

TEST(Doctor, equal_hosts_are_well) {
  for (const int hosts : {1, 2, 3, 8}) {
    EXPECT_TRUE(diagnose(cluster(hosts)).empty()) << hosts;
    EXPECT_FALSE(is_ill(cluster(hosts)));
  }
}

TEST(Doctor, a_slow_host_is_named_and_no_other) {
  for (const int hosts : {3, 4, 7})
    for (int slow = 0; slow < hosts; ++slow) {
      Examination examination = cluster(hosts);
      slow_down(
          examination, [&](const Path& path) { return path.from == slow || path.to == slow; }, 0.1);
      const auto found = to_mend(examination);
      ASSERT_EQ(found.size(), 2U);  // it sends, and it receives
      for (const Ailment& one : found)
        EXPECT_EQ(one.host, examination.hosts[static_cast<std::size_t>(slow)].name);
    }
}

TEST(Doctor, a_host_that_is_slow_in_one_direction_is_named_for_that) {
  Examination examination = cluster(4);
  slow_down(
      examination, [](const Path& path) { return path.to == 2; }, 0.3);
  const auto found = to_mend(examination);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].host, "c");
  EXPECT_TRUE(found[0].what.starts_with("receives")) << found[0].what;
}

TEST(Doctor, a_slow_cable_between_two_hosts_is_no_hosts_fault) {
  for (const int hosts : {2, 4}) {
    Examination examination = cluster(hosts);
    slow_down(
        examination, [](const Path& path) { return path.from == 0 && path.to == 1; }, 0.3);
    const auto found = to_mend(examination);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].host, "");
    EXPECT_TRUE(found[0].what.starts_with("from a to b")) << found[0].what;
  }
}

TEST(Doctor, what_decides_is_measured_a_second_time) {
  EXPECT_TRUE(odd_paths(cluster(4)).empty());
  Examination examination = cluster(4);
  slow_down(
      examination, [](const Path& path) { return path.from == 2 || path.to == 2; }, 0.1);
  for (Path& path : examination.paths) path.bytes_per_s *= 1 + 0.01 * path.from + 0.001 * path.to;
  std::vector<std::pair<int, int>> odd;
  for (const Path& path : odd_paths(examination)) odd.emplace_back(path.from, path.to);
  const std::vector<std::pair<int, int>> best = {{2, 3}, {3, 2}};
  EXPECT_EQ(odd, best);
}

TEST(Doctor, a_host_that_answers_late_is_named) {
  Examination examination = cluster(4);
  for (Path& path : examination.paths)
    if (path.from == 3 || path.to == 3) path.latency_s = 5e-3;
  const auto found = to_mend(examination);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].host, "d");
}

TEST(Doctor, limits_that_are_too_tight_are_to_be_mended) {
  const auto one_finding = [](auto change) {
    Examination examination = cluster(2);
    change(examination.hosts[1]);
    const auto found = to_mend(examination);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].host, "b");
    EXPECT_FALSE(found[0].advice.empty());
  };
  one_finding([](HostRecord& host) { host.descriptors = 100, host.needed_descriptors = 101; });
  one_finding([](HostRecord& host) { host.threads = 1, host.needed_threads = 2; });
  one_finding([](HostRecord& host) { host.memory_bytes = 1 << 20, host.needed_memory = 1 << 21; });
  one_finding([](HostRecord& host) { host.cgroup_cpus = 0.5; });
  one_finding([](HostRecord& host) { host.send_buffer = 4096; });
  one_finding([](HostRecord& host) { host.mtu = 9000; });
  one_finding([](HostRecord& host) { host.version = "2"; });
}

TEST(Doctor, the_odd_one_is_who_differs_from_most) {
  for (std::size_t odd = 0; odd < 4; ++odd) {
    Examination examination = cluster(4);
    examination.hosts[odd].mtu = 9000;
    const auto found = to_mend(examination);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].host, examination.hosts[odd].name);
    EXPECT_TRUE(found[0].what.find("9000, on") != std::string::npos) << found[0].what;
  }
}

TEST(Doctor, what_is_worth_knowing_makes_nobody_ill) {
  Examination examination = cluster(2);
  HostRecord& host = examination.hosts[0];
  host.shm_bytes = 64 << 20;
  host.congestion = "bbr";
  host.governor = "powersave";
  host.load = 7;
  host.numa_nodes = 2;
  host.numa_balancing = 1;
  host.locked_memory = 1 << 16;
  host.pinning = 1;
  host.ranks = 9;
  EXPECT_GE(diagnose(examination).size(), 7U);
  EXPECT_FALSE(is_ill(examination));
}

TEST(Doctor, hosts_of_one_name_are_told_apart) {
  Examination examination = cluster(3);
  for (HostRecord& host : examination.hosts) host.name = "box";
  slow_down(
      examination, [](const Path& path) { return path.from == 1; }, 0.1);
  ASSERT_EQ(to_mend(examination).size(), 1U);
  EXPECT_EQ(to_mend(examination)[0].host, "box (host 1)");
}

TEST(Doctor, an_examination_comes_back_from_json) {
  Examination examination = cluster(3);
  examination.hosts[1].cgroup_cpus = 1.5;
  const auto json = Json::parse(to_json(examination).dump());
  ASSERT_TRUE(json.ok());
  const auto back = read_examination(*json);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(to_json(*back).dump(), to_json(examination).dump());
  EXPECT_FALSE(read_examination(Json{{"hosts", Json::array()}}).ok());
}

TEST(Doctor, everybody_meets_everybody_once) {
  for (int players = 1; players <= 17; ++players) {
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < rounds_of(players); ++round)
      for (int player = 0; player < players; ++player) {
        const int partner = partner_in(round, player, players);
        if (partner < 0) continue;
        EXPECT_NE(partner, player);
        EXPECT_EQ(partner_in(round, partner, players), player);
        EXPECT_TRUE(met.insert({player, partner}).second);
      }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(players * (players - 1)));
  }
}

}  // namespace
}  // namespace tutti::tool::doctor
