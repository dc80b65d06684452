// Memory and threads that run out: a status on every rank, never an end by an exception.
#include <sys/resource.h>

#include <fstream>

#include "support/worlds.hpp"

namespace tutti::test {
namespace {

std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

// Of this process, until the end of the block.
struct Limit {
  Limit(__rlimit_resource which, rlim_t most) : what(which) {
    EXPECT_EQ(getrlimit(what, &before), 0);
    const rlimit now{most, before.rlim_max};
    EXPECT_EQ(setrlimit(what, &now), 0);
  }
  ~Limit() { setrlimit(what, &before); }
  __rlimit_resource what;
  rlimit before{};
};

// The sanitizers take terabytes of addresses for themselves.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TUTTI_NEEDS_LIMITS() GTEST_SKIP() << "address space cannot be limited under sanitizers"
#else
#define TUTTI_NEEDS_LIMITS() (void)0
#endif

TEST(Exhausted, a_rank_without_memory_for_a_call_ends_the_group_with_a_status_on_every_rank) {
  TUTTI_NEEDS_LIMITS();
  run({.kind = WorldKind::tcp, .size = 4}, [&](Context& here) {
    ASSERT_TRUE(here.group->barrier().ok());
    // What the others send comes into memory beside the own values.
    std::vector<float> values(8 << 20);
    const rlim_t most = here.rank == 0 ? address_space() + (1 << 20) : RLIM_INFINITY;
    CallOptions options;
    options.algorithm = Algorithm::recursive_doubling;
    Status status;
    {
      const Limit limit(RLIMIT_AS, most);
      status = here.group->all_reduce(Buffer::of(values), ReduceOp::sum, options);
    }
    EXPECT_EQ(status.code(), Code::out_of_memory) << status.to_string();
    EXPECT_NE(status.message().find("limit: "), std::string::npos) << status.to_string();
  });
}

TEST(Exhausted, a_group_that_cannot_have_its_thread_says_so) {
  TUTTI_NEEDS_LIMITS();
  run({.kind = WorldKind::shm, .size = 1}, [&](Context&) {
    const Limit limit(RLIMIT_AS, address_space() + (1 << 20));  // less than a thread's stack
    auto group = Group::create(make_memory_store(), {.rank = 0, .size = 1});
    ASSERT_FALSE(group.ok());
    EXPECT_EQ(group.status().code(), Code::out_of_memory) << group.status().to_string();
    EXPECT_NE(group.status().message().find("limit"), std::string::npos)
        << group.status().to_string();
  });
}

}  // namespace
}  // namespace tutti::test
