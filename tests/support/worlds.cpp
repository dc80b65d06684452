#include "support/worlds.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "support/children.hpp"
#include "support/device_group.hpp"
#include "support/hosts.hpp"
#include "transport/ofi/providers.hpp"
#include "tutti/switch.hpp"

namespace tutti::test {

const char* to_string(WorldKind kind) {
  switch (kind) {
    case WorldKind::threads: return "threads";
    case WorldKind::shm: return "shm";
    case WorldKind::tcp: return "tcp";
    case WorldKind::ofi: return "ofi";
    case WorldKind::mixed: return "mixed";
  }
  return "?";
}

std::string describe(const World& world) {
  std::string text = std::string(to_string(world.kind)) + "_" + std::to_string(world.size);
  if (world.order != ReductionOrder::any)
    text += "_" + std::string(to_string(world.order)) + "_order";
  for (const int rank : world.doomed) text += "_without_" + std::to_string(rank);
  return text;
}

namespace {

constexpr const char* kSoftwareFabric = "tcp;ofi_rxm";
constexpr const char* kSecret = "a secret that only the ranks of this test know";

GroupOptions options_for(const World& world, int rank) {
  GroupOptions options;
  options.rank = rank;
  options.size = world.size;
  options.reduction_order = world.order;
  options.secret = kSecret;
  Config config;
  // Shorter than the world's limit: a hang should end in a message that names who is missing.
  config.timeout = std::chrono::seconds(40);
  config.join_timeout = std::chrono::seconds(40);
  config.tuning = "fixed";  // measuring takes a second, and would leave a file with the user
  const char* debug = std::getenv("TUTTI_DEBUG");
  config.debug = debug ? debug : "off";  // failures on purpose would fill pages with warnings
  if (world.kind == WorldKind::threads) config.transport = "inproc";
  if (world.kind == WorldKind::shm) config.transport = "shm";
  if (world.kind == WorldKind::tcp) config.transport = "tcp";
  if (world.kind == WorldKind::ofi) {
    config.transport = "ofi";
    config.ofi_provider = kSoftwareFabric;
  }
  const auto from_environment = [](const char* name, std::string& field) {
    if (const char* text = std::getenv(name)) field = text;
  };
  from_environment("TUTTI_LINKS", config.links);
  from_environment("TUTTI_CUDA_MEET", config.cuda_meet);
  from_environment("TUTTI_CUDA_REACH", config.cuda_reach);
  if (const char* bytes = std::getenv("TUTTI_CUDA_PUSH")) config.cuda_push = std::stoull(bytes);
  config.use_switch = world.has_switch;
  if (world.tune) world.tune(config);
  options.config = config;
  return options;
}

void fold_for_ranks(const World& world, std::shared_ptr<Store> store) {
  ASSERT_TRUE(store->set("switch", std::to_string(getpid())).ok());
  const GroupOptions as_rank = options_for(world, world.size);
  const Status status = run_switch(
      std::move(store), {.size = world.size, .config = as_rank.config, .secret = as_rank.secret});
  ASSERT_TRUE(status.ok()) << "run_switch: " << status.to_string();
}

void live(const World& world, int rank, std::shared_ptr<Store> store, const Body& body) {
  if (rank == world.size) return fold_for_ranks(world, std::move(store));
  SCOPED_TRACE(describe(world) + ", rank " + std::to_string(rank));
  auto group = Group::create(store, options_for(world, rank));
  ASSERT_TRUE(group.ok()) << "Group::create: " << group.status().to_string();
  if (wants_device()) group = on_device(*std::move(group));
  Context here{*std::move(group), std::move(store), world, rank, world.size};
  body(here);
}

// The ranks' way to meet: memory when all are threads of one process, else a server in the parent
// whose socket listens before anybody is forked.
class MeetingPoint {
 public:
  MeetingPoint(const World& world, const TwoHosts* hosts) {
    if (world.kind == WorldKind::threads) return;
    const std::string host = hosts ? TwoHosts::address_of(0) : "127.0.0.1";
    if (hosts) hosts->enter(0);
    socket_ = listen_on(host, address_);
    if (hosts) hosts->leave();
  }
  void open_in_parent() {
    if (socket_ < 0) return;
    auto server = StoreServer::adopt(socket_, kSecret);
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = *std::move(server);
  }
  // In a child, once.
  std::shared_ptr<Store> reach_in_child() {
    if (socket_ < 0) return make_memory_store();
    close_descriptor(socket_);
    auto store = connect_store(address_, kSecret, std::chrono::seconds(30));
    if (store.ok()) return *store;
    ADD_FAILURE() << "connect_store: " << store.status().to_string();
    return nullptr;
  }

