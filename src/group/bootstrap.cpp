#include "group/bootstrap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/auth.hpp"
#include "core/limits.hpp"
#include "engine/vote.hpp"
#include "group/extensions.hpp"
#include "group/link_secret.hpp"
#include "group/store_rounds.hpp"
#include "store/trust.hpp"

namespace tutti::group {
namespace {

// The lowest rank with which this one shares memory; itself, if there is none below.
std::string first_beside(transport::Endpoint& endpoint) {
  int first = 0;
  while (first < endpoint.rank() && !endpoint.is_beside(first)) ++first;
  return std::to_string(first);
}

// Ranks with memory links to one that has none to a lower rank are its host; hosts are numbered by their
// lowest rank.
std::vector<int> hosts_from(const std::vector<std::string>& firsts) {
  std::vector<int> host_of(firsts.size(), -1);
  int hosts = 0;
  for (std::size_t rank = 0; rank < firsts.size(); ++rank) {
    const auto first = static_cast<std::size_t>(std::strtoul(firsts[rank].c_str(), nullptr, 10));
    const bool is_beside = first < rank && firsts[first] == std::to_string(first);
    host_of[rank] = is_beside ? host_of[first] : hosts++;
  }
  return host_of;
}

// What each rank must want alike.
std::string wanted_by(const GroupOptions& options, const Config& config) {
  return fmt::format("create(size {}, reduction order {}{})", options.size,
                     to_string(options.reduction_order),
                     config.links == "auto" ? "" : ", links " + config.links);
}

// All ranks see the same words, so all of them fail, with the same table. A rank that wants a larger
// group would wait for ranks that do not exist: `wants` holds what has been said so far.
Status check_wants(const std::vector<std::string>& wants, const GroupOptions& options) {
  std::vector<engine::Said> said;
  for (std::size_t rank = 0; rank < wants.size(); ++rank)
    if (!wants[rank].empty()) said.push_back({static_cast<int>(rank), wants[rank]});
  const engine::Vote found =
      engine::vote(said, [](int rank) { return fmt::format("rank {}", rank); });
  if (found.culprit < 0) return {};
  return {Code::mismatch,
          fmt::format("ranks mean different groups '{}': {}", options.name, found.table),
          {options.rank, found.culprit, 0}};
}

// Whether this job's switch joins with the ranks. One that does not come costs nobody more than this.
bool find_switch(StoreRounds& meeting, const GroupOptions& options, const Config& config,
                 const Log& log) {
  constexpr std::chrono::seconds kPatience{10};
  if (options.rank != 0 || options.size < 2 || !config.use_switch) return false;
  if (meeting.has_switch(kPatience)) return true;
  log.warn(Subsystem::init,
           "no switch has come to group '{}' within {} s (TUTTI_SWITCH, tutti switch); it goes on "
           "without",
           options.name, kPatience.count());
  return false;
}

// A store within this process has nothing to be spared.
bool is_here(const Store& store) {
  const auto* trusted = store::trusted_store(store);
  return trusted != nullptr && trusted->is_here();
}

Result<Linked> link_up(StoreRounds& meeting, const LinkSecret& secret, const GroupOptions& options,
                       const Config& config, const Log& log, bool fans_out) {
  // Everybody must use one secret and one epoch; rank 0's words count.
  auto word = meeting.from_rank_0("secret", secret.word());
  if (!word.ok()) return word.status();
  const bool expected = find_switch(meeting, options, config, log);
  const std::string mark(expected ? kWithSwitch : "");
  auto epoch = meeting.from_rank_0("epoch", random_bytes(8) + mark);
  if (!epoch.ok()) return epoch.status();
  const bool has_switch = take_switch_mark(*epoch);
  if (epoch->size() != 8) return Status(Code::corrupt, "the store holds an epoch of a wrong size");
  auto key = secret.key(*word, options, *epoch);
  wipe(*word);
  if (!key.ok()) return key.status();
  HostDoors doors;
  if (fans_out && meeting.is_by_tree()) {
    meeting.fan_out(HostStore::find(*epoch, *key));
    doors = HostDoors::of_network(config, *key);
  }

  transport::OpeningOptions opening;
  opening.rank = options.rank;
  opening.size = options.size + (has_switch ? 1 : 0);
  opening.secret = *std::move(key);
  std::memcpy(&opening.epoch, epoch->data(), sizeof opening.epoch);
  opening.config = config;
  if (has_switch) opening.config.links = "eager";
  opening.log = log;
  if (options.extensions) {
    opening.transports = options.extensions->transports;
    const auto built_in = transport::built_in_transports();
    opening.transports.insert(opening.transports.end(), built_in.begin(), built_in.end());
  }
  // A link takes up to three; the usual soft limit is there for programs that use select().
  const auto needed = 3 * static_cast<std::uint64_t>(options.size) + 64;
  const std::uint64_t limit = allow_descriptors(open_descriptors() + needed);
  auto open = transport::Opening::open(std::move(opening));
  if (open.status().code() == Code::out_of_memory)
    return Status(Code::out_of_memory,
                  fmt::format("rank {} needs {} descriptors beside those that it has open, and its "
                              "limit is {} (RLIMIT_NOFILE; ulimit -n, or the container's): {}",
                              options.rank, needed, limit, open.status().message()),
                  {options.rank, options.rank, 0});
  if (!open.ok()) return open.status();

  const auto check = [&](const auto& wants) { return check_wants(wants, options); };
  auto wants = meeting.exchange("size", wanted_by(options, config), check);
  if (!wants.ok()) return wants.status();
  meeting.climb(doors);
  auto addresses = meeting.exchange("address", (*open)->address());
  if (!addresses.ok()) return addresses.status();
  if (has_switch) {
    auto address = meeting.address_of_switch();
    if (!address.ok()) return address.status().annotate("the switch said that it comes");
    addresses->push_back(*std::move(address));
  }
  const auto look = [&] { return meeting.look_around("links"); };
  auto endpoint = (*open)->connect(*addresses, meeting.left(), look);
  if (!endpoint.ok()) {
    const Status ended = look();  // says more than a link that failed
    return ended.ok() ? endpoint.status() : ended;
  }

  meeting.watch_links(**endpoint);
  auto firsts = meeting.exchange("links", first_beside(**endpoint));
  if (!firsts.ok()) return firsts.status();
  auto tuning = meeting.from_rank_0("tuning", config.tuning == "fixed" ? "fixed" : "table");
  if (!tuning.ok()) return tuning.status();
  meeting.leave_host();
  return Linked{*std::move(endpoint), hosts_from(*firsts), *tuning != "fixed", has_switch};
}

}  // namespace

bool take_switch_mark(std::string& epoch) {
  const bool marked = epoch.size() == 8 + kWithSwitch.size() && epoch.ends_with(kWithSwitch);
  if (marked) epoch.resize(8);
  return marked;
}

Result<Linked> link_up(Store& store, const GroupOptions& options, const Config& config,
                       const Log& log, const LauncherBoard* board) {
  auto secret = LinkSecret::find(store, options, process_environment(), log);
  if (!secret.ok()) return secret.status();
  StoreRounds meeting(store, options, config.join_timeout, board);
  if (Status status = meeting.join(); !status.ok()) return status;
  auto linked = link_up(meeting, *secret, options, config, log, !is_here(store));
  if (!linked.ok()) meeting.give_up(linked.status());
  return linked;
}

}  // namespace tutti::group
