#include "tool/trace/divergence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "tool/bench/arithmetic.hpp"
#include "tool/trace/words.hpp"
#include "tutti/types.hpp"

namespace tutti::tool::trace {
namespace {

// One group, seen by all ranks that left something.
struct Shared {
  std::uint32_t channel = 0;
  std::string name;
  std::vector<int> members;
  std::map<int, const FlightGroup*> by_rank;
};

std::string call_words(const RecordedCall& call) {
  std::string words;
  if (call.bytes > 0) words = fmt::format("{} of {}", size_words(call.bytes), call.dtype);
  const auto collective = parse_collective(call.collective);
  if (collective && has_reduction(*collective))
    words += fmt::format("{}{}", words.empty() ? "" : ", ", call.reduce_op);
  return words.empty() ? "" : fmt::format(" ({})", words);
}

bool same(const RecordedCall& a, const RecordedCall& b) {
  return a.collective == b.collective && a.dtype == b.dtype && a.bytes == b.bytes &&
         a.reduce_op == b.reduce_op;
}

class Inquest {
 public:
  explicit Inquest(const Flights& flights) : flights_(flights) { find_groups(); }

  Divergence decide() {
    if (auto found = first_mismatch()) return *std::move(found);
    find_dead();
    if (auto found = first_absence()) return *std::move(found);
    return dead_.empty() ? no_difference() : tell_death();
  }

 private:
  void find_groups() {
    // Groups that were split from one another have one channel: members tell them apart.
    std::map<std::pair<std::uint32_t, std::vector<int>>, Shared> groups;
    for (const Flight& flight : flights_.ranks)
      for (const auto& [channel, group] : flight.groups) {
        Shared& shared = groups[{channel, group.ranks}];
        shared.channel = channel;
        shared.name = group.name;
        shared.members = group.ranks;
        shared.by_rank[flight.rank] = &group;
      }
    for (auto& [key, shared] : groups) {
      if (shared.members.empty())
        for (const auto& [rank, group] : shared.by_rank) shared.members.push_back(rank);
      groups_.push_back(std::move(shared));
    }
  }

  const Flight* flight_of(int rank) const {
    for (const Flight& flight : flights_.ranks)
      if (flight.rank == rank) return &flight;
    return nullptr;
  }

  // "rank 3 (dp 1, tp 1)", where somebody knows what the program calls it.
  std::string who(const std::vector<int>& ranks) const {
    const std::string words = rank_words(ranks);
    if (ranks.size() != 1) return words;
    const auto rank = static_cast<std::size_t>(ranks[0]);
    for (const Flight& flight : flights_.ranks)
      if (rank < flight.labels.size() && !flight.labels[rank].empty())
        return fmt::format("{} ({})", words, flight.labels[rank]);
    return words;
  }

  // ---- some called something else

  std::optional<Divergence> first_mismatch() const {
    std::optional<Divergence> first;
    std::int64_t first_time = std::numeric_limits<std::int64_t>::max();
    for (const Shared& group : groups_)
      for (const std::uint64_t sequence : sequences_of(group)) {
        auto [found, time] = mismatch_at(group, sequence);
        if (!found) continue;
        if (time < first_time) {
          first_time = time;
          first = std::move(found);
        }
        break;
      }
    return first;
  }

  static std::set<std::uint64_t> sequences_of(const Shared& group) {
    std::set<std::uint64_t> sequences;
    for (const auto& [rank, mine] : group.by_rank)
      for (const auto& [sequence, call] : mine->calls) sequences.insert(sequence);
    return sequences;
  }

