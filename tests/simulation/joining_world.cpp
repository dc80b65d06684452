#include "simulation/joining_world.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "core/check.hpp"

namespace tutti::simulation {
namespace {

using namespace std::chrono_literals;
using transport::LinkedEndpoint;
using transport::Transport;

constexpr std::string_view kSecret = "a secret that only this job knows";
constexpr std::uint64_t kEpoch = 7;
constexpr Nanoseconds kJoinTimeout = 20s;
constexpr std::size_t kPlaces = 24;
// Rounds without any movement after which only time can bring something.
constexpr std::uint64_t kQuietRounds = 40;

// What came over the links, by sender.
class Letters final : public transport::MessageSink {
 public:
  explicit Letters(LinkedEndpoint& endpoint) : endpoint_(endpoint) {}
  std::byte* place(int, const transport::Header&) override { return nullptr; }
  void on_message(int peer, const transport::Header& header,
                  const transport::Payload& payload) override {
    got[peer].emplace_back(reinterpret_cast<const char*>(payload.data), header.bytes);
    if (payload.lease != 0) endpoint_.link(peer)->release(payload.lease);
  }
  void on_sent(std::uint64_t) override {}
  void on_down(int peer, const Status& why) override { down[peer] = why; }

  std::map<int, std::vector<std::string>> got;
  std::map<int, Status> down;

