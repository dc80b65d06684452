#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tool/bench/command_lines.hpp"
#include "tool/bench/contestants.hpp"
#include "tool/bench/options.hpp"
#include "tool/bench/ratios.hpp"
#include "tool/bench/report.hpp"
#include "tool/bench/table.hpp"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

Row sample_row() {
  Row row;
  row.collective = Collective::all_reduce;
  row.ranks = 4;
  row.transport = "shm";
  row.memory = "plain";
  row.algorithm = "ring";
  row.bytes = 1'000'000;
  row.count = 250'000;
  row.timing.median_us = 500;
  row.timing.p99_us = 800;
  row.timing.min_us = 400;
  row.floor_us = 100;
  row.cpu_s = 0.002;
  return row;
}

TEST(BenchReport, a_row_has_exactly_the_documented_fields) {
  const Json json = row_json(sample_row());
  std::vector<std::string> names;
  for (const auto& [name, value] : json.fields()) names.push_back(name);
  EXPECT_THAT(names,
              UnorderedElementsAre("collective", "ranks", "transport", "memory", "algorithm",
                                   "dtype", "op", "order", "bytes", "count", "in_place", "time_us",
                                   "algbw_gbs", "busbw_gbs", "predicted_us", "floor_share",
                                   "cpu_s_per_gb", "device", "meeting", "host_us", "wrong"));
  EXPECT_EQ(json["time_us"].size(), 3U);
  EXPECT_DOUBLE_EQ(json["algbw_gbs"].number(), 2.0);
  EXPECT_DOUBLE_EQ(json["busbw_gbs"].number(), 3.0);
  EXPECT_DOUBLE_EQ(json["floor_share"].number(), 0.2);
  EXPECT_DOUBLE_EQ(json["cpu_s_per_gb"].number(), 2.0);
  EXPECT_TRUE(json["predicted_us"].is_null());
  EXPECT_EQ(json["op"], "sum");
}

TEST(BenchReport, a_barrier_has_no_bytes_and_no_reduction) {
  Row row = sample_row();
  row.collective = Collective::barrier;
  row.bytes = 0;
  const Json json = row_json(row);
  EXPECT_TRUE(json["cpu_s_per_gb"].is_null());
  EXPECT_EQ(json["op"], "none");
  EXPECT_EQ(json["algbw_gbs"], 0.0);
}

TEST(BenchTable, lines_are_as_wide_as_their_head) {
  BenchOptions options;
  options.wide = true;
  const FittedTable table = bench_table(options);
  std::istringstream head(table_head(table, options, 4, "shm"));
  std::string line;
  std::getline(head, line);
  EXPECT_THAT(line, HasSubstr("4 ranks, shm, symmetric memory, buffers touched"));
  Row in_place = sample_row();
  in_place.in_place = true;
  in_place.wrong = 3;
  const Row out = sample_row();
  const std::string both = table_line(table, &out, &in_place);
  while (std::getline(head, line)) EXPECT_LT(line.size(), both.size()) << line;
  EXPECT_THAT(both, HasSubstr("all_reduce"));
  EXPECT_THAT(both, HasSubstr("500.0"));
  EXPECT_EQ(both.substr(both.size() - 4), "  3\n");
  EXPECT_EQ(table_line(table, nullptr, &in_place).size(), both.size());
}

TEST(BenchTable, leaves_out_what_does_not_fit_the_window_and_says_so) {
  const Row row = sample_row();
  for (const std::size_t columns : {80, 100, 140, 220}) {
    BenchOptions options;
    options.columns = columns;
    const FittedTable table = bench_table(options);
    const std::string head = table_head(table, options, 4, "shm");
    std::istringstream lines(head + table_line(table, &row, &row));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), columns) << line;
    EXPECT_THAT(head, HasSubstr("busbw"));
    EXPECT_EQ(head.find("--wide") == std::string::npos, columns == 220) << head;
    EXPECT_EQ(head.find(" CPU ") == std::string::npos, columns != 220) << head;
  }
}

TEST(BenchTable, times_keep_three_digits) {
  EXPECT_EQ(time_words(0.274), "0.27");
  EXPECT_EQ(time_words(15.44), "15.4");
  EXPECT_EQ(time_words(33016.4), "33016");
}

TEST(BenchTable, summary_has_a_line_per_collective) {
  Row small = sample_row();
  small.bytes = 4;
  small.timing.median_us = 2;
  Row other = sample_row();
  other.collective = Collective::barrier;
  const std::string text = summary_table({small, sample_row(), other});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, HasSubstr("2.00"));
  EXPECT_THAT(text, HasSubstr("barrier"));
}

Status understood(BenchWords words) {
  BenchOptions options;
  return understand(words, options);
}