  std::pair<std::optional<Divergence>, std::int64_t> mismatch_at(const Shared& group,
                                                                 std::uint64_t sequence) const {
    struct Party {
      const RecordedCall* call;
      std::vector<int> ranks;
    };
    std::vector<Party> parties;
    std::int64_t time = std::numeric_limits<std::int64_t>::max();
    for (const auto& [rank, mine] : group.by_rank) {
      const auto at = mine->calls.find(sequence);
      if (at == mine->calls.end()) continue;
      time = std::min(time, at->second.time_ns);
      const auto party = std::find_if(parties.begin(), parties.end(),
                                      [&](const Party& p) { return same(*p.call, at->second); });
      if (party == parties.end())
        parties.push_back({&at->second, {rank}});
      else
        party->ranks.push_back(rank);
    }
    if (parties.size() < 2) return {std::nullopt, time};
    // Most are taken to be right; of two, the one with rank 0.
    std::stable_sort(parties.begin(), parties.end(), [](const Party& a, const Party& b) {
      return a.ranks.size() > b.ranks.size();
    });
    Divergence found;
    found.kind = Divergence::Kind::mismatch;
    found.group = group.name;
    found.sequence = sequence;
    found.from = parties[0].call->collective;
    found.to = parties[1].call->collective;
    found.others = parties[0].ranks;
    for (std::size_t i = 1; i < parties.size(); ++i)
      found.ranks.insert(found.ranks.end(), parties[i].ranks.begin(), parties[i].ranks.end());
    if (parties[0].ranks.size() == parties[1].ranks.size() &&
        2 * parties[0].ranks.size() < group.members.size())
      return {tell_tie(group, sequence, parties[0].ranks, *parties[0].call, parties[1].ranks,
                       *parties[1].call),
              time};
    found.text = fmt::format("{} diverged first: ", capital(who(found.ranks)));
    for (std::size_t i = 1; i < parties.size(); ++i)
      found.text +=
          fmt::format("{}{} called {} #{}{}", i > 1 ? ", " : "",
                      parties.size() > 2 ? rank_words(parties[i].ranks) : it(found.ranks),
                      parties[i].call->collective, sequence, call_words(*parties[i].call));
    found.text += fmt::format(" on group '{}' while {} called {} #{}{}.{}", group.name,
                              rank_words(found.others), found.from, sequence,
                              call_words(*parties[0].call), agreed_before(group, sequence));
    return {found, time};
  }

  // Too few had begun it to say who is right.
  static Divergence tell_tie(const Shared& group, std::uint64_t sequence,
                             const std::vector<int>& some, const RecordedCall& one,
                             const std::vector<int>& others, const RecordedCall& other) {
    Divergence found;
    found.kind = Divergence::Kind::mismatch;
    found.group = group.name;
    found.sequence = sequence;
    found.from = one.collective;
    found.to = other.collective;
    found.ranks = some;
    found.ranks.insert(found.ranks.end(), others.begin(), others.end());
    std::sort(found.ranks.begin(), found.ranks.end());
    for (const int rank : group.members)
      if (std::find(found.ranks.begin(), found.ranks.end(), rank) == found.ranks.end())
        found.others.push_back(rank);
    found.text = fmt::format(
        "{} parted: {} called {} #{}{} on group '{}' while {} called {} #{}{}; {} had not begun "
        "it, "
        "so neither call is the rule.{}",
        capital(rank_words(found.ranks)), rank_words(some), one.collective, sequence,
        call_words(one), group.name, rank_words(others), other.collective, sequence,
        call_words(other), rank_words(found.others), agreed_before(group, sequence));
    return found;
  }

  static std::string it(const std::vector<int>& ranks) { return ranks.size() == 1 ? "it" : "they"; }
  static std::string capital(std::string text) {
    if (!text.empty()) text[0] = static_cast<char>(std::toupper(text[0]));
    return text;
  }

  static std::string agreed_before(const Shared& group, std::uint64_t sequence) {
    const RecordedCall* before = nullptr;
    for (const auto& [rank, mine] : group.by_rank)
      if (const auto at = mine->calls.find(sequence - 1); at != mine->calls.end())
        before = &at->second;
    if (sequence <= 1) return " It was the first operation of the group.";
    if (before == nullptr) return "";
    return fmt::format(" Up to #{}, {}{}, all ranks had agreed.", sequence - 1, before->collective,
                       named(group, *before));
  }

  static std::string named(const Shared& group, const RecordedCall& call) {
    const bool own =
        !call.label.empty() && group.name.compare(0, call.label.size(), call.label) != 0;
    return own ? fmt::format(" '{}'", call.label) : "";
  }

  // ---- some never came

  struct Wanted {
    const Shared* group = nullptr;
    std::uint64_t sequence = 0;
    const RecordedCall* call = nullptr;
    std::vector<int> there, absent;
    std::vector<int> spared;  // did not come either, because they had heard of the death
  };

