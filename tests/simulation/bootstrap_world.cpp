#include "simulation/bootstrap_world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/auth.hpp"
#include "core/check.hpp"
#include "group/store_rounds.hpp"
#include "simulation/fibers.hpp"
#include "store/table.hpp"
#include "transport/address.hpp"
#include "transport/overlay.hpp"

namespace tutti::simulation {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

// The store's server, and what each rank has of it.
class Server {
 public:
  Server(Fibers& fibers, VirtualClock& clock, const BootstrapCosts& costs, Bootstrapped::Load& load)
      : fibers_(fibers), clock_(clock), costs_(costs), load_(load) {}

  // From a fiber: `serve` runs at the server, in its turn, and says how many bytes it answers with.
  void call(const std::function<std::size_t()>& serve) {
    const auto self = fibers_.current();
    fibers_.at(clock_.now() + costs_.way, [this, self, &serve] {
      ++load_.requests;
      reply(self, serve());
    });
    fibers_.wait();
  }
  // The same for a key that may have to be waited for.
  bool call_for(const std::string& key, milliseconds timeout, std::string& value) {
    const auto self = fibers_.current();
    const Nanoseconds until = deadline_after(clock_.now(), timeout) + costs_.way;
    bool found = false;
    const auto take = [&] {
      const std::string* held = table.find(key);
      found = held != nullptr;
      if (found) value = *held;
    };
    fibers_.at(clock_.now() + costs_.way, [&, self] {
      ++load_.requests;
      if (const std::string* held = table.find(key)) return reply(self, held->size());
      const auto number = ++waits_made_;
      waiters_[key].emplace(number, self);
      fibers_.at(until, [this, key, number, self] {
        const auto at = waiters_.find(key);
        if (at != waiters_.end() && at->second.erase(number) > 0) reply(self, 0);
      });
    });
    fibers_.wait();
    take();
    return found;
  }
  void wake(const std::string& key) {
    const auto at = waiters_.find(key);
    if (at == waiters_.end()) return;
    const std::size_t bytes = table.find(key)->size();
    for (const auto& [number, fiber] : std::exchange(at->second, {})) reply(fiber, bytes);
  }
  store::Table table;

 private:
  void reply(Fibers::Id fiber, std::size_t bytes) {
    load_.bytes += bytes;
    free_at_ = std::max(free_at_, clock_.now()) + costs_.request +
               Nanoseconds(static_cast<std::int64_t>(static_cast<double>(bytes) * 1e9 /
                                                     costs_.bytes_per_second));
    fibers_.at(free_at_ + costs_.way, [this, fiber] { fibers_.resume(fiber); });
  }

  Fibers& fibers_;
  VirtualClock& clock_;
  const BootstrapCosts& costs_;
  Bootstrapped::Load& load_;
  Nanoseconds free_at_{0};
  std::uint64_t waits_made_ = 0;
  std::map<std::string, std::map<std::uint64_t, Fibers::Id>> waiters_;
};

class SimulatedStore final : public Store {
 public:
  explicit SimulatedStore(Server& server) : server_(server) {}
  int requests = 0;

  Status set(const std::string& key, const std::string& value) override {
    if (Status status = store::check_value(key, value); !status.ok()) return status;
    call([&] {
      server_.table.set(key, value);
      server_.wake(key);
      return std::size_t{0};
    });
    return {};
  }
  Result<std::string> get(const std::string& key, milliseconds timeout) override {
    ++requests;
    std::string value;
    if (server_.call_for(key, timeout, value)) return value;
    return store::missing_key(key, timeout);
  }
  Status wait(const std::string& key, milliseconds timeout) override {
    return get(key, timeout).status();
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    Result<std::int64_t> sum = std::int64_t{0};
    call([&] { return sum = server_.table.add(key, amount), std::size_t{8}; });
    return sum;
  }
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override {
    std::string held;
    call([&] {
      bool changed = false;
      held = server_.table.compare_set(key, expected, desired, changed);
      if (changed) server_.wake(key);
      return held.size();
    });
    return held;
  }
  Result<bool> remove(const std::string& key) override {
    bool removed = false;
    call([&] { return removed = server_.table.remove(key), std::size_t{1}; });
    return removed;
  }

