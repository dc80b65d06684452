// support/worlds.hpp - one test body, run by every rank of a group, in several kinds of world.
//
//   threads   one process, a thread per rank, links by inproc
//   shm       a process per rank, links by shared memory
//   tcp       a process per rank, links by tcp on loopback
//   ofi       a process per rank, links by libfabric's provider tcp;ofi_rxm
//   mixed     a process per rank on two emulated hosts (network namespaces), transport chosen by
//   trying
//
// Ranks always live in forked children, so that the test's own process stays free of threads and
// can be forked again, a rank may die, and a world that hangs is ended after its limit. Failed
// assertions travel to the parent through a pipe and are reported there with the rank that made
// them.
//
//   run(World{.kind = WorldKind::shm, .size = 3}, [](Context& here) {
//     EXPECT_TRUE(here.group->barrier().ok());
//   });
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/group.hpp"

namespace tutti::test {

enum class WorldKind { threads, shm, tcp, ofi, mixed };
const char* to_string(WorldKind kind);

struct World {
  WorldKind kind = WorldKind::threads;
  int size = 1;
  ReductionOrder order = ReductionOrder::any;
  std::function<void(Config&)> tune{};  // changes what every rank's Config says
  std::chrono::seconds limit{100};      // then the children are killed, and the test has failed
  // Ranks that die by SIGKILL or stop. They are killed when all others are done; to live to the end
  // of the body, or to exit, is a failure.
  std::vector<int> doomed{};
  // A switch that folds joins the ranks, as if it were one behind the last: in a process of its own, whose
  // number stands in the store under "switch", or in a thread.
  bool has_switch = false;

  int processes() const { return size + (has_switch ? 1 : 0); }
};
std::string describe(const World& world);

// What a rank's body gets.
struct Context {
  std::shared_ptr<Group> group;
  std::shared_ptr<Store> store;  // where ranks can meet without the group
  const World& world;
  int rank;
  int size;
};
using Body = std::function<void(Context&)>;

// All ranks wait for all, in the store: nothing of the group is under way afterwards, as a barrier
// of the group itself cannot promise (one rank has left it, another is still in it).
void meet(Context& here, const std::string& where = "meeting");

struct Failure {
  int rank = -1;
  std::string file;
  int line = 0;
  std::string text;
};

// Runs `body` on all ranks and returns what failed.
std::vector<Failure> collect(const World& world, const Body& body);
// The same; failures become failures of the current test.
void run(const World& world, const Body& body);

// Why this machine cannot make such a world; absent when it can.
std::optional<std::string> unavailable(const World& world);

// TUTTI_TEST_REDUCED=1: small groups and counts, for builds with sanitizers.
bool reduced();
// {1, 2, 3, 5, 8, 11, 16}, or those up to 5 when reduced.
std::vector<int> sizes();
// Every kind with every size; mixed has four ranks.
std::vector<World> every_world();
// Every kind once: three ranks, four for mixed.
std::vector<World> one_world_of_each();
// shm and tcp, and ofi where this machine can make such a world.
std::vector<WorldKind> worlds_of_processes();
// Each three times: rank 0 is doomed, a middle one, and the last.
std::vector<World> each_victim_in(const std::vector<World>& worlds);

// A suite that runs in the worlds it is instantiated with, and is skipped where one cannot be made.
class WorldTest : public testing::TestWithParam<World> {
 protected:
  void SetUp() override;
  static void in_world(const Body& body) { run(GetParam(), body); }
};
std::string name_of(const testing::TestParamInfo<World>& info);
void PrintTo(const World& world, std::ostream* out);

}  // namespace tutti::test