 private:
  int socket_ = -1;
  std::string address_;
  std::unique_ptr<StoreServer> server_;
};

std::vector<std::vector<int>> processes_of(const World& world) {
  std::vector<std::vector<int>> processes;
  for (int rank = 0; rank < world.processes(); ++rank) {
    if (processes.empty() || world.kind != WorldKind::threads) processes.emplace_back();
    processes.back().push_back(rank);
  }
  return processes;
}

}  // namespace

std::vector<Failure> collect(const World& world, const Body& body) {
  std::optional<TwoHosts> hosts;
  if (world.kind == WorldKind::mixed) hosts.emplace();
  MeetingPoint meeting(world, hosts ? &*hosts : nullptr);
  Children children(world.limit, world.doomed);
  for (const auto& ranks : processes_of(world)) {
    children.fork(ranks, [&] {
      if (hosts) hosts->enter(ranks.front() < world.size / 2 ? 0 : 1);
      auto store = meeting.reach_in_child();
      if (store) on_threads(ranks, [&](int rank) { live(world, rank, store, body); });
    });
  }
  meeting.open_in_parent();
  return children.wait();
}

void meet(Context& here, const std::string& where) {
  const auto came = here.store->add(where + "/came", 1);
  ASSERT_TRUE(came.ok()) << came.status().to_string();
  if (*came == here.size) {
    ASSERT_TRUE(here.store->set(where + "/all", "").ok());
  }
  ASSERT_TRUE(here.store->wait(where + "/all", std::chrono::seconds(30)).ok());
}

void run(const World& world, const Body& body) {
  for (const Failure& failure : collect(world, body))
    ADD_FAILURE_AT(failure.file.c_str(), failure.line)
        << "rank " << failure.rank << " of " << describe(world) << ": " << failure.text;
}

namespace {

// Asked in a child: the test's own process stays free of what libfabric starts.
std::optional<std::string> no_software_fabric() {
  static const std::optional<std::string> why = [] {
    std::string answer;
    Children child(std::chrono::seconds(60), {});
    child.fork({0}, [] {
      const auto all = transport::ofi::providers();
      const bool has = all.ok() && std::any_of(all->begin(), all->end(), [](const auto& each) {
                         return each.name == kSoftwareFabric;
                       });
      if (!has)
        ADD_FAILURE() << (all.ok() ? "libfabric has no tcp;ofi_rxm" : all.status().message());
    });
    const auto failures = child.wait();
    return failures.empty() ? std::nullopt : std::optional(failures.front().text);
  }();
  return why;
}

}  // namespace

std::optional<std::string> unavailable(const World& world) {
  if (world.kind == WorldKind::ofi) return no_software_fabric();
  if (world.kind != WorldKind::mixed) return std::nullopt;
  static const std::optional<std::string> why = TwoHosts::unavailable();
  return why;
}

bool reduced() {
  const char* value = std::getenv("TUTTI_TEST_REDUCED");
  return value && std::string(value) != "0";
}

std::vector<int> sizes() {
  return reduced() ? std::vector<int>{1, 2, 3, 5} : std::vector<int>{1, 2, 3, 5, 8, 11, 16};
}

std::vector<World> every_world() {
  std::vector<World> worlds;
  for (WorldKind kind : {WorldKind::threads, WorldKind::shm, WorldKind::tcp})
    for (int size : sizes()) worlds.push_back(World{.kind = kind, .size = size});
  worlds.push_back(World{.kind = WorldKind::mixed, .size = 4});
  return worlds;
}

std::vector<World> one_world_of_each() {
  return {World{.kind = WorldKind::threads, .size = 3}, World{.kind = WorldKind::shm, .size = 3},
          World{.kind = WorldKind::tcp, .size = 3}, World{.kind = WorldKind::mixed, .size = 4}};
}

std::vector<WorldKind> worlds_of_processes() {
  std::vector<WorldKind> kinds = {WorldKind::shm, WorldKind::tcp};
  if (!unavailable({.kind = WorldKind::ofi})) kinds.push_back(WorldKind::ofi);
  return kinds;
}

std::vector<World> each_victim_in(const std::vector<World>& worlds) {
  std::vector<World> all;
  for (const World& world : worlds)
    for (const int victim : {0, world.size / 2, world.size - 1}) {
      all.push_back(world);
      all.back().doomed = {victim};
    }
  return all;
}

void WorldTest::SetUp() {
  if (const auto why = unavailable(GetParam())) GTEST_SKIP() << *why;
}

std::string name_of(const testing::TestParamInfo<World>& info) { return describe(info.param); }
void PrintTo(const World& world, std::ostream* out) { *out << describe(world); }

}  // namespace tutti::test