  std::optional<Divergence> first_absence() const {
    std::optional<Wanted> first;
    for (const Shared& group : groups_)
      for (const std::uint64_t sequence : sequences_of(group)) {
        Wanted wanted = wanted_at(group, sequence);
        if (wanted.call == nullptr || wanted.absent.empty()) continue;
        if (!dead_.empty() && std::none_of(wanted.absent.begin(), wanted.absent.end(),
                                           [&](int rank) { return is_dead(rank); }))
          continue;
        if (!first || wanted.call->time_ns < first->call->time_ns) first = std::move(wanted);
        break;
      }
    if (!first) return std::nullopt;
    leave_out_victims(*first);
    return tell_absence(*first);
  }

  // Where somebody died, those that heard of it before they came are not to blame.
  void leave_out_victims(Wanted& wanted) const {
    if (dead_.empty()) return;
    for (const int rank : wanted.absent)
      if (!is_dead(rank)) wanted.spared.push_back(rank);
    std::erase_if(wanted.absent, [&](int rank) { return !is_dead(rank); });
  }

  bool is_dead(int rank) const {
    return std::find(dead_.begin(), dead_.end(), rank) != dead_.end();
  }

  // Ranks that fail leave a dump, and links to them break when they end: only one that left none,
  // where others did, was killed.
  void find_dead() {
    const auto dumped = [&](int rank) {
      const Flight* flight = flight_of(rank);
      return flight != nullptr && flight->has_dump;
    };
    std::set<int> all;
    bool any = false;
    for (const Shared& group : groups_) all.insert(group.members.begin(), group.members.end());
    for (const int rank : all) any |= dumped(rank);
    for (const int rank : all)
      if (any && !dumped(rank)) dead_.push_back(rank);
  }

  // Nobody had begun anything that the dead were missing from.
  Divergence tell_death() const {
    Divergence found;
    found.kind = Divergence::Kind::absent;
    found.ranks = dead_;
    for (const Flight& flight : flights_.ranks)
      if (!is_dead(flight.rank)) found.others.push_back(flight.rank);
    found.text = fmt::format(
        "{} left no dump while {} did, and nobody had begun an operation "
        "without {}.",
        capital(who(dead_)), rank_words(found.others), dead_.size() == 1 ? "it" : "them");
    for (const int rank : dead_) {
      const std::vector<int> losers = who_lost(rank);
      if (const Flight* flight = flight_of(rank)) found.text += latest_words(*flight, found);
      if (!losers.empty())
        found.text += fmt::format(" {} lost the link to rank {}: it was killed or crashed.",
                                  capital(rank_words(losers)), rank);
    }
    return found;
  }

  // The last thing that a rank has finished, in any group.
  static std::string latest_words(const Flight& flight, Divergence& found) {
    const RecordedCall* last = nullptr;
    for (const auto& [channel, group] : flight.groups)
      for (const auto& [sequence, call] : group.calls)
        if (last == nullptr || call.time_ns > last->time_ns) {
          last = &call;
          found.group = group.name;
          found.sequence = sequence;
        }
    if (last == nullptr) return "";
    found.from = last->collective;
    return fmt::format(" Rank {}'s last was {} #{}{} on group '{}', {}.", flight.rank,
                       last->collective, found.sequence, call_words(*last), found.group,
                       last->finished ? "finished" : "begun");
  }

  // Somebody had begun it and not finished; who has nothing of it or of any later one?
  static Wanted wanted_at(const Shared& group, std::uint64_t sequence) {
    Wanted wanted;
    wanted.group = &group;
    wanted.sequence = sequence;
    for (const int rank : group.members) {
      const auto mine = group.by_rank.find(rank);
      const bool reached = mine != group.by_rank.end() && !mine->second->calls.empty() &&
                           mine->second->calls.rbegin()->first >= sequence;
      (reached ? wanted.there : wanted.absent).push_back(rank);
      if (!reached) continue;
      const auto at = mine->second->calls.find(sequence);
      if (at == mine->second->calls.end() || at->second.finished) continue;
      if (wanted.call == nullptr || at->second.time_ns < wanted.call->time_ns)
        wanted.call = &at->second;
    }
    return wanted;
  }

