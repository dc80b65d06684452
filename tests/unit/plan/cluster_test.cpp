#include "plan/cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/units.hpp"

namespace tutti::plan {
namespace {

using testing::HasSubstr;

constexpr const char* kSmall = R"({
  "format": "tutti cluster", "version": 1, "name": "two", "fabric": "hosts",
  "ranks_per_host": 2,
  "within": {"latency": "1.5 us", "bandwidth": "10 GB/s"},
  "between": {"latency": "20 us", "overhead": "2 us", "bandwidth": "100 Gbit/s"},
  "processor": {"peak": "1 TFLOP/s", "memory": "64 GiB", "efficiency": 0.5}
})";

std::string with(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

std::string complaint(const std::string& json) {
  const auto cluster = parse_cluster(json);
  EXPECT_FALSE(cluster.ok());
  return cluster.ok() ? "" : cluster.status().message();
}

TEST(Cluster, quantities_are_read_with_their_units) {
  const auto cluster = parse_cluster(kSmall);
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  EXPECT_DOUBLE_EQ(cluster->within.latency, 1.5e-6);
  EXPECT_DOUBLE_EQ(cluster->between.bandwidth, 12.5e9);
  EXPECT_DOUBLE_EQ(cluster->processor.memory_bytes, 64.0 * (1 << 30));
  EXPECT_EQ(cluster->ranks_per_host, 2);
}

TEST(Cluster, every_preset_is_sound_and_reads_back_equal) {
  for (const Cluster& preset : preset_clusters()) {
    EXPECT_TRUE(check_cluster(preset).ok()) << check_cluster(preset).message();
    const auto back = parse_cluster(to_json(preset));
    ASSERT_TRUE(back.ok()) << preset.name << ": " << back.status().message();
    EXPECT_EQ(*back, preset) << preset.name;
  }
}

TEST(Cluster, a_measured_machine_and_its_corrections_read_back_equal) {
  Cluster here = *preset_cluster("cpu-ethernet-1g");
  here.machine = tuner::built_in_machine();
  here.corrections = {{Collective::all_reduce, Algorithm::ring, 4, {{64, 1.25}, {65536, 0.8}}}};
  const auto back = parse_cluster(to_json(here));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(*back, here);
}

TEST(Cluster, an_unknown_field_is_named) {
  EXPECT_THAT(complaint(with(kSmall, "\"fabric\"", "\"speed\": 1, \"fabric\"")),
              HasSubstr("'speed' is no field"));
  EXPECT_THAT(complaint(with(kSmall, "\"overhead\"", "\"delay\"")), HasSubstr("'between.delay'"));
}

TEST(Cluster, a_missing_unit_is_named) {
  EXPECT_THAT(complaint(with(kSmall, "\"10 GB/s\"", "\"10\"")), HasSubstr("'within.bandwidth'"));
  EXPECT_THAT(complaint(with(kSmall, "\"10 GB/s\"", "10")), HasSubstr("bare number"));
  EXPECT_THAT(complaint(with(kSmall, "\"1.5 us\"", "\"1.5 GB\"")), HasSubstr("unit 'GB'"));
  EXPECT_THAT(complaint(with(kSmall, "\"1.5 us\"", "\"-1 us\"")), HasSubstr("below zero"));
}

TEST(Cluster, contradictions_are_named) {
  EXPECT_THAT(complaint(with(kSmall, "\"hosts\"", "\"flat\"")), HasSubstr("'ranks_per_host'"));
  EXPECT_THAT(complaint(with(kSmall, "\"2 us\"", "\"21 us\"")), HasSubstr("'between.overhead'"));
  EXPECT_THAT(complaint(with(kSmall, "\"ranks_per_host\": 2", "\"ranks_per_host\": 1")),
              HasSubstr("'within'"));
  EXPECT_THAT(complaint(with(kSmall, "\"name\"", "\"max_ranks\": 7, \"name\"")),
              HasSubstr("'max_ranks'"));
  EXPECT_THAT(complaint(with(kSmall, "\"name\"", "\"oversubscription\": 2, \"name\"")),
              HasSubstr("'oversubscription'"));
  EXPECT_THAT(complaint(with(kSmall, "\"name\"", "\"host_bandwidth\": \"1 GB/s\", \"name\"")),
              HasSubstr("'host_bandwidth'"));
  EXPECT_THAT(complaint(with(kSmall, "\"hosts\"", "\"fat_tree\"")),
              HasSubstr("'hosts_per_switch'"));
}

TEST(Cluster, an_unknown_preset_lists_those_there_are) {
  const auto cluster = preset_cluster("h100");
  ASSERT_FALSE(cluster.ok());
  EXPECT_THAT(cluster.status().message(), HasSubstr("h100-ib400"));
}

TEST(Units, printed_quantities_read_back_as_the_same_bits) {
  for (const double value : {1.5e-6, 0.3e-6, 1e-9 / 3, 2.0, 7e-10, 0.0})
    EXPECT_EQ(*read_quantity(quantity_text(value, Unit::seconds), Unit::seconds), value);
  for (const double value : {50e9, 3.35e12 / 3, 12.5e9, 1.0, 123456789.0})
    EXPECT_EQ(*read_quantity(quantity_text(value, Unit::bytes_per_s), Unit::bytes_per_s), value);
  EXPECT_EQ(quantity_text(50e9, Unit::bytes_per_s), "50 GB/s");
  EXPECT_EQ(short_text(1.2345e-5, Unit::seconds), "12.3 us");
}

}  // namespace
}  // namespace tutti::plan