TEST(BenchOptionsTest, wrong_words_are_named) {
  BenchWords words;
  words.collectives = "all_reduce";
  EXPECT_TRUE(understood(words).ok());
  const auto refused = [&](std::string BenchWords::*field, const char* word) {
    BenchWords wrong = words;
    wrong.*field = word;
    const Status status = understood(wrong);
    EXPECT_EQ(status.code(), Code::invalid_argument) << word;
    EXPECT_THAT(status.message(), HasSubstr(word));
  };
  refused(&BenchWords::collectives, "all_rong");
  refused(&BenchWords::first, "4Q");
  refused(&BenchWords::last, "-3");
  refused(&BenchWords::factor, "two");
  refused(&BenchWords::transport, "pigeon");
  refused(&BenchWords::algorithm, "rong");
  refused(&BenchWords::memory, "soft");
  refused(&BenchWords::dtype, "f12");
  refused(&BenchWords::op, "mean");
  refused(&BenchWords::placement, "off");
  refused(&BenchWords::pin, "nobody");
  refused(&BenchWords::budget, "soon");
}

TEST(BenchOptionsTest, what_depends_on_the_ranks_is_checked_with_them) {
  BenchOptions options;
  options.collectives = {Collective::broadcast};
  options.root = 3;
  EXPECT_TRUE(check_ranks(options, 4).ok());
  EXPECT_THAT(check_ranks(options, 3).message(), HasSubstr("--root 3"));
  options.collectives = {Collective::all_gather};
  options.algorithm = Algorithm::hypercube;
  EXPECT_TRUE(check_ranks(options, 4).ok());
  EXPECT_THAT(check_ranks(options, 3).message(), HasSubstr("--algorithm"));
}

TimedCell sample(int run, const char* library, const char* setting, double median_us) {
  TimedCell one;
  one.run = run;
  one.ranks = 2;
  one.library = library;
  one.setting = setting;
  one.bytes = 1024;
  one.median_us = median_us;
  return one;
}

TEST(BenchRatios, times_are_divided_within_a_run_only) {
  // Twice as slow in the second run, tutti and peer alike: the ratio stays.
  const auto ratios = ratios_of({sample(0, "tutti", "plain", 10), sample(0, "gloo", "default", 30),
                                 sample(0, "gloo", "best", 20), sample(1, "tutti", "plain", 20),
                                 sample(1, "gloo", "default", 60), sample(1, "gloo", "best", 40)});
  ASSERT_EQ(ratios.size(), 1U);
  EXPECT_DOUBLE_EQ(ratios[0].against_default.at("gloo"), 3);
  EXPECT_DOUBLE_EQ(ratios[0].against_best.at("gloo"), 2);
  EXPECT_DOUBLE_EQ(ratios[0].against_all, 2);
  EXPECT_EQ(ratios[0].best_peer, "gloo:best");
}

TEST(BenchRatios, whoever_computes_wrongly_is_named) {
  TimedCell wrong = sample(1, "mpich", "default", 1);
  wrong.wrong = 5;
  EXPECT_EQ(wrong_lines({sample(0, "tutti", "plain", 10), wrong}),
            "# WRONG: mpich default, 2 ranks, all_reduce of 1024 B, run 2: 5 elements\n");
  EXPECT_EQ(wrong_lines({sample(0, "tutti", "plain", 10)}), "");
}

TEST(BenchRatios, best_peer_is_chosen_anew_in_every_run) {
  const auto ratios = ratios_of({sample(0, "tutti", "plain", 10), sample(0, "gloo", "default", 30),
                                 sample(0, "mpich", "default", 20), sample(1, "tutti", "plain", 10),
                                 sample(1, "gloo", "default", 5), sample(1, "mpich", "default", 20),
                                 sample(2, "tutti", "plain", 10), sample(2, "gloo", "default", 11),
                                 sample(2, "mpich", "default", 12)});
  EXPECT_DOUBLE_EQ(ratios[0].against_all, 1.1);  // of 2.0, 0.5 and 1.1
  EXPECT_DOUBLE_EQ(ratios[0].against_best.at("mpich"), 2);
}

TEST(BenchRatios, wrong_peers_do_not_count_and_memories_are_kept_apart) {
  TimedCell wrong = sample(0, "mpich", "default", 1);
  wrong.wrong = 5;
  const auto ratios =
      ratios_of({sample(0, "tutti", "plain", 10), sample(0, "tutti", "symmetric", 5), wrong,
                 sample(0, "openmpi", "default", 10)});
  ASSERT_EQ(ratios.size(), 2U);
  EXPECT_DOUBLE_EQ(ratios[0].against_all, 1);
  EXPECT_DOUBLE_EQ(ratios[1].against_all, 2);
  const std::string close = close_table(ratios);
  EXPECT_THAT(close, HasSubstr("plain"));
  EXPECT_THAT(close, ::testing::Not(HasSubstr("symmetric")));
  EXPECT_THAT(means_table(ratios), HasSubstr("openmpi"));
}

