// New groups on the links of an old one, and memory that its members share.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "core/clock.hpp"
#include "group/gather_all.hpp"
#include "group/rank_group.hpp"
#include "topology/topology.hpp"

namespace tutti::group {

// What each rank says of itself when a group is split or duplicated.
struct RankGroup::Ballot {
  std::int32_t color = 0;
  std::int32_t key = 0;
  std::uint32_t next_channel = 0;
  Division division = Division::split;
  ReductionOrder order = ReductionOrder::any;
  Urgency urgency = Urgency::normal;
  std::uint8_t has_device = 0;  // its group is prepared for device memory
  std::uint64_t name_hash = 0;
  char name[40] = {};  // as much of it as there is room for

  static Ballot of(Division division, int color, int key, std::uint32_t next_channel,
                   const GroupSpec& spec, bool has_device) {
    Ballot ballot{color,
                  key,
                  next_channel,
                  division,
                  *spec.reduction_order,
                  spec.urgency,
                  has_device,
                  engine::fnv1a(spec.name.data(), spec.name.size())};
    spec.name.copy(ballot.name, sizeof ballot.name);
    return ballot;
  }

  std::string words() const {
    const std::string_view shown(name, ::strnlen(name, sizeof name));
    const std::string called = shown.size() < sizeof name
                                   ? fmt::format("'{}'", shown)
                                   : fmt::format("'{}…' #{:016x}", shown, name_hash);
    const std::string kind =
        division == Division::split ? fmt::format("split(color {}", color) : "duplicate(";
    return fmt::format("{}{}name {}, reduction order {}, {})", kind,
                       division == Division::split ? ", " : "", called, to_string(order),
                       to_string(urgency));
  }
};

std::string RankGroup::where(int rank) const {
  const int member = channel_->options().members[static_cast<std::size_t>(rank)];
  return fmt::format("rank {} ({})", rank, world_->engine().endpoint().whereabouts(member));
}

Status RankGroup::find_difference(std::string_view about,
                                  const std::vector<engine::Said>& said) const {
  const engine::Vote found = engine::vote(said, [&](int rank) { return where(rank); });
  if (found.culprit < 0) return {};
  return {Code::mismatch, fmt::format("{}: {}", about, found.table), {rank(), found.culprit, 0}};
}

std::vector<int> RankGroup::hosts() const {
  std::map<int, int> numbers;
  std::vector<int> hosts;
  for (const int host : setting_.host_of)
    hosts.push_back(numbers.emplace(host, static_cast<int>(numbers.size())).first->second);
  return hosts;
}

Status RankGroup::label_ranks(std::span<const std::string> labels) {
  constexpr std::size_t kLongest = 80;
  if (Status status = check_process(); !status.ok()) return status;
  const auto refuse = [](std::string what) {
    return Status(Code::invalid_argument, "label_ranks: " + std::move(what));
  };
  if (labels.size() != static_cast<std::size_t>(size()))
    return refuse(fmt::format("{} labels for a group of {}", labels.size(), size()));
  const auto is_odd = [](char letter) {
    return letter < 0x20 || letter > 0x7e || letter == '(' || letter == ')';
  };
  std::map<int, std::string> by_member;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string& label = labels[i];
    if (label.size() > kLongest)
      return refuse(
          fmt::format("that of rank {} has {} letters; {} is the most", i, label.size(), kLongest));
    if (std::any_of(label.begin(), label.end(), is_odd))
      return refuse(
          fmt::format("that of rank {} has letters that are not printable ASCII, or "
                      "parentheses",
                      i));
    by_member.emplace(channel_->options().members[i], label);
  }
  world_->label(by_member);
  return {};
}

GroupSpec RankGroup::completed(GroupSpec spec) const {
  if (!spec.reduction_order) spec.reduction_order = setting_.order;
  return spec;
}

