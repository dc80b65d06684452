// Programs as text: what is printed can be read again, and what cannot be read is named.
#include "schedule/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "schedule/passes.hpp"
#include "worlds.hpp"

namespace tutti::schedule {
namespace {

using testing::HasSubstr;

void expect_round_trip(const std::vector<Program>& programs) {
  const auto back = parse(print(programs));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(*back, programs) << print(programs);
}

TEST(Text, every_schedule_of_the_catalog_survives_the_round_trip) {
  for (const Entry& entry : catalog()) {
    each_request(entry, 1, 9, [&](const Request& request) {
      auto world = build_world(entry.algorithm, request, Mode::mixed);
      ASSERT_TRUE(world.ok());
      expect_round_trip(*world);
      for (Program& program : *world) program = fuse_folds(std::move(program));
      expect_round_trip(*world);
    });
  }
}

// Any program that has only the fields that its ops use, sensible or not.
Program random_program(std::mt19937& random) {
  const auto up_to = [&](unsigned most) -> std::uint32_t { return random() % (most + 1); };
  const auto region = [&] { return Region{static_cast<Space>(up_to(2)), up_to(99), up_to(4)}; };
  Program program;
  program.collective = static_cast<Collective>(up_to(kCollectives - 1));
  program.algorithm = static_cast<Algorithm>(up_to(kAlgorithms - 1));
  program.size = 1 + static_cast<int>(up_to(1000));
  program.rank = static_cast<int>(up_to(999));
  program.root = static_cast<int>(up_to(999));
  program.cut = up_to(16);
  program.in_place = up_to(1) == 1;
  for (auto i = up_to(5); i > 0; --i) program.scratch.push_back(random());
  for (auto i = up_to(8); i > 0; --i) {
    Op op;
    op.kind = static_cast<OpKind>(up_to(3));
    op.step = random();
    const bool message = op.kind != OpKind::copy && op.kind != OpKind::reduce;
    if (message) op.peer = static_cast<int>(up_to(999));
    if (op.kind != OpKind::send) op.dst = region();
    if (op.kind != OpKind::recv && op.kind != OpKind::reduce) op.src = region();
    if (op.kind == OpKind::reduce) {
      for (auto k = 1 + up_to(3); k > 0; --k) {
        Source source;
        source.raw = up_to(1) == 1;
        if (up_to(1) == 1) {
          source.region = region();
        } else {
          source.peer = static_cast<int>(up_to(999));
          source.step = random();
        }
        op.sources.push_back(source);
      }
      op.finish = up_to(1) == 1;
    }
    program.ops.push_back(std::move(op));
  }
  return program;
}

TEST(Text, random_programs_survive_the_round_trip) {
  for (unsigned seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    expect_round_trip({random_program(random), random_program(random)});
    if (HasFailure()) return;
  }
}

TEST(Text, comments_and_empty_lines_are_nothing) {
  const auto programs = parse("# a remark\n\nprogram barrier direct rank 0 of 1 root 0 cut 1\n\n");
  ASSERT_TRUE(programs.ok());
  EXPECT_EQ(programs->size(), 1u);
}

TEST(Text, what_cannot_be_read_is_named_with_its_line) {
  const std::string head = "program reduce ring rank 0 of 2 root 0 cut 1\n";
  const char* bad[] = {
      "  @0 jump input[0] -> 1",
      "  0 send input[0] -> 1",
      "  @0 send input[0] <- 1",
      "  @0 send input[0 -> 1",
      "  @0 send inputs[0] -> 1",
      "  @0 send input[] -> 1",
      "  @0 send input[3..2] -> 1",
      "  @0 send input[0] -> one",
      "  @0 send input[0] -> 1 please",
      "  @0 send input[99999999999] -> 1",
      "  @0 reduce output[0] = raw",
      "  @0 reduce output[0] = input[0] +",
      "  @x send input[0] -> 1",
      "  scratch one",
      "  @0 copy output[0] input[0]",
      "  @-1 send input[0] -> 1",
      "program sing ring rank 0 of 2 root 0 cut 1",
      "program reduce ring rank 0 of 2 root 0",
  };
  for (const char* line : bad) {
    const auto programs = parse(head + line + "\n");
    ASSERT_FALSE(programs.ok()) << line;
    EXPECT_EQ(programs.status().code(), Code::invalid_argument);
    EXPECT_THAT(programs.status().message(), HasSubstr("line 2"));
    EXPECT_THAT(programs.status().message(), HasSubstr(line));
  }
  EXPECT_FALSE(parse("  @0 send input[0] -> 1\n").ok()) << "an op before any program";
}

TEST(Text, random_damage_never_crashes_the_reader) {
  const auto world = build_world(Algorithm::ring, {.size = 3}, Mode::in_place);
  ASSERT_TRUE(world.ok());
  const std::string text = print(*world);
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = text;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    damaged.resize(random() % (damaged.size() + 1));
    (void)parse(damaged);
  }
}

TEST(Text, json_names_every_part_of_an_op) {
  const auto programs = parse(
      "program all_reduce ring rank 0 of 2 root 0 cut 2 in_place\n  scratch 1\n"
      "  @0 send input[0] -> 1\n  @0 recv scratch[0] <- 1\n  @1 copy output[0] = input[0]\n"
      "  @0 reduce output[1] = raw scratch[0] + raw 1@3 finish\n");
  ASSERT_TRUE(programs.ok());
  EXPECT_EQ(print_json(*programs),
            R"({"format":"tutti schedule 1","programs":[
{"collective":"all_reduce","algorithm":"ring","size":2,"rank":0,"root":0,)"
            R"("in_place":true,"cut":2,"scratch":[1],"ops":[
{"op":"send","step":0,"peer":1,"src":["input",0,1]},
{"op":"recv","step":0,"peer":1,"dst":["scratch",0,1]},
{"op":"copy","step":1,"dst":["output",0,1],"src":["input",0,1]},
{"op":"reduce","step":0,"dst":["output",1,1],"sources":[{"raw":true,"region":["scratch",0,1]},)"
            R"({"raw":true,"peer":1,"step":3}],"finish":true}]}]}
)");
}

}  // namespace
}  // namespace tutti::schedule
