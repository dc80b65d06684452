// New groups on the links of an old one, and memory that its members share.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/clock.hpp"
#include "group/gather_all.hpp"
#include "group/rank_group.hpp"

namespace tutti::group {
namespace {

// What each rank says of itself when a group is split.
struct Ballot {
  std::int32_t color = 0;
  std::int32_t key = 0;
  std::uint32_t next_channel = 0;
  std::uint32_t spare = 0;
};

// What the first of a list says to the others: the id of their group, or who did not come.
struct Answer {
  std::uint32_t id = 0;  // 0: there is none
  std::int32_t absent = -1;
};

constexpr Nanoseconds kToSayWho = std::chrono::seconds(1);

}  // namespace

Result<std::shared_ptr<Group>> RankGroup::open(std::uint32_t id, std::string name,
                                               const std::vector<int>& ranks,
                                               ReductionOrder order) {
  engine::ChannelOptions options;
  options.id = id;
  options.name = std::move(name);
  for (int rank : ranks) {
    options.members.push_back(channel_->options().members[static_cast<std::size_t>(rank)]);
    options.host_of.push_back(setting_.host_of[static_cast<std::size_t>(rank)]);
  }
  options.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
  auto channel = world_->engine().open_channel(std::move(options));
  channel->begin_set_up();
  channel_->bring_up(channel);
  auto group = std::make_shared<RankGroup>(world_, channel, order);
  // A rank that had it already may have ended it by now: then it exists, and every call on it says
  // why it failed.
  if (Status status = group->share_host_memory(); !status.ok() && group->health().ok())
    return status;
  channel->end_set_up();  // they have not met in memory yet
  channel_->let_go(*channel);
  return std::shared_ptr<Group>(std::move(group));
}

Result<std::shared_ptr<Group>> RankGroup::split(int color, int key, std::string name) {
  return divide(color, key, std::move(name), setting_.order);
}

Result<std::shared_ptr<Group>> RankGroup::divide(int color, int key, std::string name,
                                                 ReductionOrder order) {
  if (Status status = check_process(); !status.ok()) return status;
  auto ballots = gather_all(*this, Ballot{color, key, world_->engine().next_channel(), 0});
  if (!ballots.ok()) return ballots.status();
  std::uint32_t id = 0;
  for (const Ballot& ballot : *ballots) id = std::max(id, ballot.next_channel);
  if (color < 0) return std::shared_ptr<Group>();
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank)
    if ((*ballots)[static_cast<std::size_t>(rank)].color == color) ranks.push_back(rank);
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return (*ballots)[static_cast<std::size_t>(a)].key <
           (*ballots)[static_cast<std::size_t>(b)].key;
  });
  if (name.empty()) name = fmt::format("{}/{}", this->name(), color);
  return open(id, std::move(name), ranks, order);
}

Result<std::shared_ptr<Group>> RankGroup::duplicate(std::string name,
                                                    std::optional<ReductionOrder> order) {
  if (name.empty()) name = this->name() + "/copy";
  return divide(0, rank(), std::move(name), order.value_or(setting_.order));
}

// ---- a group from a list, called by its members only

Status RankGroup::run_internal(engine::Posting posting) {
  posting.internal = true;
  return channel_->post({posting}, true)->wait(std::chrono::nanoseconds::max());
}

Status RankGroup::absent_from(const Assembly& assembly, int member) const {
  return {Code::timed_out,
          fmt::format("rank {} ({}) did not come to group '{}' within {:g} s; do all its ranks "
                      "create it, in the same order?",
                      member,
                      world_->engine().endpoint().whereabouts(
                          channel_->options().members[static_cast<std::size_t>(member)]),
                      assembly.name, in_seconds(assembly.timeout)),
          {rank(), member, 0}};
}

// The first member asks the others for the ids that they have free, and tells them the largest; or,
// as soon as it knows, who keeps them waiting.
Result<std::uint32_t> RankGroup::agree_on_channel(const Assembly& assembly) {
  return rank() == assembly.ranks[0] ? assemble(assembly) : report_to_first(assembly);
}