 private:
  LinkedEndpoint& endpoint_;
};

std::string letter(int from, int to) { return fmt::format("from {} to {}", from, to); }

}  // namespace

JoiningWorld::JoiningWorld(std::uint64_t seed) : random_(seed) {
  static constexpr const char* kTransports[] = {"tcp", "tcp", "shm", "inproc", "auto"};
  ranks_ = static_cast<int>(2 + random_() % 5);
  config_.transport = kTransports[random_() % std::size(kTransports)];
  config_.streams = static_cast<int>(1 + random_() % 3);
  config_.segment_bytes = 4096;
  config_.debug = "warn";
  intrusions_ = static_cast<int>(random_() % 12);
  if (random_() % 3 == 0) victim_ = static_cast<int>(random_() % static_cast<unsigned>(ranks_));
  dies_at_ = random_() % 25;
  std::string pattern = (std::filesystem::temp_directory_path() / "tutti-joining-XXXXXX").string();
  TUTTI_CHECK(::mkdtemp(pattern.data()) != nullptr);
  folder_ = pattern;
  const auto named = named_transports(config_.transport, transport::built_in_transports());
  for (const Transport* transport : *named)
    if (transport->viable(config_).ok()) transports_.push_back(transport);
  for (int rank = 0; rank < ranks_; ++rank) open(rank);
  for (int rank = 0; rank < ranks_; ++rank) gather(rank);
}

JoiningWorld::~JoiningWorld() {
  for (const auto& rank : world_) rank->joining.reset();
  for (const auto& rank : world_) rank->relay.reset();  // nobody waits for last words
  world_.clear();
  std::filesystem::remove_all(folder_);
}

// ---- as Opening does it

void JoiningWorld::open(int rank) {
  Rank& made = *world_.emplace_back(std::make_unique<Rank>());
  TUTTI_CHECK(made.doors.open_local(64).ok());
  TUTTI_CHECK(made.doors.open_network(config_, 64).ok());
  made.doors.network.outward.reset();
  const auto breaks = static_cast<unsigned>(random_() % 6);
  made.relay = std::make_unique<RelayDoor>(made.doors.network.loopback_address, breaks, random_);
  made.log_file = fmt::format("{}/{}", folder_, rank);
}

transport::Address JoiningWorld::address_of(int rank) const {
  transport::Address address;
  address.rank = rank;
  address.pid = ::getpid();
  address.pid_space = transport::this_pid_space();
  address.host = "simulated";
  address.host_id = transport::this_host_id();
  for (const Transport* transport : transports_)
    address.ready.push_back({std::string(transport->name()), *transport->viable(config_)});
  address.local = at(rank).doors.local_address;
  address.tcp_loopback = at(rank).relay->address();
  return address;
}

void JoiningWorld::gather(int rank) {
  Rank& me = at(rank);
  me.party.rank = rank;
  me.party.epoch = kEpoch;
  me.party.secret = kSecret;
  me.party.config = config_;
  me.party.transports = transports_;
  for (int each = 0; each < ranks_; ++each) {
    me.party.addresses.push_back(address_of(each));
    me.party.lanes.push_back(each);
  }
  me.party.window = *transport::Window::create(
      rank, transport::WindowShape::of(ranks_, config_.segment_bytes), false);
  for (const Transport* transport : transports_) TUTTI_CHECK(transport->prepare(me.party).ok());
  Config config = config_;
  config.debug_file = me.log_file;
  LinkedEndpoint::Parts parts;
  parts.rank = rank;
  parts.size = ranks_;
  parts.window = me.party.window;
  parts.log = *Log::open(config);
  me.endpoint = *LinkedEndpoint::create(parts);
  me.joining = std::make_unique<transport::Joining>(me.party, me.doors, *me.endpoint, kPlaces,
                                                    parts.log, clock_);
  const Status begun = me.joining->begin(kJoinTimeout, [this, rank] { return watch(rank); });
  if (!begun.ok()) complain(begun.to_string());
}

// ---- one round

// What others have said in the store of why they gave up.
Status JoiningWorld::watch(int rank) const {
  for (int other = 0; other < ranks_; ++other)
    if (other != rank && at(other).told_at <= clock_.now()) return at(other).end;
  return {};
}

void JoiningWorld::turn(int rank) {
  Rank& me = at(rank);
  if (me.phase != Phase::joining) return;
  const Result<bool> done = me.joining->turn(0s);
  if (done.ok() && !*done) return;
  me.phase = done.ok() ? Phase::joined : Phase::failed;
  me.end = done.status();
  me.joining.reset();
  me.doors = {};
  if (!done.ok()) {
    me.endpoint.reset();
    me.told_at = clock_.now() + Nanoseconds(random_() % 100'000'000);
  }
  outcome_.story +=
      fmt::format("  {} us: rank {}: {}\n", clock_.now().count() / 1000, rank, me.end.to_string());
}

bool JoiningWorld::turn_all() {
  std::vector<int> order(static_cast<std::size_t>(ranks_));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  bool moved = false;
  for (const int rank : order) {
    const Phase before = at(rank).phase;
    if (random_() % 3 != 0) turn(rank);
    moved |= at(rank).phase != before;
    for (const auto& each : world_)
      if (random_() % 2 == 0) moved |= each->relay->move();
  }
  return moved;
}

void JoiningWorld::maybe_die() {
  if (victim_ < 0 || outcome_.died || rounds_ < dies_at_) return;
  Rank& victim = at(victim_);
  outcome_.died = true;
  outcome_.story += fmt::format("  {} us: rank {} dies\n", clock_.now().count() / 1000, victim_);
  victim.joining.reset();
  victim.doors = {};
  victim.relay->close();
  victim.endpoint.reset();
  victim.phase = Phase::dead;
}

// ---- intruders

std::optional<Intruder::Aim> JoiningWorld::aim(Intruder::Kind kind) {
  const int target = static_cast<int>(random_() % static_cast<unsigned>(ranks_ - 1));
  const int rank =
      target + 1 + static_cast<int>(random_() % static_cast<unsigned>(ranks_ - target - 1));
  Rank& there = at(target);
  if (there.phase != Phase::joining) return std::nullopt;
  const bool is_linked = there.endpoint->link(rank) != nullptr;
  const bool by_tcp = is_linked && there.endpoint->link(rank)->name() == "tcp";
  if (kind == Intruder::Kind::duplicate && !by_tcp) return std::nullopt;
  if (kind == Intruder::Kind::replay && there.relay->overheard().empty()) return std::nullopt;
  const bool needs_tcp = kind == Intruder::Kind::duplicate || kind == Intruder::Kind::replay;
  const bool local = !needs_tcp && random_() % 2 == 0;
  const std::string& door =
      local ? there.doors.local_address : there.doors.network.loopback_address;
  return Intruder::Aim{target, rank, door, local, kEpoch, kSecret, there.relay->overheard()};
}

void JoiningWorld::maybe_intrude() {
  if (intrusions_ == 0 || random_() % 4 != 0) return;
  const auto kind = static_cast<Intruder::Kind>(random_() % Intruder::kKinds);
  const auto at = aim(kind);
  if (!at) return;
  --intrusions_;
  intruders_.push_back(std::make_unique<Intruder>(kind, *at, random_));
}

bool JoiningWorld::step_intruders() {
  bool moved = false;
  for (const auto& intruder : intruders_) {
    if (intruder->is_out()) continue;
    intruder->step();
    if (!intruder->is_out()) continue;
    moved = true;
    // Where nobody joins any more the door was closed on all alike.
    if (!intruder->has_claimed() || at(intruder->target()).phase != Phase::joining) continue;
    ++at(intruder->target()).intruders_refused;
    ++outcome_.refused;
  }
  return moved;
}

// ---- the run

bool JoiningWorld::is_over() const {
  return std::none_of(world_.begin(), world_.end(),
                      [](const auto& rank) { return rank->phase == Phase::joining; });
}

Joined JoiningWorld::run() {
  outcome_.story = fmt::format("{} ranks join by {}, {} streams, {} intruders\n", ranks_,
                               config_.transport, config_.streams, intrusions_);
  constexpr std::uint64_t kRounds = 100'000;
  for (; rounds_ < kRounds && !is_over(); ++rounds_) {
    maybe_die();
    maybe_intrude();
    const bool turned = turn_all();
    const bool moved = step_intruders() || turned;
    quiet_ = moved ? 0 : quiet_ + 1;
    clock_.advance(Nanoseconds(random_() % (quiet_ > kQuietRounds ? 40'000'000 : 500'000)));
  }
  judge();
  return outcome_;
}

void JoiningWorld::judge() {
  if (!is_over()) return complain("it does not end");
  for (const auto& rank : world_) outcome_.breaks += rank->relay->breaks();
  judge_deaths();
  if (!outcome_.died && outcome_.broken.empty()) judge_links();
  judge_logs();
}

// Nobody fails for nothing; who fails names the dead.
void JoiningWorld::judge_deaths() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Rank& me = at(rank);
    if (me.phase != Phase::failed) continue;
    const bool right_code = me.end.code() == Code::peer_lost || me.end.code() == Code::timed_out;
    if (!outcome_.died || !right_code || me.end.peer() != victim_)
      complain(fmt::format("rank {} fails with {}", rank, me.end.to_string()));
  }
}

// Every pair has one link, and what is sent by it comes once.
void JoiningWorld::judge_links() {
  std::vector<std::unique_ptr<Letters>> letters;
  for (int rank = 0; rank < ranks_; ++rank) {
    letters.push_back(std::make_unique<Letters>(*at(rank).endpoint));
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == rank) continue;
      transport::Link* link = at(rank).endpoint->link(peer);
      if (link == nullptr) return complain(fmt::format("{} has no link to {}", rank, peer));
      const std::string text = letter(rank, peer);
      const auto header = transport::header_for(transport::MessageKind::eager, 1, 1);
      if (!link->send(header, text.data(), text.size(), 0).accepted)
        return complain(fmt::format("{} cannot send to {}", rank, peer));
    }
  }
  const auto has_all = [&](const auto& of) {
    return of->got.size() + 1 == static_cast<std::size_t>(ranks_);
  };
  for (int round = 0; round < 20'000 && !std::all_of(letters.begin(), letters.end(), has_all);
       ++round)
    for (int rank = 0; rank < ranks_; ++rank) {
      at(rank).endpoint->poll(*letters[static_cast<std::size_t>(rank)]);
      at(rank).relay->move();
    }
  for (int rank = 0; rank < ranks_; ++rank)
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == rank) continue;
      Letters& mine = *letters[static_cast<std::size_t>(rank)];
      if (mine.got[peer] != std::vector{letter(peer, rank)})
        complain(fmt::format("rank {} has {} letters of rank {}, or others than it sent", rank,
                             mine.got[peer].size(), peer));
      if (mine.down.count(peer) != 0)
        complain(fmt::format("rank {} lost rank {}: {}", rank, peer, mine.down[peer].to_string()));
    }
}

// ---- what the logs say

// Lines, and those that lines count.
std::uint64_t JoiningWorld::told_refusals(const Rank& rank) const {
  std::ifstream file(rank.log_file);
  std::uint64_t told = 0;
  for (std::string line; std::getline(file, line);) {
    const auto turned = line.find("turned away ");
    if (line.find("WARN") == std::string::npos || turned == std::string::npos) continue;
    const auto more = line.find("; and ");
    if (more != std::string::npos) told += std::stoull(line.substr(more + 6));
    const std::string what = line.substr(turned + 12);
    told += what.starts_with("a connection") ? 1 : std::stoull(what);
  }
  return told;
}

void JoiningWorld::judge_logs() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Rank& me = at(rank);
    if (me.phase == Phase::dead) continue;
    const std::uint64_t told = told_refusals(me);
    if (told < static_cast<std::uint64_t>(me.intruders_refused))
      complain(fmt::format("rank {} refused {} intruders and told of {}", rank,
                           me.intruders_refused, told));
  }
}

}  // namespace tutti::simulation