 private:
  void call(const std::function<std::size_t()>& serve) {
    ++requests;
    server_.call(serve);
  }
  Server& server_;
};

// The bytes of one handshake, and how often they change direction.
int flights_of_handshake() {
  const std::string secret(32, 's');
  Handshake client = Handshake::client(secret, {kRoleData, 1, 1});
  Handshake server = Handshake::server(secret, {kRoleData, 0, 1});
  int flights = 2;  // TCP's own
  while (!client.done() || !server.done()) {
    if (const std::string out = client.take_output(); !out.empty())
      ++flights, TUTTI_CHECK(server.feed(out).ok());
    if (const std::string out = server.take_output(); !out.empty())
      ++flights, TUTTI_CHECK(client.feed(out).ok());
  }
  return flights + 1;  // the welcome
}

constexpr int kRanksOfHost = 8;

transport::Address address_of(int rank) {
  transport::Address address;
  address.rank = rank;
  address.pid = 1000 + rank;
  address.pid_space = "4/4026531836";
  address.host = fmt::format("node{:04}", rank / kRanksOfHost);
  address.host_id = fmt::format("6d0f3a52-6f0e-4b8e-9c58-{:012}/4/4026531840", rank / kRanksOfHost);
  address.ready.push_back({"tcp", "1 express"});
  address.tcp_loopback = fmt::format("127.0.0.1:{}", 30000 + rank % kRanksOfHost);
  address.tcp_outward =
      fmt::format("10.{}.{}.1:{}", rank / 2048, rank / 8 % 256, 30000 + rank % kRanksOfHost);
  return address;
}

class BootstrapWorld {
 public:
  BootstrapWorld(int ranks, const BootstrapCosts& costs) : costs_(costs), ranks_(ranks) {
    outcome_.ranks = ranks;
    world_.resize(static_cast<std::size_t>(ranks));
  }

  Bootstrapped run() {
    for (int rank = 0; rank < ranks_; ++rank)
      fibers_.start([this, rank] {
        const Status status = meet(rank);
        if (!status.ok() && outcome_.broken.empty())
          outcome_.broken = fmt::format("rank {}: {}", rank, status.to_string());
        outcome_.took = std::max(outcome_.took, clock_.now());
      });
    if (!fibers_.run() && outcome_.broken.empty()) outcome_.broken = "some ranks wait for ever";
    for (const Rank& rank : world_)
      outcome_.most_links = std::max(outcome_.most_links, static_cast<int>(rank.links.size()));
    return outcome_;
  }

 private:
  struct Rank {
    std::set<int> links;
    std::size_t linked = 0;
    bool links_up = false;   // it has reached that point
    Nanoseconds free_at{0};  // its core
    Fibers::Id fiber = 0;
    bool waits = false;
    int below = 0;  // who came to the barrier
    bool released = false;
  };
  Rank& at(int rank) { return world_[static_cast<std::size_t>(rank)]; }

  // As group/bootstrap.cpp does it.
  Status meet(int rank) {
    SimulatedStore store(server_);
    GroupOptions options;
    options.rank = rank;
    options.size = ranks_;
    group::StoreRounds meeting(store, options, 600s, nullptr, clock_);
    if (Status status = meeting.join(); !status.ok()) return status;
    for (const char* key : {"secret", "epoch"})
      if (auto said = meeting.from_rank_0(key, "12345678"); !said.ok()) return said.status();
    if (meeting.is_by_tree()) meeting.fan_out(find_leader(rank));
    if (auto wants = meeting.exchange("size", fmt::format("create(size {})", ranks_)); !wants.ok())
      return wants.status();
    meeting.climb(doors_of(rank));
    if (Status status = link_up(rank, meeting); !status.ok()) return status;
    auto firsts = meeting.exchange("links", std::to_string(rank / 8 * 8));
    if (!firsts.ok()) return firsts.status();
    for (int other = 0; other < ranks_; ++other)
      if ((*firsts)[static_cast<std::size_t>(other)] != std::to_string(other / 8 * 8))
        return {Code::internal, fmt::format("it heard something else of rank {}", other)};
    if (auto said = meeting.from_rank_0("tuning", "fixed"); !said.ok()) return said.status();
    meeting.leave_host();
    outcome_.most_requests = std::max(outcome_.most_requests, store.requests);
    pass_barrier(rank);
    return {};
  }

  // As HostStore::find: whoever comes first leads.
  group::HostStore find_leader(int rank) {
    auto& server = hosts_[rank / kRanksOfHost];
    group::HostStore host;
    host.leads = !server;
    if (host.leads) server = std::make_unique<Server>(fibers_, clock_, costs_, outcome_.leaders);
    host.store = std::make_shared<SimulatedStore>(*server);
    return host;
  }

