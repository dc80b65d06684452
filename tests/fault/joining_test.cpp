// What goes wrong while a group is made: a rank that dies meanwhile is noticed and named, and one that is
// short of descriptors says so.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "support/children.hpp"
#include "support/sanitized.hpp"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr const char* kSecret = "a secret that only the ranks of this test know";

// A store whose user dies so long after it has set a key with this in its name.
class DeadlyStore final : public Store {
 public:
  DeadlyStore(std::shared_ptr<Store> store, std::string fatal,
              std::chrono::microseconds after = 0us)
      : store_(std::move(store)), fatal_(std::move(fatal)), after_(after) {}

  Status set(const std::string& key, const std::string& value) override {
    Status status = store_->set(key, value);
    die_at(key);
    return status;
  }
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_->get(key, timeout);
  }
  Status wait(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_->wait(key, timeout);
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t delta) override {
    return store_->add(key, delta);
  }
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override {
    return store_->compare_set(key, expected, desired);
  }
  Result<bool> remove(const std::string& key) override { return store_->remove(key); }

 private:
  void die_at(const std::string& key) const {
    if (key.find(fatal_) == std::string::npos) return;
    (void)store_->set("died", std::to_string(Clock::now().time_since_epoch().count()));
    if (after_ == 0us) kill(getpid(), SIGKILL);
    std::thread([after = after_] {
      std::this_thread::sleep_for(after);
      kill(getpid(), SIGKILL);
    }).detach();
  }
  std::shared_ptr<Store> store_;
  std::string fatal_;
  std::chrono::microseconds after_;
};

GroupOptions joining_options(int rank, int size, const char* transport) {
  GroupOptions options;
  options.rank = rank;
  options.size = size;
  options.secret = kSecret;
  options.config = Config{};
  options.config->transport = transport;
  options.config->tuning = "fixed";
  options.config->debug = "off";
  options.config->join_timeout = 20s;
  return options;
}

// Each rank's life, with the store.
void among_processes(int size, const std::vector<int>& doomed,
                     const std::function<void(int rank, std::shared_ptr<Store>)>& life) {
  std::string address;
  const int socket = listen_on("127.0.0.1", address);
  Children children(40s, doomed);
  for (int rank = 0; rank < size; ++rank)
    children.fork({rank}, [&, rank] {
      close_descriptor(socket);
      auto store = connect_store(address, kSecret, 30s);
      ASSERT_TRUE(store.ok()) << store.status().to_string();
      life(rank, *store);
    });
  auto server = StoreServer::adopt(socket, kSecret);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  for (const Failure& failure : children.wait())
    ADD_FAILURE_AT(failure.file.c_str(), failure.line)
        << "rank " << failure.rank << ": " << failure.text;
}

// Of three ranks `victim` dies, and the others hear of it in time, whatever they are doing.
void expect_told(const char* transport, int victim, const char* fatal,
                 std::chrono::microseconds after) {
  among_processes(3, {victim}, [&](int rank, std::shared_ptr<Store> store) {
    SCOPED_TRACE(std::string(transport) + fatal);
    auto own = store;
    if (rank == victim) own = std::make_shared<DeadlyStore>(store, fatal, after);
    const auto group = Group::create(own, joining_options(rank, 3, transport));
    // Who has heard all its words may have its group before the death is told.
    Status status = group.status();
    while (status.ok()) status = (*group)->barrier();
    const auto died = store->get("died", 5s);
    ASSERT_TRUE(died.ok());
    const std::chrono::nanoseconds took(Clock::now().time_since_epoch().count() -
                                        std::stoll(*died));
    std::printf("%s%s + %d us: rank %d after %.0f ms: %s\n", transport, fatal,
                static_cast<int>(after.count()), rank,
                std::chrono::duration<double, std::milli>(took).count(),
                status.to_string().c_str());
    EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
    EXPECT_EQ(status.peer(), victim) << status.to_string();
    EXPECT_LT(took, kSlowness * 2s);
  });
}

// To the last rank nobody connects, so nobody misses it at its door.
TEST(JoiningLoss, of_a_rank_that_has_given_its_address_or_its_links_is_told_to_all) {
  for (const char* transport : {"shm", "tcp"})
    for (const std::string last : {"/address/", "/links/"})
      for (const int victim : {0, 2})
        expect_told(transport, victim, (last + std::to_string(victim)).c_str(), 0us);
}

TEST(JoiningLoss, at_any_moment_is_told_to_all) {
  for (int i = 1; i <= 12; ++i)
    expect_told(i % 2 == 0 ? "shm" : "tcp", i % 3, ("/address/" + std::to_string(i % 3)).c_str(),
                i * 150us);
}

TEST(JoiningShort, of_descriptors_says_how_many_it_needs_and_has) {
  for (const char* transport : {"shm", "tcp"})
    among_processes(3, {}, [&](int rank, std::shared_ptr<Store> store) {
      SCOPED_TRACE(transport);
      if (rank == 1) {
        const rlimit few{20, 20};
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
      }
      const Status status = Group::create(store, joining_options(rank, 3, transport)).status();
      EXPECT_EQ(status.code(), rank == 1 ? Code::out_of_memory : Code::peer_lost)
          << status.to_string();
      for (const char* word : {"rank 1", "needs", "descriptors", "limit is 20"})
        EXPECT_NE(status.message().find(word), std::string::npos)
            << "should say " << word << ": " << status.to_string();
    });
}

// A process that has used up its descriptors is no dead rank, and does not take others for dead.
TEST(JoinedShort, of_descriptors_is_no_death) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer needs descriptors itself, to look at objects' types";
#endif
  for (const char* transport : {"shm", "tcp"})
    among_processes(2, {}, [&](int rank, std::shared_ptr<Store> store) {
      SCOPED_TRACE(transport);
      auto group = Group::create(store, joining_options(rank, 2, transport));
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      if (rank == 1) {
        const rlimit few{128, 128};
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
        while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {
        }
      }
      std::vector<float> values(300'007, 1.0F);
      const Status sum = (*group)->all_reduce(Buffer::of(values), ReduceOp::sum);
      EXPECT_TRUE(sum.ok()) << sum.to_string();
      const auto memory = (*group)->allocate(1 << 20);
      if (!memory.ok()) {
        EXPECT_EQ(memory.status().code(), Code::out_of_memory) << memory.status().to_string();
      }
      const Status after = (*group)->barrier();
      EXPECT_NE(after.code(), Code::peer_lost) << after.to_string();
    });
}

}  // namespace
}  // namespace tutti::test