Result<std::uint32_t> RankGroup::assemble(const Assembly& assembly) {
  const auto others = assembly.ranks.subspan(1);
  const auto deadline = deadline_after(steady_clock().now(), assembly.timeout);
  Answer answer{world_->engine().next_channel(), -1};
  Status failure;
  for (int member : others) {
    std::uint32_t theirs = 0;
    auto posting = engine::Posting::recv(member, assembly.tag, &theirs, sizeof theirs);
    posting.timeout = std::max(deadline - steady_clock().now(), Nanoseconds(1));
    failure = run_internal(posting);
    if (failure.code() == Code::timed_out) failure = absent_from(assembly, answer.absent = member);
    if (!failure.ok()) break;
    answer.id = std::max(answer.id, theirs);
  }
  if (!failure.ok()) answer.id = 0;
  for (int member : others) {
    auto posting = engine::Posting::send(member, assembly.tag, &answer, sizeof answer);
    posting.timeout = assembly.timeout;
    if (Status status = run_internal(posting); !status.ok() && failure.ok()) failure = status;
  }
  if (!failure.ok()) return failure;
  return answer.id;
}

Result<std::uint32_t> RankGroup::report_to_first(const Assembly& assembly) {
  const int first = assembly.ranks[0];
  std::uint32_t id = world_->engine().next_channel();
  auto report = engine::Posting::send(first, assembly.tag, &id, sizeof id);
  report.timeout = assembly.timeout;
  Status status = run_internal(report);
  Answer answer;
  auto reply = engine::Posting::recv(first, assembly.tag, &answer, sizeof answer);
  // It waits as long for the others before it can say who is missing.
  reply.timeout = deadline_after(kToSayWho, assembly.timeout);
  if (status.ok()) status = run_internal(reply);
  if (status.code() == Code::timed_out) return absent_from(assembly, first);
  if (!status.ok()) return status;
  if (answer.absent >= 0) return absent_from(assembly, answer.absent);
  if (answer.id == 0)
    return Status(Code::aborted,
                  fmt::format("rank {} could not create group '{}'", first, assembly.name),
                  {rank(), first, 0});
  return answer.id;
}

Status RankGroup::check_list(std::span<const int> ranks) const {
  const auto refuse = [](std::string what) {
    return Status(Code::invalid_argument, "subgroup: " + std::move(what));
  };
  std::vector<bool> listed(static_cast<std::size_t>(size()), false);
  for (int each : ranks) {
    if (each < 0 || each >= size())
      return refuse(fmt::format("{} is not a rank of a group of {}", each, size()));
    if (listed[static_cast<std::size_t>(each)])
      return refuse(fmt::format("rank {} is listed twice", each));
    listed[static_cast<std::size_t>(each)] = true;
  }
  if (!listed[static_cast<std::size_t>(rank())])
    return refuse(fmt::format("rank {} is not in its own list; only members call it", rank()));
  return {};
}

Result<std::shared_ptr<Group>> RankGroup::subgroup(std::span<const int> ranks, std::uint32_t tag,
                                                   std::string name,
                                                   std::chrono::nanoseconds timeout) {
  if (Status status = check_process(); !status.ok()) return status;
  if (Status status = check_list(ranks); !status.ok()) return status;
  if (name.empty()) name = fmt::format("{}/list{}", this->name(), tag);
  if (timeout.count() <= 0) timeout = setting_.config->timeout;
  auto id = agree_on_channel({ranks, tag, name, timeout});
  if (!id.ok()) return id.status();
  return open(*id, std::move(name), {ranks.begin(), ranks.end()}, setting_.order);
}

// ---- symmetric memory

std::vector<int> RankGroup::mapped_members() const {
  std::vector<int> mapped;
  for (int member : channel_->options().members) {
    const transport::Link* link = world_->engine().endpoint().link(member);
    if (link != nullptr && link->shares_memory()) mapped.push_back(member);
  }
  return mapped;
}

Result<SymmetricMemory> RankGroup::allocate(std::size_t bytes) {
  auto shared = share_memory(bytes, internal_call(setting_.config->timeout));
  if (!shared.ok()) return shared.status();
  return shared->memory;
}

Result<RankGroup::SharedMemory> RankGroup::share_memory(std::size_t bytes,
                                                        const CallOptions& call) {
  if (Status status = check_process(); !status.ok()) return status;
  auto sizes = gather_all(*this, static_cast<std::uint64_t>(bytes), call);
  if (!sizes.ok()) return sizes.status();
  for (int peer = 0; peer < size(); ++peer)
    if ((*sizes)[static_cast<std::size_t>(peer)] != bytes)
      return Status(Code::mismatch,
                    fmt::format("allocate: rank {} asks for {} bytes where rank {} asks for {}",
                                rank(), bytes, peer, (*sizes)[static_cast<std::size_t>(peer)]));
  if (bytes == 0) return SharedMemory{};
  engine::Engine& engine = world_->engine();
  const std::uint64_t id =
      static_cast<std::uint64_t>(channel_->options().id) << 32 | ++allocations_;
  const std::vector<int> peers = mapped_members();
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
