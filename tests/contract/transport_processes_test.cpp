// Ranks in processes of their own: what they share, and what is noticed when one dies.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "contract/transport_pair.hpp"
#include "core/sockets.hpp"
#include "support/sanitized.hpp"

namespace tutti::test {
namespace {

// Rank 1 in a forked child, rank 0 here; addresses cross over a socket pair.
class TwoProcesses {
 public:
  TwoProcesses(const std::string& transport, const std::function<int(Endpoint&)>& child_life) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    std::fflush(nullptr);
    child = ::fork();
    const int rank = child == 0 ? 1 : 0;
    Descriptor mine(ends[rank]);
    ::close(ends[1 - rank]);
    endpoint = join(rank, transport, mine.get());
    if (child != 0) return;
    const int status = endpoint == nullptr ? 99 : child_life(*endpoint);
    endpoint.reset();
    std::exit(status);  // not _exit: sanitizers look for leaks there
  }
  ~TwoProcesses() {
    endpoint.reset();
    if (child > 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(child, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  pid_t child = 0;
  std::unique_ptr<Endpoint> endpoint;

 private:
  static std::unique_ptr<Endpoint> join(int rank, const std::string& transport, int socket) {
    OpeningOptions options;
    options.rank = rank;
    options.size = 2;
    options.secret = "secret";
    options.config = config_for(transport);
    auto opening = Opening::open(options);
    if (!opening.ok()) return nullptr;
    const std::string mine = (*opening)->address();
    const auto deadline = steady_clock().now() + kWaitAtMost;
    auto size = static_cast<std::uint32_t>(mine.size());
    if (!write_fully(socket, &size, sizeof size, deadline).ok() ||
        !write_fully(socket, mine.data(), mine.size(), deadline).ok() ||
        !read_fully(socket, &size, sizeof size, deadline).ok())
      return nullptr;
    std::string theirs(size, '\0');
    if (!read_fully(socket, theirs.data(), theirs.size(), deadline).ok()) return nullptr;
    auto endpoint = (*opening)->connect(
        rank == 0 ? std::vector{mine, theirs} : std::vector{theirs, mine}, kWaitAtMost);
    if (!endpoint.ok()) return nullptr;
    // One that dies before the other has its link is another story.
    char linked = 'l';
    const bool both = write_fully(socket, &linked, sizeof linked, deadline).ok() &&
                      read_fully(socket, &linked, sizeof linked, deadline).ok();
    return both ? std::move(*endpoint) : nullptr;
  }
};

bool poll_until(Endpoint& endpoint, Notebook& note, const std::function<bool()>& done) {
  const auto limit = std::chrono::steady_clock::now() + kWaitAtMost;
  while (!done()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    endpoint.poll(note);
  }
  return true;
}

class Processes : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, Processes, testing::Values("shm", "tcp", "auto"),
                         [](const auto& info) { return info.param; });

// The child sends back what it gets.
int echo(Endpoint& endpoint) {
  Notebook note(endpoint);
  std::size_t answered = 0;
  while (true) {
    if (!poll_until(endpoint, note, [&] { return note.messages.size() > answered; })) return 1;
    const Received& message = note.messages[answered++];
    if (message.header.kind == MessageKind::goodbye) return 0;
    std::size_t offset = 0;
    Header header = message.header;
    const bool sent = poll_until(endpoint, note, [&] {
      header.offset = message.header.offset + offset;
      const Sent went = endpoint.link(0)->send(header, message.bytes.data() + offset,
                                               message.bytes.size() - offset, 1);
      if (went.accepted) offset += went.bytes;
      return went.accepted && offset == message.bytes.size();
    });
    if (!sent) return 2;
  }
}

TEST_P(Processes, data_crosses_both_ways_unchanged) {
  TwoProcesses two(GetParam(), echo);
  ASSERT_NE(two.endpoint, nullptr);
  EXPECT_EQ(two.endpoint->link(1)->name(), GetParam() == "tcp" ? "tcp" : "shm");
  Notebook note(*two.endpoint);
  const std::string text = pattern(1'000'003);
  std::size_t offset = 0;
  Header header = header_of(MessageKind::data, 1);
  std::size_t back = 0;
  std::string echoed(text.size(), '?');
  ASSERT_TRUE(poll_until(*two.endpoint, note, [&] {
    header.offset = offset;
    if (offset < text.size()) {
      const Sent sent =
          two.endpoint->link(1)->send(header, text.data() + offset, text.size() - offset, 1);
      if (sent.accepted) offset += sent.bytes;
    }
    for (const Received& message : note.messages) {
      echoed.replace(message.header.offset, message.bytes.size(), message.bytes);
      back += message.bytes.size();
    }
    note.messages.clear();
    return back == text.size();
  }));
  EXPECT_EQ(echoed, text);
  ASSERT_TRUE(two.endpoint->link(1)->send(header_of(MessageKind::goodbye, 1), "", 0, 0).accepted);
  EXPECT_EQ(two.wait(), 0);
}

TEST_P(Processes, a_killed_peer_is_reported_within_two_seconds_also_to_a_sleeper) {
  TwoProcesses two(GetParam(), [](Endpoint&) {
    ::pause();
    return 0;
  });
  ASSERT_NE(two.endpoint, nullptr);
  Notebook note(*two.endpoint);
  for (int i = 0; i < 10; ++i) two.endpoint->poll(note);
  ASSERT_TRUE(note.downs.empty());
  const auto begin = std::chrono::steady_clock::now();
  ::kill(two.child, SIGKILL);
  while (note.downs.empty() && std::chrono::steady_clock::now() - begin < kWaitAtMost)
    two.endpoint->sleep(kWaitAtMost, true, [&] { return two.endpoint->poll(note); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kSlowness * 2s);
  ASSERT_EQ(note.downs.size(), 1u);
  EXPECT_EQ(note.downs[0].second.code(), Code::peer_lost);
  EXPECT_EQ(note.downs[0].second.peer(), 1);
  EXPECT_NE(note.downs[0].second.message().find("pid " + std::to_string(two.child)),
            std::string::npos)
      << note.downs[0].second.message();
}

TEST_P(Processes, a_child_of_the_dead_peer_does_not_hide_its_death) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Descriptor out(ends[0]);
  Descriptor in(ends[1]);
  TwoProcesses two(GetParam(), [&](Endpoint&) {
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ::alarm(60);  // should the test itself be killed
      ::pause();
      ::_exit(0);
    }
    (void)write_fully(in.get(), &grandchild, sizeof grandchild, Nanoseconds::max());
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  ASSERT_NE(two.endpoint, nullptr);
  pid_t grandchild = 0;
  const auto deadline = steady_clock().now() + 10s;
  ASSERT_TRUE(read_fully(out.get(), &grandchild, sizeof grandchild, deadline).ok());
  Notebook note(*two.endpoint);
  const auto begin = std::chrono::steady_clock::now();
  while (note.downs.empty() && std::chrono::steady_clock::now() - begin < kWaitAtMost)
    two.endpoint->sleep(kWaitAtMost, false, [&] { return two.endpoint->poll(note); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kSlowness * 2s);
  EXPECT_EQ(note.downs.size(), 1u);
  EXPECT_EQ(::kill(grandchild, SIGKILL), 0);  // it was alive all the time
}

TEST(SharedMemory, regions_are_mapped_and_lent_between_processes) {
  TwoProcesses two("shm", [](Endpoint& endpoint) {
    Notebook note(endpoint);
    note.keep = true;
    if (!poll_until(endpoint, note, [&] { return endpoint.region_has_come(0, 12); })) return 1;
    if (!poll_until(endpoint, note, [&] { return note.messages.size() == 1; })) return 2;
    const Received& message = note.messages[0];
    if (message.bytes != pattern(300'000)) return 3;
    // A put into the owner's memory, before the view goes back.
    std::byte* reached = endpoint.link(0)->reach({12, 0}, 300'000);
    if (reached != message.view) return 4;
    std::memcpy(reached, "written by the peer", 19);
    endpoint.link(0)->release(message.lease);
    return poll_until(endpoint, note, [&] { return !note.downs.empty(); }) ? 0 : 5;
  });
  ASSERT_NE(two.endpoint, nullptr);
  Notebook note(*two.endpoint);
  auto region = two.endpoint->allocate_region(12, 300'000, {1});
  ASSERT_TRUE(region.ok()) << region.status().to_string();
  const std::string text = pattern(300'000);
  std::memcpy(region->data, text.data(), text.size());
  ASSERT_TRUE(poll_until(*two.endpoint, note, [&] {
    return two.endpoint->link(1)->share(region->data, text.size()).region == 12;
  }));
  const Sent sent =
      two.endpoint->link(1)->send(header_of(MessageKind::data, 1), region->data, text.size(), 3);
  EXPECT_TRUE(sent.lent);
  EXPECT_EQ(sent.bytes, text.size());
  ASSERT_TRUE(poll_until(*two.endpoint, note, [&] { return !note.sent.empty(); }));
  EXPECT_EQ(std::memcmp(region->data, "written by the peer", 19), 0);
  two.endpoint.reset();
  EXPECT_EQ(two.wait(), 0);
}

// As many as a connection sends without an answer: of a process that dies with something unread, such as
// a beat, the kernel drops what it has not sent yet.
constexpr std::uint64_t kLastWords = 8;

TEST_P(Processes, what_was_sent_before_a_death_still_arrives) {
  TwoProcesses two(GetParam(), [](Endpoint& endpoint) {
    for (std::uint64_t i = 0; i < kLastWords; ++i)
      (void)endpoint.link(0)->send(header_of(MessageKind::abort, i), "why", 3, 0);
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  ASSERT_NE(two.endpoint, nullptr);
  Notebook note(*two.endpoint);
  EXPECT_EQ(two.wait(), 128 + SIGKILL);
  ASSERT_TRUE(poll_until(*two.endpoint, note, [&] { return !note.downs.empty(); }));
  EXPECT_EQ(note.messages.size(), kLastWords);
}

}  // namespace
}  // namespace tutti::test