std::string joined(const CommandLine& line) {
  std::string text;
  for (const std::string& word : line.words) text += word + " ";
  return text;
}

TEST(BenchCompare, command_lines_fit_the_peer_and_the_room) {
  CompareOptions options;
  Contestant contestant{
      "openmpi", "ucx", {Collective::all_reduce}, {4, 64}, "--mca pml ucx UCX_TLS=self,sm"};
  Premises premises;
  premises.programs = "/bin";
  premises.ranks = 2;
  premises.cpus = {0, 1};
  const auto spare = command_lines(options, contestant, premises);
  ASSERT_EQ(spare.size(), 1U);
  EXPECT_THAT(joined(spare[0]), HasSubstr("--allow-run-as-root"));
  EXPECT_THAT(joined(spare[0]), HasSubstr("--bind-to core"));
  EXPECT_THAT(joined(spare[0]), HasSubstr("--mca pml ucx /bin/peer_openmpi"));
  EXPECT_THAT(joined(spare[0]), HasSubstr("--sizes 4,64 --warm 1"));
  EXPECT_THAT(spare[0].environment, ::testing::ElementsAre("UCX_TLS=self,sm"));

  premises.ranks = 4;
  EXPECT_THAT(joined(command_lines(options, contestant, premises)[0]), HasSubstr("--bind-to none"));

  contestant.library = "gloo";
  contestant.words = "--algorithm api";
  const auto gloo = command_lines(options, contestant, premises);
  ASSERT_EQ(gloo.size(), 4U);
  EXPECT_THAT(joined(gloo[3]), HasSubstr("--rank 3 --ranks 4"));

  options.hosts = true;
  EXPECT_THAT(joined(command_lines(options, contestant, premises)[3]),
              ::testing::StartsWith("ip netns exec bh3 /bin/peer_gloo"));
  contestant.library = "tutti";
  contestant.setting = "plain";
  const auto own = command_lines(options, contestant, premises);
  ASSERT_EQ(own.size(), 4U);
  EXPECT_THAT(joined(own[1]), HasSubstr("--node-rank 1 --rendezvous 10.83.0.1:"));

  options.each = 2;
  const auto fuller = command_lines(options, contestant, premises);
  ASSERT_EQ(fuller.size(), 2U);
  EXPECT_THAT(joined(fuller[1]), HasSubstr("run -n 2 --nnodes 2 --node-rank 1"));
  EXPECT_THAT(joined(fuller[1]), ::testing::Not(HasSubstr("--transport")));
  contestant.library = "gloo";
  EXPECT_THAT(joined(command_lines(options, contestant, premises)[3]),
              ::testing::StartsWith("ip netns exec bh1 /bin/peer_gloo"));
  contestant.library = "openmpi";
  EXPECT_THAT(joined(command_lines(options, contestant, premises)[0]),
              HasSubstr("--host 10.83.0.1:2,10.83.0.2:2"));
}

TEST(BenchCompare, a_command_that_hangs_is_ended_and_one_that_fails_is_told) {
  const SubprocessResult hung = run_together({{{"sleep", "60"}, {}}}, std::chrono::seconds(1));
  EXPECT_TRUE(hung.timed_out);
  const SubprocessResult failed =
      run_together({{{"sh", "-c", "echo out; echo $WORD >&2; echo ---- >&2; exit 3"}, {"WORD=why"}},
                    {{"echo", "second"}, {}}},
                   std::chrono::seconds(20));
  EXPECT_FALSE(failed.timed_out);
  EXPECT_EQ(failed.exit_code, 3);
  EXPECT_EQ(failed.complaint, "why");
  EXPECT_THAT(failed.output, HasSubstr("out\n"));
  EXPECT_THAT(failed.output, HasSubstr("second\n"));
  EXPECT_EQ(run_together({{{"/nowhere/at/all"}, {}}}, std::chrono::seconds(5)).exit_code, 127);
}

TEST(BenchRatios, points_of_a_peer_are_read_between_other_lines) {
  const auto samples = parse_points(
      "hello\npoint all_reduce 1024 1.5 2 1 1.2 100 0\npoint nonsense 4 1 1 1 1 1 0\n"
      "point barrier 0 0.3 0.5 0.2 0.3 4096 0\npoint broken\n");
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[0].bytes, 1024U);
  EXPECT_DOUBLE_EQ(samples[0].median_us, 1.5);
  EXPECT_EQ(samples[1].collective, Collective::barrier);
}

}  // namespace
}  // namespace tutti::tool
