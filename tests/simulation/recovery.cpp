#include "simulation/recovery.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "support/transports/inproc_endpoints.hpp"

namespace tutti::simulation {
namespace {

using namespace std::chrono_literals;

// How long those who agree wait for somebody who does not speak.
constexpr Nanoseconds kPatience = 1s;
constexpr std::size_t kCounts[] = {1, 17, 1000};
// Enough for the streams beside a pair's first.
constexpr std::size_t kCountsOnWires[] = {1, 17, 40000};

// What a rank brings to a sum of a group.
std::int64_t brought_by(int member, std::uint64_t sum, std::uint32_t group, std::size_t i) {
  return static_cast<std::int64_t>((static_cast<std::uint64_t>(member) + 1) * 1000003 +
                                   sum * 10007 + group * 101 + i);
}

}  // namespace

Recovery::Recovery(std::uint64_t seed, Links links) : random_(seed), links_(links) {
  ranks_ = static_cast<int>(2 + random_() % 6);
  config_.progress_thread = false;
  config_.timeout = links == Links::uneven || links == Links::wire ? 20s : 2s;
  config_.debug = "off";
  config_.segment_bytes = 1024;
  if (links == Links::wire) config_.segment_bytes = 64 << 10;
  deaths_ = static_cast<int>(random_() % static_cast<std::uint64_t>(ranks_));
  stops_ = deaths_ + 1 < ranks_ ? static_cast<int>(random_() % 2) : 0;
  make_ranks();
}

Recovery::~Recovery() {
  if (network_) network_->end();
  for (Rank& rank : world_) {
    rank.left.push_back(std::move(rank.group));
    rank.left.push_back(std::move(rank.previous));
    for (const auto& group : rank.left)
      if (group) group->end({Code::aborted, "the simulation is over"});
  }
}

void Recovery::make_ranks() {
  std::vector<std::unique_ptr<transport::Endpoint>> endpoints;
  if (!are_in_memory(links_)) {
    transport::SimOptions options;
    options.ranks = ranks_;
    options.seed = random_();
    network_ = make_network(links_, options, config_.segment_bytes, clock_);
    for (int rank = 0; rank < ranks_; ++rank) endpoints.push_back(network_->endpoint(rank));
  } else {
    delay_ = std::make_unique<Delay>(clock_, random_());
    endpoints = *transport::make_inproc_endpoints(ranks_, config_, delay_.get());
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    engine::EngineOptions options;
    options.endpoint = std::move(endpoints[static_cast<std::size_t>(rank)]);
    options.config = config_;
    options.clock = &clock_;
    Rank& made = world_.emplace_back();
    made.engine = engine::Engine::create(std::move(options));
    // Kept for the whole run: a rank that was stopped may read it after its owner has gone on.
    made.values.reserve(*std::max_element(std::begin(kCountsOnWires), std::end(kCountsOnWires)));
    engine::ChannelOptions channel;
    channel.id = 1;
    channel.name = "group";
    channel.rank = rank;
    channel.members.resize(static_cast<std::size_t>(ranks_));
    std::iota(channel.members.begin(), channel.members.end(), 0);
    channel.host_of.assign(static_cast<std::size_t>(ranks_), 0);
    made.group = made.engine->open_channel(std::move(channel));
    meet(rank);
  }
}

// Where there is host memory, the members of every group have some of their own.
void Recovery::meet(int rank) {
  Rank& me = at(rank);
  if (links_ != Links::host || me.group->size() == 1) return;
  const engine::ChannelOptions& group = me.group->options();
  auto& memory = host_memory_[{group.id, group.members}];
  if (!memory) memory = std::make_unique<LateMemory>(me.group->size());
  memory->meet_in(*me.group, *me.engine, {.crowded = false, .readable = group.id % 2 == 0});
}

LateMemory* Recovery::memory_of(const engine::Channel* group) {
  if (group == nullptr) return nullptr;
  const auto at = host_memory_.find({group->options().id, group->options().members});
  return at == host_memory_.end() ? nullptr : at->second.get();
}

// Lets this rank see what the others have published, in the group that it works in and the last.
bool Recovery::refresh(int rank, bool all) {
  const Rank& me = at(rank);
  bool seen = false;
  for (const engine::Channel* group : {me.group.get(), me.previous.get()})
    if (LateMemory* memory = memory_of(group))
      seen |= memory->refresh(group->options().rank, random_, all);
  return seen;
}

void Recovery::complain(std::string what) { outcome_.broken.push_back(std::move(what)); }

// ---- one rank

bool Recovery::step(int rank) {
  Rank& me = at(rank);
  bool moved = refresh(rank, false);
  moved |= me.engine->step();
  const auto state = [&] { return std::tuple(me.phase, me.work, me.sums, me.patience); };
  const auto before = state();
  if (me.phase == Phase::working) work(rank);
  if (me.phase == Phase::agreeing) agree(rank);
  return moved || state() != before;
}

void Recovery::work(int rank) {
  Rank& me = at(rank);
  if (!me.work) return start_sum(rank);
  if (!me.work->done()) return;
  if (me.work->status().ok()) return check_sum(rank);
  if (me.previous && me.previous->survivors().is_excluded()) return shut_out(rank);
  // As RankGroup::shrink does.
  me.group->fail({Code::aborted, "this rank goes on"}, true);
  if (!me.group->survivors().join(me.engine->next_channel())) complain("joined twice");
  me.changes = me.group->survivors().changes();
  me.patience = clock_.now() + kPatience;
  me.phase = Phase::agreeing;
  outcome_.story +=
      fmt::format("  {} us: rank {} leaves group {}: {}\n", clock_.now().count() / 1000, rank,
                  me.group->options().id, me.work->status().to_string());
}

void Recovery::start_sum(int rank) {
  Rank& me = at(rank);
  const engine::ChannelOptions& group = me.group->options();
  const auto& counts = links_ == Links::wire ? kCountsOnWires : kCounts;
  me.values.resize(counts[(group.id + me.sums) % std::size(counts)]);
  for (std::size_t i = 0; i < me.values.size(); ++i)
    me.values[i] = brought_by(rank, me.sums, group.id, i);
  const Buffer buffer{me.values.data(), me.values.size(), Dtype::i64};
  const ConstBuffer input = buffer;
  Call call;
  call.collective = Collective::all_reduce;
  call.input = {&input, 1};
  call.output = {&buffer, 1};
  group::Setting setting;
  setting.rank = group.rank;
  setting.size = me.group->size();
  setting.host_of = group.host_of;
  setting.config = &config_;
  auto launch = group::make_launch(call, setting, chooser_);
  if (!launch.ok()) return complain(launch.status().to_string());
  me.work = me.group->start(*std::move(launch), false);
}

void Recovery::check_sum(int rank) {
  Rank& me = at(rank);
  const engine::ChannelOptions& group = me.group->options();
  for (std::size_t i = 0; i < me.values.size(); ++i) {
    std::int64_t expected = 0;
    for (const int member : group.members) expected += brought_by(member, me.sums, group.id, i);
    if (me.values[i] == expected) continue;
    complain(fmt::format("rank {}: sum {} of group {} ended well with wrong data", rank, me.sums,
                         group.id));
    break;
  }
  ++me.sums;
  me.work.reset();
  if (me.previous) leave_previous(rank);
}

// As RankGroup does: it lost others because they took it for dead, be it in an earlier group.
bool Recovery::was_given_up(int rank) {
  Rank& me = at(rank);
  const auto& members = me.group->options().members;
  return std::any_of(members.begin(), members.end(),
                     [&](int member) { return me.engine->why_down(member).peer() == rank; });
}

void Recovery::shut_out(int rank) {
  Rank& me = at(rank);
  me.phase = Phase::shut_out;
  outcome_.shut_out = true;
  outcome_.story +=
      fmt::format("  {} us: rank {} is shut out\n", clock_.now().count() / 1000, rank);
  if (!me.was_stopped) complain(fmt::format("rank {} was never stopped, and is shut out", rank));
}

void Recovery::agree(int rank) {
  Rank& me = at(rank);
  engine::Survivors& survivors = me.group->survivors();
  if (survivors.is_excluded() || was_given_up(rank)) return shut_out(rank);
  if (survivors.is_decided()) return go_on(rank);
  // The real one polls before it looks at the clock. Here what lies ready may be seen only a little
  // later, so that one which was stopped listens for another while.
  const bool overslept = clock_.now() > me.patience + 1ms;
  if (const std::uint64_t changes = survivors.changes(); changes != me.changes || overslept) {
    me.changes = changes;
    me.patience = clock_.now() + kPatience;
  } else if (clock_.now() >= me.patience) {
    for (const int silent : survivors.give_up_waiting()) {
      const Rank& other = at(me.group->options().members[static_cast<std::size_t>(silent)]);
      if (!other.was_stopped && other.phase != Phase::dead)
        complain(fmt::format("rank {} gives up on one that is well", rank));
    }
    me.patience = clock_.now() + kPatience;
  }
}

// Cuts the lost off, and opens the new group.
void Recovery::go_on(int rank) {
  Rank& me = at(rank);
  const engine::ChannelOptions old = me.group->options();
  const engine::Opinion decision = me.group->survivors().opinion();
  me.engine->between_polls([&](transport::Endpoint&) {
    for (std::size_t peer = 0; peer < old.members.size(); ++peer)
      if (decision.lost[peer]) me.engine->cut_off(old.members[peer], {Code::peer_lost, "lost"});
  });
  engine::ChannelOptions next;
  next.id = decision.channel;
  next.name = "next";
  for (const int member : me.group->survivors().ranks()) {
    if (member == old.rank) next.rank = static_cast<int>(next.members.size());
    next.members.push_back(old.members[static_cast<std::size_t>(member)]);
    next.host_of.push_back(0);
  }
  outcome_.story +=
      fmt::format("  {} us: rank {} goes on in group {} of {}\n", clock_.now().count() / 1000, rank,
                  next.id, fmt::join(next.members, " "));
  ++outcome_.shrinks;
  me.work.reset();
  if (me.previous) leave_previous(rank);
  me.previous = std::move(me.group);
  me.group = me.engine->open_channel(std::move(next));
  meet(rank);
  me.sums = 0;
  me.phase = Phase::working;
}

// The old group is kept for a while, or closed at once, as its owner likes.
void Recovery::leave_previous(int rank) {
  Rank& me = at(rank);
  const std::shared_ptr<engine::Channel> old = std::move(me.previous);
  me.previous = nullptr;
  if (random_() % 2 == 0) return me.left.push_back(old);
  old->tell(old->health());
  old->end({Code::aborted, "closed"});
  old->say_goodbye();
  me.engine->close_channel(*old);
}

// ---- all of them

bool Recovery::step_all() {
  std::vector<int> order(static_cast<std::size_t>(ranks_));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  bool moved = network_ && network_->move();
  for (const int rank : order) {
    Rank& me = at(rank);
    if (me.phase == Phase::dead || me.stopped_until > clock_.now()) continue;
    const bool stepped = step(rank);
    moved |= stepped;
    outcome_.hash =
        (outcome_.hash ^ (static_cast<std::uint64_t>(rank) * 2 + stepped)) * 1099511628211ULL;
    maybe_strike();
  }
  return moved;
}

bool Recovery::is_agreeing() const {
  return std::any_of(world_.begin(), world_.end(),
                     [](const Rank& rank) { return rank.phase == Phase::agreeing; });
}

// Most of all while the others agree.
void Recovery::maybe_strike() {
  const bool agreeing = is_agreeing();
  if ((deaths_ == 0 && stops_ == 0) || random_() % (agreeing ? 12 : 400) != 0) return;
  const int victim = static_cast<int>(random_() % static_cast<std::uint64_t>(ranks_));
  Rank& struck = at(victim);
  if (struck.phase == Phase::dead || struck.phase == Phase::shut_out || struck.was_stopped) return;
  outcome_.struck_while_agreeing += agreeing;
  if (deaths_ > 0) {
    --deaths_;
    return kill(victim);
  }
  --stops_;
  struck.was_stopped = true;
  struck.stopped_until = clock_.now() + 1ms + Nanoseconds(random_() % 8'000'000'000);
  outcome_.story +=
      fmt::format("  {} us: rank {} is stopped until {} us\n", clock_.now().count() / 1000, victim,
                  struck.stopped_until.count() / 1000);
}

void Recovery::kill(int victim) {
  outcome_.story += fmt::format("  {} us: rank {} dies\n", clock_.now().count() / 1000, victim);
  at(victim).phase = Phase::dead;
  if (network_) return network_->kill(victim);
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank != victim)
      static_cast<transport::MemoryLink*>(at(rank).engine->endpoint().link(victim))
          ->lose({Code::peer_lost, fmt::format("rank {} was killed", victim), {rank, victim, 0}});
}

bool Recovery::advance_clock() {
  bool seen = false;
  for (int rank = 0; rank < ranks_; ++rank)
    if (at(rank).phase != Phase::dead && at(rank).stopped_until <= clock_.now())
      seen |= refresh(rank, true);
  if (seen) return true;
  Nanoseconds next = Nanoseconds::max();
  if (network_) next = std::min(next, network_->next_event());
  if (delay_) next = std::min(next, delay_->next());
  for (const Rank& rank : world_) {
    if (rank.phase == Phase::dead) continue;
    if (rank.stopped_until > clock_.now()) {
      next = std::min(next, rank.stopped_until);
      continue;
    }
    if (rank.phase == Phase::agreeing) next = std::min(next, rank.patience);
    if (rank.phase == Phase::working) next = std::min(next, rank.group->next_deadline());
  }
  if (next == Nanoseconds::max()) return false;
  clock_.advance_to(std::max(next, clock_.now() + 1us));
  return true;
}

// Everybody that is well works in one group of all of them, and has done so for a while.
bool Recovery::is_over() {
  if (deaths_ > 0 || stops_ > 0) return false;
  std::vector<int> well;
  Nanoseconds wakes = clock_.now();
  for (int rank = 0; rank < ranks_; ++rank) {
    if (at(rank).stopped_until > clock_.now()) {
      wakes = at(rank).stopped_until;
      continue;
    }
    if (at(rank).phase == Phase::agreeing) return false;
    if (at(rank).phase == Phase::working) well.push_back(rank);
  }
  const bool all_well = work_together(well);
  if (!all_well || wakes == clock_.now()) return all_well;
  clock_.advance_to(wakes);  // nothing else is of interest before
  return false;
}

bool Recovery::work_together(const std::vector<int>& well) {
  return std::all_of(well.begin(), well.end(), [&](int rank) {
    return at(rank).group->options().members == well && at(rank).sums >= 3;
  });
}

Recovered Recovery::run() {
  outcome_.story = fmt::format("{} ranks, {} links\n", ranks_, to_string(links_));
  constexpr int kRounds = 400'000;
  for (int round = 0; round < kRounds && outcome_.broken.empty(); ++round) {
    if (is_over()) return outcome_;
    if (step_all())
      clock_.advance(1us);
    else if (!advance_clock())
      complain("nothing can happen any more");
  }
  if (outcome_.broken.empty()) complain("it does not end");
  return outcome_;
}

}  // namespace tutti::simulation
