#include "simulation/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tutti::simulation {

using namespace std::chrono_literals;

std::string to_string(Fault fault) {
  static const char* const kWords[] = {"none",     "stall", "kill",    "freeze",
                                       "mismatch", "cut",   "one_way", "jump"};
  return kWords[static_cast<int>(fault)];
}

std::string to_string(Links links) {
  static const char* const kWords[] = {"message", "memory", "host", "uneven", "wire"};
  return kWords[static_cast<int>(links)];
}

std::unique_ptr<transport::VirtualNetwork> make_network(Links links, transport::SimOptions options,
                                                        std::size_t segment_bytes,
                                                        VirtualClock& clock) {
  if (links == Links::wire)
    return std::make_unique<transport::WireNetwork>(
        transport::WireOptions{options.ranks, options.seed, segment_bytes}, clock);
  options.uneven = links == Links::uneven;
  return std::make_unique<transport::SimNetwork>(options, clock);
}

// Where one rank calls something else, only its group fails; and who is late because it waits for another
// is not the one that does nothing any more.
static bool may_wait_for_others(Fault fault) {
  return fault != Fault::mismatch && fault != Fault::freeze;
}

Simulation::Simulation(std::uint64_t seed, Fault fault, Links links)
    : random_(seed), fault_(fault), links_(links) {
  ranks_ = static_cast<int>(2 + random_() % 7);
  script_ =
      random_script(random_, ranks_, static_cast<int>(2 + random_() % 6), links == Links::host);
  config_.progress_thread = false;
  // Where a message may be under way for 30 ms, a long program takes its time.
  config_.timeout = links == Links::uneven || links == Links::wire ? 120s : 2s;
  config_.debug = "off";
  config_.segment_bytes = 64 << (random_() % 8);
  // Large pieces go by the other streams of a pair.
  if (links == Links::wire && random_() % 2 == 0) config_.segment_bytes *= 64;
  if (fault != Fault::none) victim_ = static_cast<int>(random_() % static_cast<unsigned>(ranks_));
  while (fault == Fault::mismatch && script_[odd_step_].shift)
    odd_step_ = random_() % script_.size();
  if (fault == Fault::mismatch && random_() % 2 == 0)
    odd_step_ = script_.size() - 1 - random_() % 2;
  strike_after_ = random_() % script_.size();
  strike_rounds_ = random_() % 4;
  // Drawn apart: a seed means what it meant before steps could wait and groups were urgent.
  std::mt19937_64 apart(~seed);
  if (may_wait_for_others(fault)) add_dependencies(apart, script_);
  for (Urgency& urgency : urgencies_) urgency = static_cast<Urgency>(apart() % 3);
  make_ranks();
}

Simulation::~Simulation() {
  if (network_) network_->end();
}

std::vector<std::unique_ptr<transport::Endpoint>> Simulation::make_endpoints() {
  if (are_in_memory(links_)) {
    delay_ = std::make_unique<Delay>(clock_, random_());
    return *transport::make_inproc_endpoints(ranks_, config_, delay_.get());
  }
  transport::SimOptions options;
  options.ranks = ranks_;
  options.seed = random_();
  options.bytes_per_second = random_() % 2 == 0 ? 1e9 : 1e7;
  options.most_in_flight = random_() % 2 == 0 ? 1 << 20 : 4096;
  network_ = make_network(links_, options, config_.segment_bytes, clock_);
  std::vector<std::unique_ptr<transport::Endpoint>> endpoints;
  for (int rank = 0; rank < ranks_; ++rank) endpoints.push_back(network_->endpoint(rank));
  return endpoints;
}