Result<std::shared_ptr<RankGroup>> RankGroup::open(std::uint32_t id, GroupSpec spec,
                                                   const std::vector<int>& ranks, Start start) {
  engine::ChannelOptions options;
  options.id = id;
  options.name = std::move(spec.name);
  options.urgency = spec.urgency;
  options.switch_rank = world_->switch_rank();
  for (int rank : ranks) {
    options.members.push_back(channel_->options().members[static_cast<std::size_t>(rank)]);
    options.host_of.push_back(setting_.host_of[static_cast<std::size_t>(rank)]);
  }
  options.walk = topology::walk_among(setting_.walk, ranks);
  options.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
  auto channel = world_->engine().open_channel(std::move(options));
  channel->begin_set_up();
  if (start != Start::as_heir) channel_->bring_up(channel);
  auto group = std::make_shared<RankGroup>(world_, channel, *spec.reduction_order);
  // A rank that had it already may have ended it by now: then it exists, and every call on it says
  // why it failed.
  Status status;
  if (start == Start::as_heir)
    status = group->barrier(
        internal_call(setting_.config->join_timeout, set_up_algorithm(Collective::barrier)));
  if (status.ok()) status = group->share_host_memory();
  if (status.ok() && start == Start::on_device) status = group->inherit_device(*this);
  if (!status.ok() && group->health().ok()) return status;
  channel->end_set_up();  // they have not met in memory yet
  channel_->let_go(*channel);
  return group;
}

// All call for the same kind of group, and those of one color for the same one. Every rank has all
// ballots: whoever differs, all of them fail.
Status RankGroup::check_ballots(std::span<const Ballot> ballots) const {
  std::vector<engine::Said> kinds;
  std::map<int, std::vector<engine::Said>> by_color;
  for (int rank = 0; rank < size(); ++rank) {
    const Ballot& ballot = ballots[static_cast<std::size_t>(rank)];
    kinds.push_back({rank, ballot.division == Division::split ? "split" : "duplicate"});
    if (ballot.color >= 0) by_color[ballot.color].push_back({rank, ballot.words()});
  }
  Status status = find_difference(kDifferentGroups, kinds);
  for (const auto& [color, said] : by_color)
    if (status.ok()) status = find_difference(kDifferentGroups, said);
  return status;
}

Result<std::shared_ptr<Group>> RankGroup::split(int color, int key, GroupSpec spec) {
  return guarded([&] { return divide(Division::split, color, key, completed(std::move(spec))); });
}

Result<std::shared_ptr<Group>> RankGroup::divide(Division division, int color, int key,
                                                 GroupSpec spec) {
  if (Status status = check_process(); !status.ok()) return status;
  auto ballots = gather_all(*this, Ballot::of(division, color, key, world_->engine().next_channel(),
                                              spec, channel_->device() != nullptr));
  if (!ballots.ok()) return ballots.status();
  if (Status status = check_ballots(*ballots); !status.ok()) return status;
  std::uint32_t id = 0;
  for (const Ballot& ballot : *ballots) id = std::max(id, ballot.next_channel);
  if (color < 0) return std::shared_ptr<Group>();
  std::vector<int> ranks;
  // A failure may have kept some from being prepared for device memory: then each new group is, at its
  // first use.
  Start start = Start::on_device;
  for (int rank = 0; rank < size(); ++rank) {
    const Ballot& ballot = (*ballots)[static_cast<std::size_t>(rank)];
    if (ballot.color != color) continue;
    ranks.push_back(rank);
    if (!ballot.has_device) start = Start::plain;
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return (*ballots)[static_cast<std::size_t>(a)].key <
           (*ballots)[static_cast<std::size_t>(b)].key;
  });
  if (spec.name.empty()) spec.name = fmt::format("{}/{}", name(), color);
  return as_group(open(id, std::move(spec), ranks, start));
}

Result<std::shared_ptr<Group>> RankGroup::duplicate(GroupSpec spec) {
  if (spec.name.empty()) spec.name = name() + "/copy";
  return guarded(
      [&] { return divide(Division::duplicate, 0, rank(), completed(std::move(spec))); });
}

// ---- symmetric memory

std::vector<int> RankGroup::mapped_members() const {
  std::vector<int> mapped;
  for (int member : channel_->options().members) {
    if (world_->engine().endpoint().is_beside(member)) mapped.push_back(member);
  }
  return mapped;
}

