#include "group/store_rounds.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "core/bytes.hpp"

namespace tutti::group {
namespace {

using std::chrono::milliseconds;

// How often a rank that waits looks whether somebody has ended or given up who should have come.
constexpr milliseconds kLook{250};
// How long ranks wait for what others hand on in the tree before they ask each himself: one on the way may
// have ended, and where there is no launcher to say so only its links can tell, which are made next.
constexpr Nanoseconds kTreePatience = std::chrono::seconds(5);
constexpr Nanoseconds kTreePatienceOfRank = std::chrono::milliseconds(20);
// How often whoever waits for a leader looks whether the store has it: the leader may have been stopped.
constexpr milliseconds kLookPastLeader{2000};
// How long it takes a leader at most to say where its door is.
constexpr milliseconds kDoorPatience{2000};

}  // namespace

// What ranks have said, on its way through the store: each value once, with those who said it.
class AllSaid {
 public:
  void add(int rank, std::string value) { ranks_of_[std::move(value)].push_back(rank); }
  void add(const AllSaid& others) {
    for (const auto& [value, ranks] : others.ranks_of_) {
      auto& mine = ranks_of_[value];
      mine.insert(mine.end(), ranks.begin(), ranks.end());
    }
  }
  std::size_t count() const {
    std::size_t count = 0;
    for (const auto& [value, ranks] : ranks_of_) count += ranks.size();
    return count;
  }
  // Of `size` ranks; empty where nothing was said.
  std::vector<std::string> by_rank(int size) const {
    std::vector<std::string> values(static_cast<std::size_t>(size));
    for (const auto& [value, ranks] : ranks_of_)
      for (const int rank : ranks)
        if (rank < size) values[static_cast<std::size_t>(rank)] = value;
    return values;
  }

  // Ranks as runs of consecutive ones: what all say alike is short.
  std::string encode() const {
    ByteWriter out;
    for (const auto& [value, ranks] : ranks_of_) {
      const auto runs = runs_of(ranks);
      out.put_string(value);
      out.put(static_cast<std::uint32_t>(runs.size()));
      for (const Run& run : runs) {
        out.put(run.first);
        out.put(run.count);
      }
    }
    return out.take();
  }
  static Result<AllSaid> decode(const std::string& bytes) {
    ByteReader in(bytes);
    AllSaid said;
    bool whole = true;
    std::uint32_t left = kMostRanks;
    while (whole && !in.empty()) {
      std::string value;
      std::uint32_t count = 0;
      whole = in.get_string(value) && in.get(count);
      std::vector<int> ranks;
      for (std::uint32_t i = 0; whole && i < count; ++i) {
        Run run;
        whole =
            in.get(run.first) && in.get(run.count) && run.first < kMostRanks && run.count <= left;
        for (std::uint32_t each = 0; whole && each < run.count; ++each, --left)
          ranks.push_back(static_cast<int>(run.first + each));
      }
      said.ranks_of_.emplace_hint(said.ranks_of_.end(), std::move(value), std::move(ranks));
    }
    if (!whole)
      return Status(Code::corrupt, "the store holds words of other ranks that cannot be read");
    return said;
  }

 private:
  struct Run {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };
  // More would be a fault of whoever wrote them.
  static constexpr std::uint32_t kMostRanks = 1 << 22;

  static std::vector<Run> runs_of(std::vector<int> ranks) {
    std::sort(ranks.begin(), ranks.end());
    std::vector<Run> runs;
    for (const int rank : ranks) {
      const auto each = static_cast<std::uint32_t>(rank);
      if (runs.empty() || each != runs.back().first + runs.back().count) runs.push_back({each, 0});
      ++runs.back().count;
    }
    return runs;
  }