void Simulation::make_ranks() {
  auto endpoints = make_endpoints();
  for (int rank = 0; rank < ranks_; ++rank) {
    Rank& made = world_.emplace_back();
    engine::EngineOptions options;
    options.endpoint = std::move(endpoints[static_cast<std::size_t>(rank)]);
    options.config = config_;
    options.clock = &clock_;
    made.engine = engine::Engine::create(std::move(options));
    for (std::uint32_t id = 1; id <= 2; ++id) {
      engine::ChannelOptions channel;
      channel.id = id;
      channel.name = fmt::format("group{}", id);
      channel.rank = rank;
      channel.urgency = urgencies_[id - 1];
      channel.members.resize(static_cast<std::size_t>(ranks_));
      std::iota(channel.members.begin(), channel.members.end(), 0);
      channel.host_of.assign(static_cast<std::size_t>(ranks_), 0);
      made.groups.push_back(made.engine->open_channel(std::move(channel)));
    }
  }
  if (links_ == Links::host) {
    share_memory();
    make_host_memory();
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    Rank& made = world_[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < script_.size(); ++i)
      made.buffers.push_back(
          make_buffers(script_[i], static_cast<int>(i), rank, ranks_, made.arena));
    made.works.resize(script_.size());
    made.noted.resize(script_.size());
  }
}

// Memory that every rank has mapped, as Group::allocate gives it.
void Simulation::share_memory() {
  constexpr std::uint64_t kRegion = 77;
  constexpr std::size_t kMostBytes = 8 << 20;
  constexpr std::size_t kOddStep = 4096;  // of one that calls something else
  const std::size_t bytes = std::min(shared_bytes(script_, ranks_) + kOddStep, kMostBytes);
  std::vector<std::byte*> regions;
  for (int rank = 0; rank < ranks_; ++rank) {
    std::vector<int> others;
    for (int peer = 0; peer < ranks_; ++peer)
      if (peer != rank) others.push_back(peer);
    transport::Endpoint& endpoint = world_[static_cast<std::size_t>(rank)].engine->endpoint();
    auto region = endpoint.allocate_region(kRegion, bytes, others);
    regions.push_back(region->data);
    world_[static_cast<std::size_t>(rank)].arena = Arena(region->data, bytes);
  }
  const auto is_known = [&](int rank) {
    transport::Endpoint& endpoint = world_[static_cast<std::size_t>(rank)].engine->endpoint();
    for (int peer = 0; peer < ranks_; ++peer) {
      const int other[] = {peer};
      if (peer != rank &&
          endpoint.find_region(regions[static_cast<std::size_t>(rank)], 1, other).ref.region == 0)
        return false;
    }
    return true;
  };
  for (int rank = 0; rank < ranks_; ++rank)
    while (!is_known(rank)) {
      for (Rank& each : world_) each.engine->step();
      clock_.advance(1us);
    }
}

void Simulation::make_host_memory() {
  const schedule::HostFacts facts{.crowded = random_() % 4 == 0, .readable = random_() % 2 == 0};
  for (std::size_t group = 0; group < 2; ++group) {
    host_memory_.push_back(std::make_unique<LateMemory>(ranks_));
    for (Rank& rank : world_)
      host_memory_.back()->meet_in(*rank.groups[group], *rank.engine, facts);
  }
}

std::shared_ptr<engine::WorkState> Simulation::start(int rank, std::size_t index) {
  Rank& me = world_[static_cast<std::size_t>(rank)];
  Step step = script_[index];
  Buffers& memory = me.buffers[index];
  const auto done = [](const Status& status) {
    auto work = std::make_shared<engine::WorkState>(nullptr);
    work->complete(status);
    return work;
  };
  if (fault_ == Fault::mismatch && rank == victim_ && index == odd_step_) {
    // This rank calls a barrier where the others call something else, or something else for a
    // barrier.
    step = {};
    if (script_[index].collective == Collective::barrier && !script_[index].shift) {
      step.collective = Collective::all_reduce;
      step.count = 3;
    }
    step.group = script_[index].group;
    memory = make_buffers(step, static_cast<int>(index), rank, ranks_, me.arena);
  }
  engine::Channel& channel = *me.groups[static_cast<std::size_t>(step.group)];
  std::vector<Work> after;
  if (step.after >= 0) after.emplace_back(me.works[static_cast<std::size_t>(step.after)]);
  if (step.shift) {
    engine::Posting send;
    send.is_send = true;
    send.data = reinterpret_cast<std::byte*>(memory.input.data());
    send.bytes = memory.input.size() * 8;
    send.peer = (rank + 1) % ranks_;
    send.tag = static_cast<std::uint32_t>(index);
    send.timeout = config_.timeout;
    engine::Posting recv = send;
    recv.is_send = false;
    recv.data = reinterpret_cast<std::byte*>(memory.output.data());
    recv.peer = (rank + ranks_ - 1) % ranks_;
    return channel.post({send, recv}, false, engine::Dependencies::of(after));
  }
  const auto buffer_of = [](std::span<std::int64_t> values) {
    return Buffer{values.data(), values.size(), Dtype::i64};
  };
  const Buffer in = buffer_of(memory.input);
  const Buffer out = memory.result_in_input ? in : buffer_of(memory.output);
  const ConstBuffer const_in = in;
  Call call;
  call.collective = step.collective;
  call.root = step.root;
  call.options.algorithm = step.algorithm;
  call.options.dependencies = after;
  if (step.collective != Collective::barrier) {
    if (step.collective != Collective::broadcast) call.input = {&const_in, 1};
    call.output = {&out, 1};
  }
  group::Setting setting;
  setting.rank = rank;
  setting.size = ranks_;
  setting.host_of.assign(static_cast<std::size_t>(ranks_), 0);
  setting.config = &config_;
  auto launch = group::make_launch(call, setting, chooser_);
  if (!launch.ok()) return done(launch.status());
  return channel.start(*std::move(launch), false);
}