Result<SymmetricMemory> RankGroup::allocate(std::size_t bytes, Device device) {
  return guarded([&]() -> Result<SymmetricMemory> {
    if (device == Device::cuda) return allocate_on_device(bytes);
    auto shared = share_memory(bytes, internal_call(setting_.config->timeout));
    if (!shared.ok()) return shared.status();
    return shared->memory;
  });
}

Status RankGroup::check_same_size(std::size_t bytes, const CallOptions& call) {
  auto sizes = gather_all(*this, static_cast<std::uint64_t>(bytes), call);
  if (!sizes.ok()) return sizes.status();
  std::vector<engine::Said> said;
  for (int peer = 0; peer < size(); ++peer)
    said.push_back(
        {peer, fmt::format("allocate({} bytes)", (*sizes)[static_cast<std::size_t>(peer)])});
  return find_difference("ranks ask for different sizes", said);
}

// Memory is handed over by links that are there.
Status RankGroup::open_links(const std::vector<int>& members, Nanoseconds timeout) {
  engine::Engine& engine = world_->engine();
  transport::Endpoint& endpoint = engine.endpoint();
  if (!endpoint.is_lazy()) return {};
  for (const int member : members) endpoint.link(member)->open();
  const auto are_linked = [&] {
    return std::all_of(members.begin(), members.end(),
                       [&](int member) { return endpoint.is_linked(member); });
  };
  engine.drive(
      *channel_, [&] { return !health().ok() || are_linked(); }, timeout);
  if (!health().ok() || are_linked()) return health();
  return {Code::timed_out, fmt::format("group '{}' could not link all its ranks of one host within "
                                       "{:g} s",
                                       name(), in_seconds(timeout))};
}

Result<RankGroup::SharedMemory> RankGroup::share_memory(std::size_t bytes,
                                                        const CallOptions& call) {
  if (Status status = check_process(); !status.ok()) return status;
  if (Status status = check_same_size(bytes, call); !status.ok()) return status;
  if (bytes == 0) return SharedMemory{};
  engine::Engine& engine = world_->engine();
  const std::uint64_t id = region_id(++allocations_);
  const std::vector<int> peers = mapped_members();
  if (Status status = open_links(peers, call.timeout); !status.ok()) return status;
  Result<transport::MemoryRegion> region = Status(Code::internal, "not run");
  engine.between_polls(
      [&](transport::Endpoint& endpoint) { region = endpoint.allocate_region(id, bytes, peers); });
  const auto free_region = [world = world_, id] {
    if (!world->is_foreign())
      world->engine().between_polls([&](transport::Endpoint& e) { e.free_region(id); });
  };
  // All or none: a rank without memory must not leave the others waiting for it.
  auto made = gather_all(*this, static_cast<std::uint8_t>(region.ok()), call);
  const bool all_made = made.ok() && std::find(made->begin(), made->end(), 0) == made->end();
  if (!all_made) {
    if (region.ok()) free_region();
    if (!made.ok()) return made.status();
    // One code on all ranks, whatever the reason was on one: they have to go on alike.
    return Status(Code::out_of_memory,
                  region.ok() ? fmt::format("allocate: a rank had no {} bytes to share", bytes)
                              : region.status().message());
  }
  transport::Endpoint& endpoint = engine.endpoint();
  const auto have_come = [&] {
    return !channel_->health().ok() || std::all_of(peers.begin(), peers.end(), [&](int peer) {
      return endpoint.region_has_come(peer, id);
    });
  };
  engine.drive(*channel_, have_come, call.timeout);
  const bool mapped = std::all_of(peers.begin(), peers.end(), [&](int peer) {
    return endpoint.link(peer)->reach({id, 0}, bytes) != nullptr;
  });
  // Nobody uses it before everybody has it, and either all have it or nobody.
  const auto agreed = all_say_yes(*this, mapped, call);
  Status status = agreed.status();
  if (status.ok() && !*agreed)
    status = Status(Code::out_of_memory, "allocate: not all ranks could map each other's memory");
  if (!status.ok()) {
    free_region();
    return status;
  }
  SharedMemory shared;
  shared.id = id;
  shared.memory.data = region->data;
  shared.memory.bytes = bytes;
  shared.memory.owner =
      std::shared_ptr<void>(region->data, [free_region](void*) { free_region(); });
  return shared;
}

}  // namespace tutti::group
