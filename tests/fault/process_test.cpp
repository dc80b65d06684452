// What a process may do beside its group: fork, and ask for the flight recorder.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "support/trial.hpp"
#include "support/worlds.hpp"

namespace tutti::test {
namespace {

namespace fs = std::filesystem;

enum Answer { kRefused = 0, kAccepted = 10, kUnclear = 11 };

// In a forked child: every call must fail at once, and say why.
int ask_in_fork(Group& group) {
  std::vector<float> values(10);
  const Status statuses[] = {group.barrier(),
                             group.all_reduce_async(Buffer::of(values), ReduceOp::sum).wait(),
                             group.send(ConstBuffer::of(values), 0), group.duplicate().status()};
  for (const Status& status : statuses) {
    if (status.ok()) return kAccepted;
    if (status.message().find("fork") == std::string::npos) return kUnclear;
  }
  return kRefused;
}

// With a progress thread or without: neither it nor the pulse's is in the child, which may drop its group.
void refuse_in_child(WorldKind kind, bool progress) {
  World world{.kind = kind, .size = 3};
  world.tune = [=](Config& config) { config.progress_thread = progress; };
  run(world, [](Context& here) {
    ASSERT_TRUE(here.group->barrier().ok());
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(10);  // a call that hangs is a failure too
      const int answer = ask_in_fork(*here.group);
      here.group.reset();
      _exit(answer);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kRefused)
        << "wait status " << status << " (exit " << WEXITSTATUS(status) << ")";
    for (std::size_t count : {1, 100'003}) try_out(*here.group, {.count = count});
  });
}

TEST(Fork, refuses_the_childs_calls_and_leaves_the_parent_alone) {
  for (WorldKind kind : worlds_of_processes())
    for (bool progress : {true, false}) refuse_in_child(kind, progress);
}

// A child that lives on holds copies of the descriptors; the death of its parent must be seen
// anyway.
TEST(Fork, does_not_hide_the_parents_death) {
  for (WorldKind kind : worlds_of_processes()) {
    World world{.kind = kind, .size = 3};
    world.doomed = {1};
    run(world, [](Context& here) {
      meet(here);
      if (here.rank == 1) {
        const pid_t child = fork();
        if (child == 0) {
          // Until the others have ended; then nothing is left behind.
          alarm(20);
          for (;;) pause();
        }
        ASSERT_TRUE(here.store->set("child", std::to_string(child)).ok());
        kill(getpid(), SIGKILL);
        for (;;) pause();
      }
      const Status status = here.group->barrier();
      EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
      const auto child = here.store->get("child", std::chrono::seconds(20));
      ASSERT_TRUE(child.ok());
      if (here.rank == 0) kill(std::stoi(*child), SIGKILL);
    });
  }
}

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/tutti_dumps_XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }
  // All files' text.
  std::string text() const {
    std::string all;
    for (const auto& entry : fs::directory_iterator(path_)) {
      std::ostringstream one;  // one each: an empty file fails its stream
      one << std::ifstream(entry.path()).rdbuf();
      all += one.str();
    }
    return all;
  }

 private:
  std::string path_;
};

// A dump goes to the folder, or to stderr where a signal handler can do no better: that is put
// there too.
void send_stderr_to(const Folder& folder) {
  const std::string path = folder.path() + "/stderr." + std::to_string(getpid());
  ASSERT_NE(std::freopen(path.c_str(), "w", stderr), nullptr);
}

// Signals and failures are served by other threads: the text comes when it comes.
std::string text_with(const Folder& folder, const std::string& word) {
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::string text = folder.text();
  while (text.find(word) == std::string::npos && std::chrono::steady_clock::now() < patience) {
    std::this_thread::yield();
    text = folder.text();
  }
  return text;
}

TEST(Recorder, is_dumped_on_a_signal_and_the_process_goes_on) {
  for (WorldKind kind : {WorldKind::threads, WorldKind::shm}) {
    const Folder folder;
    World world{.kind = kind, .size = 2};
    world.tune = [&](Config& config) { config.dump_dir = folder.path(); };
    run(world, [&](Context& here) {
      try_out(*here.group, {.count = 1234});
      if (here.rank == 0) {
        send_stderr_to(folder);
        kill(getpid(), SIGUSR1);
        const std::string text = text_with(folder, "all_reduce");
        EXPECT_NE(text.find("all_reduce"), std::string::npos) << "dumped: " << text.substr(0, 500);
      }
      try_out(*here.group, {.count = 1234});
    });
  }
}

TEST(Recorder, is_dumped_when_a_group_fails) {
  const Folder folder;
  World world{.kind = WorldKind::shm, .size = 2};
  world.tune = [&](Config& config) { config.dump_dir = folder.path(); };
  run(world, [&](Context& here) {
    std::vector<float> values(10);
    CallOptions named;
    named.name = "end of epoch";
    const Status status =
        here.rank == 0 ? here.group->barrier(named) : here.group->broadcast(Buffer::of(values), 0);
    EXPECT_EQ(status.code(), Code::mismatch) << status.to_string();
    const std::string text = text_with(folder, here.rank == 0 ? "end of epoch" : "mismatch");
    if (here.rank == 0) {
      EXPECT_NE(text.find("end of epoch"), std::string::npos) << text.substr(0, 500);
    }
    EXPECT_NE(text.find("mismatch"), std::string::npos) << "dumped: " << text.substr(0, 500);
  });
}

// The name is easily guessed: whoever may write into the folder can put something there.
TEST(Recorder, whatever_lies_at_the_name_of_a_dump_neither_holds_it_up_nor_is_followed) {
  for (const bool pipe : {true, false}) {
    const Folder folder;
    const Folder elsewhere;
    const std::string target = elsewhere.path() + "/target";
    std::ofstream(target) << "precious";
    World world{.kind = WorldKind::shm, .size = 2};
    world.tune = [&](Config& config) { config.dump_dir = folder.path(); };
    run(world, [&](Context& here) {
      const std::string name = folder.path() + "/tutti.rank" + std::to_string(here.rank) + ".pid" +
                               std::to_string(getpid()) + ".json";
      ASSERT_EQ(pipe ? mkfifo(name.c_str(), 0600) : symlink(target.c_str(), name.c_str()), 0);
      meet(here);
      std::vector<float> values(10);
      const Status status =
          here.rank == 0 ? here.group->barrier() : here.group->broadcast(Buffer::of(values), 0);
      EXPECT_EQ(status.code(), Code::mismatch) << status.to_string();
      while (!fs::is_regular_file(fs::symlink_status(name))) std::this_thread::yield();
      EXPECT_EQ(fs::status(name).permissions() & fs::perms::others_all, fs::perms::none);
    });
    EXPECT_EQ(elsewhere.text(), "precious");
  }
}

}  // namespace
}  // namespace tutti::test