void Simulation::start_next(int rank) {
  Rank& me = world_[static_cast<std::size_t>(rank)];
  if (me.started == script_.size() || random_() % 3 != 0) return;
  me.works[me.started] = start(rank, me.started);
  ++me.started;
}

bool Simulation::step_all() {
  std::vector<int> order(static_cast<std::size_t>(ranks_));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  bool moved = network_ && network_->move();
  for (int rank : order) {
    Rank& me = world_[static_cast<std::size_t>(rank)];
    if (me.dead || me.stalled_until > clock_.now()) continue;
    const std::size_t before = me.started;
    start_next(rank);
    for (const auto& memory : host_memory_) moved |= memory->refresh(rank, random_, false);
    const bool stepped = me.engine->step();
    note_ends(rank);
    moved |= stepped || me.started != before || me.started < script_.size();
    hash_ = (hash_ ^ (static_cast<std::uint64_t>(rank) * 2 + stepped)) * 1099511628211ULL;
    hash_ ^= static_cast<std::uint64_t>(clock_.now().count());
  }
  return moved;
}

// No rank ends a collective before all have come to it.
void Simulation::note_ends(int rank) {
  Rank& me = world_[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < me.started; ++i) {
    if (me.noted[i] || !me.works[i]->done()) continue;
    me.noted[i] = true;
    ++me.ended;
    if (script_[i].shift || !me.works[i]->status().ok()) continue;
    for (int peer = 0; peer < ranks_; ++peer)
      if (world_[static_cast<std::size_t>(peer)].started <= i)
        left_too_soon_.push_back(
            fmt::format("rank {} ended step {} before rank {} had come to it", rank, i, peer));
  }
}

bool Simulation::is_time_to_strike() {
  if (struck_ || fault_ == Fault::none || fault_ == Fault::mismatch) return false;
  const std::size_t ended = world_[static_cast<std::size_t>(victim_)].ended;
  if (ended < strike_after_ || ended == script_.size()) return false;
  return strike_rounds_ == 0 || strike_rounds_-- == 0;
}

bool Simulation::finished() const {
  return std::all_of(world_.begin(), world_.end(), [&](const Rank& rank) {
    if (rank.dead || rank.stalled_until == Nanoseconds::max()) return true;
    return rank.started == script_.size() && std::all_of(rank.works.begin(), rank.works.end(),
                                                         [](const auto& w) { return w->done(); });
  });
}