  // As HostDoors::of_network: reached by those who have read the address.
  group::HostDoors doors_of(int rank) {
    group::HostDoors doors;
    doors.reach = [this](const std::string& address) -> Result<std::shared_ptr<Store>> {
      return std::shared_ptr<Store>(std::make_shared<SimulatedStore>(*doors_.at(address)));
    };
    doors.open = [this, rank, reach = doors.reach]() -> Result<group::HostDoor> {
      const std::string address = address_of(rank).tcp_outward;
      doors_[address] = std::make_unique<Server>(fibers_, clock_, costs_, outcome_.leaders);
      group::HostDoor door;
      door.address = address;
      door.store = *reach(address);
      return door;
    };
    return doors;
  }

  Status link_up(int rank, group::StoreRounds& meeting) {
    auto addresses = meeting.exchange("address", address_of(rank).encode());
    if (!addresses.ok()) return addresses.status();
    const auto neighbours = transport::overlay_neighbours(rank, ranks_, [](int) { return false; });
    for (const int peer : neighbours) {
      const auto address = transport::Address::decode((*addresses)[static_cast<std::size_t>(peer)]);
      if (!address.ok()) return address.status();
      if (address->rank != peer) return {Code::internal, "the address is another rank's"};
    }
    addresses = std::vector<std::string>();
    Rank& me = at(rank);
    me.fiber = fibers_.current();
    me.links_up = true;
    for (const int peer : neighbours)
      if (at(peer).links_up) begin_link(rank, peer);
    while (me.linked < neighbours.size()) pause(me);
    return {};
  }

  // Both are at it: there is a link after the flights of the handshake, and two cores' time.
  void begin_link(int a, int b) {
    at(a).links.insert(b);
    at(b).links.insert(a);
    outcome_.link_messages += static_cast<std::uint64_t>(flights_);
    Nanoseconds done = clock_.now();
    for (const int each : {a, b}) {
      at(each).free_at = std::max(at(each).free_at, clock_.now()) + costs_.handshake;
      done = std::max(done, at(each).free_at);
    }
    fibers_.at(done + flights_ * costs_.way, [this, a, b] {
      for (const int each : {a, b}) {
        ++at(each).linked;
        go_on(each);
      }
    });
  }

  // By the binomial tree, over links that may have to be made first.
  void pass_barrier(int rank) {
    Rank& me = at(rank);
    int children = 0;
    const int lowest = rank == 0 ? ranks_ : rank & -rank;
    for (int step = 1; step < lowest && rank + step < ranks_; step *= 2) ++children;
    while (me.below < children) pause(me);
    const int parent = rank & (rank - 1);
    if (rank != 0) {
      const bool is_new = at(parent).links.insert(rank).second;
      me.links.insert(parent);
      if (is_new) outcome_.link_messages += static_cast<std::uint64_t>(flights_);
      tell(parent, is_new ? flights_ + 1 : 1, [](Rank& to) { ++to.below; });
      while (!me.released) pause(me);
    }
    for (int step = 1; step < lowest && rank + step < ranks_; step *= 2)
      tell(rank + step, 1, [](Rank& to) { to.released = true; });
  }

  void tell(int to, int flights, const std::function<void(Rank&)>& what) {
    ++outcome_.link_messages;
    fibers_.at(clock_.now() + flights * costs_.way, [this, to, what] {
      what(at(to));
      go_on(to);
    });
  }

  void pause(Rank& me) {
    me.waits = true;
    fibers_.wait();
  }
  void go_on(int rank) {
    if (std::exchange(at(rank).waits, false)) fibers_.resume(at(rank).fiber);
  }

  BootstrapCosts costs_;
  int ranks_;
  const int flights_ = flights_of_handshake();
  VirtualClock clock_;
  Fibers fibers_{clock_};
  Bootstrapped outcome_;
  Server server_{fibers_, clock_, costs_, outcome_.store};
  std::map<int, std::unique_ptr<Server>> hosts_;
  std::map<std::string, std::unique_ptr<Server>> doors_;  // of leaders that have hosts below
  std::vector<Rank> world_;
};

}  // namespace

std::string Bootstrapped::text() const {
  return fmt::format(
      "{} ranks: {:.2f} s; {} requests to the store ({:.1f} a rank, {} at most) and {:.1f} MB of "
      "answers, {} requests to leaders of hosts and {:.1f} MB, {} messages over links, at most {} "
      "links a rank",
      ranks, in_seconds(took), store.requests, static_cast<double>(store.requests) / ranks,
      most_requests, static_cast<double>(store.bytes) / 1e6, leaders.requests,
      static_cast<double>(leaders.bytes) / 1e6, link_messages, most_links);
}

Bootstrapped simulate_bootstrap(int ranks, const BootstrapCosts& costs) {
  return BootstrapWorld(ranks, costs).run();
}

}  // namespace tutti::simulation