  std::map<std::string, std::vector<int>> ranks_of_;
};

StoreRounds::StoreRounds(Store& store, const GroupOptions& options, Nanoseconds timeout,
                         const LauncherBoard* board, const Clock& clock)
    : store_(store),
      board_(board != nullptr && board->is_of(options.rank, options.size) ? board : nullptr),
      clock_(clock),
      rank_(options.rank),
      size_(options.size),
      name_(options.name),
      deadline_(deadline_after(clock.now(), timeout)),
      timeout_(timeout) {}

Status StoreRounds::join() {
  auto prefix = join_round(store_, name_, rank_);
  if (!prefix.ok()) return prefix.status().annotate("cannot join the other ranks");
  prefix_ = *std::move(prefix);
  return {};
}

Result<std::string> join_round(Store& store, const std::string& name, int rank) {
  auto round = store.add(fmt::format("tutti/{}/joined/{}", name, rank), 1);
  if (!round.ok()) return round.status();
  return fmt::format("tutti/{}/{}", name, *round);
}

std::string said_key(const std::string& prefix, const std::string& key, int rank) {
  return fmt::format("{}/{}/{}", prefix, key, rank);
}

bool StoreRounds::has_switch(milliseconds patience) {
  return store_.get(switch_key(prefix_), std::min(patience, left())).ok();
}

Result<std::string> StoreRounds::address_of_switch() {
  return hear(said_key(prefix_, "address", size_), left(), "address");
}

Result<std::string> StoreRounds::from_rank_0(const std::string& key, const std::string& value) {
  const std::string full = prefix_ + "/" + key;
  if (rank_ == 0) {
    if (Status status = tell_all(full, value); !status.ok()) return status;
    return value;
  }
  // Whoever ends at this point has not said its size.
  auto got = hear_alike(full, left(deadline_), "size");
  if (!got.ok() && got.status().code() == Code::timed_out) return nobody({0});
  return got;
}

Result<std::vector<std::string>> StoreRounds::exchange(const std::string& key,
                                                       const std::string& value,
                                                       const Check& check) {
  if (Status status = store_.set(said_by(rank_, key), value); !status.ok()) return status;
  if (!is_by_tree()) return hear_each(key, check);
  const Nanoseconds until =
      deadline_after(clock_.now(), kTreePatience + size_ * kTreePatienceOfRank);
  auto said = gather(key, value, check, until);
  if (!said.ok()) return said.status();
  if (rank_ == 0) {
    if (Status status = tell_all(handed_on_by(0, key), said->encode()); !status.ok()) return status;
  } else {
    auto told = hear_alike(handed_on_by(0, key), left(until), key);
    if (told.status().code() == Code::timed_out) return hear_each(key, check);
    if (!told.ok()) return told.status();
    if (said = AllSaid::decode(*told); !said.ok()) return said.status();
  }
  auto values = said->by_rank(size_);
  if (check)
    if (Status fault = check(values); !fault.ok()) return fault;
  return said->count() < static_cast<std::size_t>(size_) ? hear_each(key, check) : values;
}

// From each himself. Once fault is found, those who have not spoken are waited for no longer than a look:
// perhaps they never will.
Result<std::vector<std::string>> StoreRounds::hear_each(const std::string& key,
                                                        const Check& check) {
  std::vector<std::string> values(static_cast<std::size_t>(size_));
  std::vector<int> absent;
  Status fault;
  for (int rank = 0; rank < size_; ++rank) {
    const bool hurry = !absent.empty() || !fault.ok();
    auto got = hear(said_by(rank, key), hurry ? milliseconds(1) : left(deadline_), key);
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

// What this rank and those below it in the tree have said, as far as they have come until then. A rank above
// that has waited in vain hears each himself.
Result<AllSaid> StoreRounds::gather(const std::string& key, const std::string& value,
                                    const Check& check, Nanoseconds until) {
  AllSaid said;
  said.add(rank_, value);
  bool hurries = false;
  const int first = rank_ * kBranches + 1;
  for (int child = first; child < std::min(first + kBranches, size_); ++child) {
    auto told = hear(handed_on_by(child, key), hurries ? milliseconds(1) : left(until), key);
    if (told.ok() && is_leaf(child)) {
      said.add(child, *std::move(told));
    } else if (told.ok()) {
      auto below = AllSaid::decode(*told);
      if (!below.ok()) return below.status();
      said.add(*below);
    } else if (told.status().code() != Code::timed_out) {
      return told.status();
    }
    hurries |= !told.ok() || (check && !check(said.by_rank(size_)).ok());
  }
  if (rank_ == 0 || is_leaf(rank_)) return said;
  const Status status = store_.set(handed_on_by(rank_, key), said.encode());
  return status.ok() ? Result<AllSaid>(said) : Result<AllSaid>(status);
}

void StoreRounds::give_up(const Status& why) {
  const int culprit = why.code() == Code::peer_lost ? why.peer() : -1;
  const std::string said = fmt::format("{} {} {}", rank_, culprit, why.message());
  (void)store_.compare_set(prefix_ + "/given_up", "", said);
}

Status StoreRounds::look_around(const std::string& key) {
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

std::chrono::milliseconds StoreRounds::left(Nanoseconds until) const {
  const auto rest =
      std::chrono::duration_cast<milliseconds>(std::min(until, deadline_) - clock_.now());
  return std::max(rest, milliseconds(1));
}

// Under which key a rank hands on what it has gathered: its own word, where none are below; rank 0 to all.
std::string StoreRounds::handed_on_by(int rank, const std::string& key) const {
  if (rank == 0) return fmt::format("{}/{}/all", prefix_, key);
  return is_leaf(rank) ? said_by(rank, key) : fmt::format("{}/{}/below/{}", prefix_, key, rank);
}

void StoreRounds::fan_out(HostStore host) {
  host_ = std::move(host);
  host_.enter();
  if (!host_.leads) return;
  const auto number = store_.add(prefix_ + "/hosts", 1);
  if (number.ok()) host_number_ = *number - 1;
}

// The leaders' tree: the store, hosts 0 to 15 below it, 16 to 31 below 0, 32 to 47 below 1, and so on.
void StoreRounds::climb(const HostDoors& doors) {
  if (host_number_ < 0) return;
  const auto hosts = store_.add(prefix_ + "/hosts", 0);
  if (!hosts.ok() || *hosts <= kBranches) return;
  if (kBranches * (host_number_ + 1) < *hosts) {
    auto door = doors.open();
    if (door.ok()) host_.door = *std::move(door);
    (void)store_.set(key_of_door(host_number_), host_.door.address);
  }
  if (host_number_ < kBranches) return;
  const auto address = store_.get(key_of_door(host_number_ / kBranches - 1), kDoorPatience);
  if (!address.ok() || address->empty()) return;
  if (auto above = doors.reach(*address); above.ok()) host_.climb(*std::move(above));
}

std::string StoreRounds::key_of_door(std::int64_t host) const {
  return fmt::format("{}/door/{}", prefix_, host);
}

Status StoreRounds::tell_all(const std::string& name, const std::string& value) {
  host_.hand_on(name, value);
  return store_.set(name, value);
}

// As `hear`. A leader that is gone is no loss, nor is one that is silent: the store says the same.
Result<std::string> StoreRounds::hear_alike(const std::string& name, milliseconds patience,
                                            const std::string& key) {
  const Nanoseconds until = deadline_after(clock_.now(), patience);
  auto& leader = host_.leads ? host_.above : host_.store;
  Result<std::string> got = Status(Code::timed_out, "");
  bool is_over = false;
  while (leader && !is_over) {
    got = hear_from(*leader, name, std::min(left(until), kLookPastLeader), key);
    const Code code = got.status().code();
    if (code == Code::timed_out) got = store_.get(name, milliseconds(1));
    is_over = got.ok() || code == Code::peer_lost || clock_.now() >= until;
    if (!is_over && code != Code::timed_out) leader.reset();
  }
  if (!is_over) got = hear(name, left(until), key);
  if (got.ok()) host_.hand_on(name, *got);
  return got;
}

std::string StoreRounds::said_by(int rank, const std::string& key) const {
  return said_key(prefix_, key, rank);
}

// Waits for `name`, unless a rank has ended or given up that every rank must hear `key` from.
Result<std::string> StoreRounds::hear(const std::string& name, milliseconds patience,
                                      const std::string& key) {
  return hear_from(store_, name, patience, key);
}

Result<std::string> StoreRounds::hear_from(Store& store, const std::string& name,
                                           milliseconds patience, const std::string& key) {
  const Nanoseconds until = deadline_after(clock_.now(), patience);
  for (;;) {
    const auto rest = std::chrono::ceil<milliseconds>(until - clock_.now());
    auto got = store.get(name, std::clamp(rest, milliseconds(1), kLook));
    if (got.ok() || got.status().code() != Code::timed_out) return got;
    if (Status status = look_around(key); !status.ok()) return status;
    if (clock_.now() >= until) return got;
  }
}

// A rank that ended without having said `key`, or handed it on, as peer_lost. What it said before is in the store
// when the board tells of its end.
Status StoreRounds::look_for_the_ended(const std::string& key) {
  for (int rank = 0; board_ != nullptr && rank < size_; ++rank) {
    const auto ending = board_->board.ended(rank);
    const std::string last = is_by_tree() ? handed_on_by(rank, key) : said_by(rank, key);
    if (!ending || store_.get(last, milliseconds(1)).ok()) continue;
    return {Code::peer_lost,
            fmt::format("rank {} {} before it joined group '{}', which needs all {} ranks", rank,
                        describe_ending(*ending), name_, size_),
            {rank_, rank, 0}};
  }
  return {};
}

Status StoreRounds::nobody(const std::vector<int>& absent) const {
  return {
      Code::timed_out,
      fmt::format("{} {} of {} did not come to group '{}' within {:g} s; are all ranks started, "
                  "with the same size and store?",
                  absent.size() == 1 ? "rank" : "ranks", fmt::join(absent, ", "), size_, name_,
                  in_seconds(timeout_)),
      {rank_, absent[0], 0}};
}

}  // namespace tutti::group