void Simulation::strike() {
  Rank& victim = world_[static_cast<std::size_t>(victim_)];
  struck_ = true;
  started_by_victim_ = victim.started;
  if (fault_ == Fault::stall)
    victim.stalled_until = clock_.now() + Nanoseconds(random_() % 500'000'000);
  if (fault_ == Fault::freeze) victim.stalled_until = Nanoseconds::max();
  if (fault_ == Fault::jump) clock_.advance(Nanoseconds(random_() % 1'000'000'000));
  if (fault_ == Fault::cut || fault_ == Fault::one_way) {
    const auto others = static_cast<std::uint64_t>(ranks_ - 1);
    other_ = static_cast<int>((static_cast<std::uint64_t>(victim_) + 1 + random_() % others) %
                              static_cast<std::uint64_t>(ranks_));
    network_->cut(victim_, other_);
    if (fault_ == Fault::cut) network_->cut(other_, victim_);
  }
  if (fault_ != Fault::kill) return;
  victim.dead = true;
  if (network_) {
    network_->kill(victim_);
    return;
  }
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank != victim_)
      static_cast<transport::MemoryLink*>(
          world_[static_cast<std::size_t>(rank)].engine->endpoint().link(victim_))
          ->lose({Code::peer_lost, fmt::format("rank {} was killed", victim_), {rank, victim_, 0}});
}

// Nothing moves: go to the next moment at which something can. False when there is none.
bool Simulation::advance_clock() {
  bool seen = false;
  for (const auto& memory : host_memory_)
    for (int rank = 0; rank < ranks_; ++rank) seen |= memory->refresh(rank, random_, true);
  if (seen) return true;
  Nanoseconds next = Nanoseconds::max();
  if (network_) next = std::min(next, network_->next_event());
  if (delay_) next = std::min(next, delay_->next());
  for (const Rank& rank : world_) {
    if (rank.dead || rank.stalled_until == Nanoseconds::max()) continue;
    if (rank.stalled_until > clock_.now()) {
      next = std::min(next, rank.stalled_until);
      continue;
    }
    for (const auto& group : rank.groups) {
      // Whatever was due by now was done in the last step.
      woke_in_vain_ |= group->next_deadline() <= clock_.now();
      next = std::min(next, group->next_deadline());
    }
  }
  if (next == Nanoseconds::max()) return false;
  clock_.advance_to(std::max(next, clock_.now() + 1us));
  return true;
}

Outcome Simulation::run() {
  // Far more than any run takes; a run that does not end by then livelocks.
  constexpr int kRounds = 2'000'000;
  for (int round = 0; round < kRounds; ++round) {
    if (is_time_to_strike()) strike();
    if (finished()) return judge(false);
    if (step_all())
      clock_.advance(links_ == Links::wire ? 20us : 1us);
    else if (!advance_clock())
      return judge(true);
  }
  return judge(true);
}

Outcome Simulation::judge(bool hung) {
  Outcome outcome;
  outcome.hung = hung;
  outcome.ranks = ranks_;
  outcome.victim = victim_;
  outcome.other = other_;
  outcome.odd_group = script_[odd_step_].group;
  outcome.fault = fault_;
  outcome.struck = struck_;
  outcome.started_by_victim = started_by_victim_;
  outcome.left_too_soon = left_too_soon_;
  outcome.woke_in_vain = woke_in_vain_;
  outcome.script = script_;
  outcome.hash = hash_;
  outcome.story = fmt::format("{} ranks, {} links, fault {} on rank {}\n", ranks_,
                              to_string(links_), to_string(fault_), victim_);
  for (std::size_t i = 0; i < script_.size(); ++i) {
    outcome.story += fmt::format("  {}: {}\n", i, to_string(script_[i]));
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto& work = world_[static_cast<std::size_t>(rank)].works[i];
      const std::string state = !work           ? "not started"
                                : !work->done() ? "UNDER WAY"
                                                : work->status().to_string();
      outcome.story += fmt::format("     rank {}: {}\n", rank, state);
    }
  }
  for (Rank& rank : world_) {
    std::vector<Status> statuses;
    std::vector<bool> right;
    for (std::size_t i = 0; i < script_.size(); ++i) {
      const bool done = rank.works[i] && rank.works[i]->done();
      statuses.push_back(done ? rank.works[i]->status() : Status(Code::internal, "not done"));
      right.push_back(is_right(rank.buffers[i]));
    }
    outcome.statuses.push_back(std::move(statuses));
    outcome.right.push_back(std::move(right));
  }
  // Owners go before their memory does.
  for (Rank& rank : world_)
    for (auto& group : rank.groups) {
      group->end({Code::aborted, "the simulation is over"});
      rank.engine->close_channel(*group);
    }
  for (const Rank& rank : world_) outcome.left_open |= rank.engine->has_more_urgent(Urgency::bulk);
  return outcome;
}

}  // namespace tutti::simulation
