#include "group/bootstrap.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "core/auth.hpp"
#include "core/clock.hpp"
#include "core/limits.hpp"
#include "engine/vote.hpp"
#include "group/extensions.hpp"
#include "group/link_secret.hpp"

namespace tutti::group {
namespace {

using std::chrono::milliseconds;

// How often a rank that waits looks whether somebody has ended or given up who should have come.
constexpr milliseconds kLook{250};
constexpr milliseconds kSwitchPatience{10'000};

// One round of meeting in the store: everybody puts a value and gets everybody else's.
class StoreRounds {
 public:
  StoreRounds(Store& store, const GroupOptions& options, Nanoseconds timeout,
              const LauncherBoard* board)
      : store_(store),
        board_(board != nullptr && board->is_of(options.rank, options.size) ? board : nullptr),
        rank_(options.rank),
        size_(options.size),
        name_(options.name),
        deadline_(deadline_after(steady_clock().now(), timeout)),
        timeout_(timeout) {}

  // Groups of the same name on one store are told apart by how often this rank has joined one.
  Status join() {
    auto prefix = join_round(store_, name_, rank_);
    if (!prefix.ok()) return prefix.status().annotate("cannot join the other ranks");
    prefix_ = *std::move(prefix);
    return {};
  }

  // Whether the switch of the job says that it is here; waits for that.
  bool has_switch(milliseconds patience) {
    return store_.get(switch_key(prefix_), std::min(patience, left())).ok();
  }
  // It joins as the rank behind the last.
  Result<std::string> address_of_switch() {
    return hear(said_key(prefix_, "address", size_), left(), "address");
  }

  // What rank 0 says, to everyone.
  Result<std::string> from_rank_0(const std::string& key, const std::string& value) {
    const std::string full = prefix_ + "/" + key;
    if (rank_ == 0) {
      if (Status status = store_.set(full, value); !status.ok()) return status;
      return value;
    }
    // Whoever ends at this point has not said its size.
    auto got = hear(full, left(), "size");
    if (!got.ok() && got.status().code() == Code::timed_out) return nobody({0});
    return got;
  }

  // `check` judges what has been said so far. Once it finds fault, those who have not spoken are
  // waited for no longer than a look: perhaps they never will.
  using Check = std::function<Status(const std::vector<std::string>&)>;
  Result<std::vector<std::string>> exchange(const std::string& key, const std::string& value,
                                            const Check& check = {}) {
    if (Status status = store_.set(said_by(rank_, key), value); !status.ok()) return status;
    std::vector<std::string> values(static_cast<std::size_t>(size_));
    values[static_cast<std::size_t>(rank_)] = value;
    std::vector<int> absent;
    Status fault;
    for (int rank = 0; rank < size_; ++rank) {
      const bool hurry = !absent.empty() || !fault.ok();
      auto got = hear(said_by(rank, key), hurry ? milliseconds(1) : left(), key);
      if (got.ok())
        values[static_cast<std::size_t>(rank)] = *std::move(got);
      else if (got.status().code() == Code::timed_out)
        absent.push_back(rank);
      else if (fault.ok())
        return got.status();
      if (check && !hurry) fault = check(values);
    }
    if (!fault.ok()) return check(values);
    if (!absent.empty()) return nobody(absent);
    return values;
  }

  // Tells those who still wait why this rank does not come any more. The first to do so is heard.
  void give_up(const Status& why) {
    const int culprit = why.code() == Code::peer_lost ? why.peer() : -1;
    const std::string said = fmt::format("{} {} {}", rank_, culprit, why.message());
    (void)store_.compare_set(prefix_ + "/given_up", "", said);
  }

  // From here on the links tell, too, who is gone.
  void watch_links(transport::Endpoint& endpoint) { endpoint_ = &endpoint; }

  // Whether there is any use in waiting for everybody's `key`.
  Status look_around(const std::string& key) {
    const auto said = store_.get(prefix_ + "/given_up", milliseconds(1));
    if (!said.ok()) {
      if (Status ended = look_for_the_ended(key); !ended.ok()) return ended;
      return endpoint_ != nullptr ? endpoint_->look_for_the_gone() : Status();
    }
    char* rest = nullptr;
    const int who = static_cast<int>(std::strtol(said->c_str(), &rest, 10));
    const int culprit = static_cast<int>(std::strtol(rest, &rest, 10));
    const std::string why(rest + (*rest == ' '));
    // Of a rank that is gone everybody says the same.
    if (culprit >= 0) return {Code::peer_lost, why, {rank_, culprit, 0}};
    return {Code::peer_lost,
            fmt::format("rank {} could not join group '{}': {}", who, name_, why),
            {rank_, who, 0}};
  }

  milliseconds left() const {
    const auto rest = std::chrono::duration_cast<milliseconds>(deadline_ - steady_clock().now());
    return std::max(rest, milliseconds(1));
  }

 private:
  std::string said_by(int rank, const std::string& key) const {
    return said_key(prefix_, key, rank);
  }

  // Waits for `name`, unless a rank has ended or given up that every rank must hear `key` from.
  Result<std::string> hear(const std::string& name, milliseconds patience, const std::string& key) {
    const Nanoseconds until = deadline_after(steady_clock().now(), patience);
    for (;;) {
      const auto rest = std::chrono::ceil<milliseconds>(until - steady_clock().now());
      auto got = store_.get(name, std::clamp(rest, milliseconds(1), kLook));
      if (got.ok() || got.status().code() != Code::timed_out) return got;
      if (Status status = look_around(key); !status.ok()) return status;
      if (steady_clock().now() >= until) return got;
    }
  }

  // A rank that ended without having said `key`, as peer_lost. What it said before is in the store
  // when the board tells of its end.
  Status look_for_the_ended(const std::string& key) {
    for (int rank = 0; board_ != nullptr && rank < size_; ++rank) {
      const auto ending = board_->board.ended(rank);
      if (!ending || store_.get(said_by(rank, key), milliseconds(1)).ok()) continue;
      return {Code::peer_lost,
              fmt::format("rank {} {} before it joined group '{}', which needs all {} ranks", rank,
                          describe_ending(*ending), name_, size_),
              {rank_, rank, 0}};
    }
    return {};
  }

  Status nobody(const std::vector<int>& absent) const {
    return {
        Code::timed_out,
        fmt::format("{} {} of {} did not come to group '{}' within {:g} s; are all ranks started, "
                    "with the same size and store?",
                    absent.size() == 1 ? "rank" : "ranks", fmt::join(absent, ", "), size_, name_,
                    in_seconds(timeout_)),
        {rank_, absent[0], 0}};
  }

  Store& store_;
  const LauncherBoard* board_;  // where its ranks are the group's
  int rank_;
  int size_;
  std::string name_;
  std::string prefix_;
  Nanoseconds deadline_;
  Nanoseconds timeout_;
  transport::Endpoint* endpoint_ = nullptr;
};

// Whether this job's switch joins with the ranks. One that does not come costs nobody more than this.
bool find_switch(StoreRounds& meeting, const GroupOptions& options, const Config& config,
                 const Log& log) {
  if (options.rank != 0 || options.size < 2 || !config.use_switch) return false;
  if (meeting.has_switch(kSwitchPatience)) return true;
  log.warn(
      Subsystem::init,
      "no switch has come to group '{}' within {:g} s (TUTTI_SWITCH, tutti switch); it goes on "
      "without",
      options.name, in_seconds(kSwitchPatience));
  return false;
}

constexpr char kSelf = '-';
constexpr char kMemory = 'm';
constexpr char kMessage = 'w';

// "-mmw": how this rank is linked to each other one.
std::string link_words(transport::Endpoint& endpoint) {
  std::string words;
  for (int peer = 0; peer < endpoint.size(); ++peer) {
    const transport::Link* link = endpoint.link(peer);
    words += link == nullptr ? kSelf : link->shares_memory() ? kMemory : kMessage;
  }
  return words;
}

// Ranks with memory links to each other are one host; hosts are numbered by their lowest rank.
std::vector<int> hosts_from(const std::vector<std::string>& words) {
  std::vector<int> host_of(words.size(), -1);
  int hosts = 0;
  for (std::size_t r = 0; r < words.size(); ++r) {
    if (host_of[r] >= 0) continue;
    host_of[r] = hosts++;
    for (std::size_t s = r + 1; s < words.size(); ++s)
      if (host_of[s] < 0 && s < words[r].size() && words[r][s] == kMemory) host_of[s] = host_of[r];
  }
  return host_of;
}

// What each rank must want alike.
std::string wanted_by(const GroupOptions& options) {
  return fmt::format("create(size {}, reduction order {})", options.size,
                     to_string(options.reduction_order));
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

Result<Linked> link_up(StoreRounds& meeting, const LinkSecret& secret, const GroupOptions& options,
                       const Config& config, const Log& log) {
  // Everybody must use one secret and one epoch; rank 0's words count.
  auto word = meeting.from_rank_0("secret", secret.word());
  if (!word.ok()) return word.status();
  const bool expected = find_switch(meeting, options, config, log);
  auto epoch =
      meeting.from_rank_0("epoch", random_bytes(8) + std::string(expected ? kWithSwitch : ""));
  if (!epoch.ok()) return epoch.status();
  const bool has_switch = take_switch_mark(*epoch);
  if (epoch->size() != 8) return Status(Code::corrupt, "the store holds an epoch of a wrong size");
  auto key = secret.key(*word, options, *epoch);
  wipe(*word);
  if (!key.ok()) return key.status();

  transport::OpeningOptions opening;
  opening.rank = options.rank;
  opening.size = options.size + (has_switch ? 1 : 0);
  opening.secret = *std::move(key);
  std::memcpy(&opening.epoch, epoch->data(), sizeof opening.epoch);
  opening.config = config;
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
  auto wants = meeting.exchange("size", wanted_by(options), check);
  if (!wants.ok()) return wants.status();
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
  auto words = meeting.exchange("links", link_words(**endpoint));
  if (!words.ok()) return words.status();
  auto tuning = meeting.from_rank_0("tuning", config.tuning == "fixed" ? "fixed" : "table");
  if (!tuning.ok()) return tuning.status();
  return Linked{*std::move(endpoint), hosts_from(*words), *tuning != "fixed", has_switch};
}

}  // namespace

Result<std::string> join_round(Store& store, const std::string& name, int rank) {
  auto round = store.add(fmt::format("tutti/{}/joined/{}", name, rank), 1);
  if (!round.ok()) return round.status();
  return fmt::format("tutti/{}/{}", name, *round);
}

std::string said_key(const std::string& prefix, const std::string& key, int rank) {
  return fmt::format("{}/{}/{}", prefix, key, rank);
}

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
  auto linked = link_up(meeting, *secret, options, config, log);
  if (!linked.ok()) meeting.give_up(linked.status());
  return linked;
}

}  // namespace tutti::group