  Divergence tell_absence(const Wanted& wanted) const {
    Divergence found;
    found.kind = Divergence::Kind::absent;
    found.ranks = wanted.absent;
    found.others = wanted.there;
    found.group = wanted.group->name;
    found.sequence = wanted.sequence;
    found.from = wanted.call->collective;
    found.text = fmt::format("{} never reached {} #{}{} on group '{}', which {} had begun.",
                             capital(who(wanted.absent)), found.from, wanted.sequence,
                             call_words(*wanted.call), found.group, rank_words(wanted.there));
    for (const int rank : wanted.absent) found.text += " " + last_of(rank, wanted);
    if (!wanted.spared.empty())
      found.text += fmt::format(" {} had heard of it before {} came there.",
                                capital(rank_words(wanted.spared)), it(wanted.spared));
    return found;
  }

  std::string last_of(int rank, const Wanted& wanted) const {
    const std::string who = wanted.absent.size() == 1 ? "Its" : fmt::format("Rank {}'s", rank);
    const Flight* flight = flight_of(rank);
    std::string text;
    if (flight == nullptr)
      text = wanted.absent.size() == 1 ? "It left neither dump nor trace."
                                       : fmt::format("Rank {} left neither dump nor trace.", rank);
    else
      text = last_words(who, *flight, wanted);
    const std::vector<int> losers = who_lost(rank);
    const std::string it = wanted.absent.size() == 1 ? "it" : fmt::format("rank {}", rank);
    if (!losers.empty())
      text += fmt::format(" {} lost the link to {}: it was killed or crashed.",
                          capital(rank_words(losers)), it);
    else if (flight == nullptr || !flight->has_dump)
      text += fmt::format(" {} left no dump: killed, or stuck where nothing could tell it?",
                          capital(it));
    else
      text += fmt::format(
          " It was alive and wrote its dump ({}): it did something else, or waited "
          "outside of the library.",
          flight->reason);
    return text;
  }

  static std::string last_words(const std::string& who, const Flight& flight,
                                const Wanted& wanted) {
    const auto mine = flight.groups.find(wanted.group->channel);
    std::string text;
    if (mine == flight.groups.end() || mine->second.calls.empty()) {
      text = fmt::format("{} calls on that group are none.", who);
    } else {
      const auto& [sequence, call] = *mine->second.calls.rbegin();
      text = fmt::format("{} last there was {} #{}{}, {} {} before the others began this one.", who,
                         call.collective, sequence, named(*wanted.group, call),
                         call.finished ? "finished" : "begun",
                         time_words(static_cast<double>(
                             std::max<std::int64_t>(0, wanted.call->time_ns - call.time_ns))));
    }
    // What it was at in another group, if that was later or is still under way.
    for (const auto& [channel, group] : flight.groups) {
      if (channel == wanted.group->channel || group.calls.empty()) continue;
      const auto& [sequence, call] = *group.calls.rbegin();
      if (!call.finished)
        text += fmt::format(" It was in {} #{} on group '{}' instead.", call.collective, sequence,
                            group.name);
    }
    return text;
  }

  std::vector<int> who_lost(int rank) const {
    std::vector<int> losers;
    for (const Flight& flight : flights_.ranks)
      if (std::find(flight.lost.begin(), flight.lost.end(), rank) != flight.lost.end())
        losers.push_back(flight.rank);
    return losers;
  }

  // ---- no difference

  Divergence no_difference() const {
    Divergence found;
    std::set<std::string> reasons;
    bool dumped = false;
    for (const Flight& flight : flights_.ranks) {
      found.others.push_back(flight.rank);
      dumped |= flight.has_dump;
      if (flight.has_dump && flight.reason != "signal") reasons.insert(flight.reason);
    }
    found.text = fmt::format(
        "No rank diverged: {} called the same operations in the same order as "
        "far as {} tell.",
        rank_words(found.others), dumped ? "their dumps" : "their traces");
    if (!dumped)
      found.text +=
          " There are no flight-recorder dumps: the job did not fail, or nobody sent "
          "SIGUSR1 to ranks that hang.";
    for (const std::string& reason : reasons) found.text += fmt::format(" They gave: {}.", reason);
    return found;
  }

  const Flights& flights_;
  std::vector<Shared> groups_;
  std::vector<int> dead_;
};

}  // namespace

std::string_view to_string(Divergence::Kind kind) noexcept {
  switch (kind) {
    case Divergence::Kind::mismatch: return "mismatch";
    case Divergence::Kind::absent: return "absent";
    case Divergence::Kind::none: return "none";
  }
  return "?";
}

Divergence find_divergence(const Flights& flights) { return Inquest(flights).decide(); }

}  // namespace tutti::tool::trace
