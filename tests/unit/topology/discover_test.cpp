#include "topology/discover.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace tutti::topology {
namespace {

using testing::HasSubstr;

TEST(Discover, finds_processors_memory_and_a_numa_node_on_this_machine) {
  const auto machine = discover();
  ASSERT_TRUE(machine.ok()) << machine.status().to_string();
  EXPECT_GE(machine->cores, 1);
  EXPECT_GE(machine->cpus, machine->cores);
  EXPECT_GT(machine->memory_bytes, 1U << 20);
  EXPECT_GE(machine->numa_nodes.size(), 1U);
  EXPECT_FALSE(machine->host_name.empty());
}

TEST(Discover, the_loopback_interface_is_known_with_its_address) {
  const auto interfaces = discover_interfaces();
  const auto loopback = std::find_if(interfaces.begin(), interfaces.end(),
                                     [](const Interface& i) { return i.loopback; });
  if (loopback == interfaces.end()) GTEST_SKIP() << "this machine has no loopback interface";
  EXPECT_FALSE(loopback->name.empty());
  if (!loopback->up) GTEST_SKIP() << "the loopback interface is down";
  EXPECT_THAT(loopback->addresses, testing::Contains("127.0.0.1"));
}

TEST(Discover, each_interface_appears_once) {
  const auto interfaces = discover_interfaces();
  for (std::size_t i = 0; i < interfaces.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(interfaces[i].name, interfaces[j].name);
}

TEST(Discover, the_text_names_what_there_is) {
  Hardware machine;
  machine.host_name = "one";
  machine.cores = 4;
  machine.cpus = 8;
  machine.memory_bytes = 3ULL << 30;
  machine.numa_nodes = {{1ULL << 30, {0, 1, 2, 5}}};
  machine.l3_domains = {{32ULL << 20, {0, 1}}};
  machine.interfaces = {{"eth0", {"10.0.0.1"}, true, false, 1000}, {"lo", {}, false, true, {}}};
  EXPECT_EQ(to_text(machine),
            "host one: 4 cores, 8 cpus, 3.0 GiB memory\n"
            "numa 0: 1.0 GiB, cpus 0-2,5\n"
            "l3 0: 32.0 MiB, cpus 0-1\n"
            "interface eth0: up, 1000 Mbit/s, 10.0.0.1\n"
            "interface lo: down, loopback\n");
}

}  // namespace
}  // namespace tutti::topology
