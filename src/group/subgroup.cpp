// A group from a list, called by the ranks on it only: they find out by themselves whether they all
// mean the same group.
//
// Every rank tells all others on its list what it calls for, consents when everybody's words are the
// same, and goes on when all have consented. Where they differ all ranks fail, with the same table of who called what. A rank may be
// in several such calls at once, from different threads: one that waits under another tag is no
// mismatch yet, and becomes one when its time is up.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "core/bytes.hpp"
#include "core/clock.hpp"
#include "engine/told_status.hpp"
#include "engine/vote.hpp"
#include "group/rank_group.hpp"

namespace tutti::group {
namespace {

using namespace std::chrono_literals;
using engine::MeetingWord;

// How long those who have not spoken yet are waited for once it is clear that ranks differ.
constexpr Nanoseconds kHearTheRest = 250ms;
// When a rank that waits says so.
constexpr Nanoseconds kSlowMeeting = 3s;
// A report has to fit into a control message.
constexpr std::size_t kMostListed = 100;
constexpr std::size_t kMostOfName = 500;

// What one rank calls for: equal words, equal groups.
std::string words_of(std::span<const int> ranks, std::uint32_t tag, const GroupSpec& spec) {
  const auto shown = ranks.first(std::min(ranks.size(), kMostListed));
  std::string list = fmt::format("{}", fmt::join(shown, ", "));
  if (shown.size() < ranks.size())
    list += fmt::format(" … {} ranks #{:016x}", ranks.size(),
                        engine::fnv1a(ranks.data(), ranks.size_bytes()));
  std::string called = spec.name.substr(0, kMostOfName);
  if (called.size() < spec.name.size())
    called += fmt::format("… #{:016x}", engine::fnv1a(spec.name.data(), spec.name.size()));
  return fmt::format("subgroup({{{}}}, tag {}, name '{}', reduction order {}, {})", list, tag,
                     called, to_string(*spec.reduction_order), to_string(spec.urgency));
}

struct GroupReport {
  std::uint32_t proposed_id = 0;
  std::uint8_t has_device = 0;  // the group that it is made from is prepared for device memory
  std::string words;

  std::string encode() const {
    ByteWriter writer;
    writer.put(proposed_id);
    writer.put(has_device);
    writer.put_string(words);
    return writer.take();
  }
  static GroupReport decode(std::string_view bytes) {
    ByteReader reader(bytes);
    GroupReport report;
    if (!reader.get(report.proposed_id) || !reader.get(report.has_device) ||
        !reader.get_string(report.words))
      report.words = "something that cannot be read";
    return report;
  }
};

// One call of one rank, from its report to what all agree on.
class Assembly {
 public:
  Assembly(World& world, engine::Channel& channel, std::span<const int> ranks, std::uint32_t tag,
           const GroupSpec& spec, Nanoseconds timeout)
      : world_(world),
        channel_(channel),
        meetings_(channel.meetings()),
        self_(channel.options().rank),
        tag_(tag),
        name_(spec.name),
        timeout_(timeout),
        mine_{world.engine().next_channel(), channel.device() != nullptr,
              words_of(ranks, tag, spec)} {
    for (const int each : ranks)
      if (each != self_) others_.push_back(each);
    std::sort(others_.begin(), others_.end());
    meetings_.begin(others_, tag_);
  }
  ~Assembly() { meetings_.end(others_, tag_); }
  Assembly(const Assembly&) = delete;
  Assembly& operator=(const Assembly&) = delete;

  struct Agreement {
    std::uint32_t id = 0;
    bool has_device = false;  // on all ranks
  };
  Result<Agreement> agree() {
    say({MeetingWord::report, mine_.encode()});
    const Nanoseconds first = std::min(timeout_, kSlowMeeting);
    if (!hear_for(first, true) && timeout_ > first) {
      world_.engine().log().warn(Subsystem::watch, "{}", absence().message());
      hear_for(timeout_ - first, true);
    }
    if (differ_) hear_for(kHearTheRest, false);
    if (verdict().ok()) {
      consented_ = true;
      say({MeetingWord::consent, {}});
      // All have heard all by now, or are about to: who does not say so was stopped, or is gone.
      const auto over = [&] { return has_heard_all() || !refusal_.ok(); };
      drive_until(over, std::max<Nanoseconds>(timeout_, 1s));
    }
    if (const Status status = verdict(); !status.ok()) return give_up(status);
    Agreement agreed{mine_.proposed_id, mine_.has_device != 0};
    for (const auto& [rank, report] : reports_) {
      agreed.id = std::max(agreed.id, report.proposed_id);
      agreed.has_device = agreed.has_device && report.has_device != 0;
    }
    return agreed;
  }

 private:
  // The others give up too. Whoever tries again at once finds nothing of this call any more.
  Status give_up(const Status& status) {
    say({MeetingWord::refusal, engine::encode(status)});
    drive_until([&] { return refused_.size() == others_.size(); }, kHearTheRest);
    return status;
  }

  void say(const engine::MeetingNote& note) {
    for (const int each : others_) channel_.say_at_meeting(each, tag_, note);
  }

  void hear() {
    for (const int each : others_) {
      if (!reports_.contains(each))
        if (const auto report = meetings_.take(each, tag_, MeetingWord::report)) {
          const GroupReport heard = GroupReport::decode(*report);
          differ_ |= heard.words != mine_.words;
          reports_.emplace(each, heard);
        }
      if (!reports_.contains(each) || refused_.contains(each)) continue;
      if (meetings_.take(each, tag_, MeetingWord::consent)) consents_.insert(each);
      const auto told = meetings_.take(each, tag_, MeetingWord::refusal);
      if (!told) continue;
      refused_.insert(each);
      if (refusal_.ok()) refusal_ = engine::decode(*told);
    }
  }

  // False: there is more to wait for.
  bool hear_for(Nanoseconds time, bool until_they_differ) {
    const auto over = [&] {
      return has_heard_all() || (until_they_differ && differ_) || !refusal_.ok();
    };
    return drive_until(over, time);
  }

  bool drive_until(const std::function<bool()>& over, Nanoseconds time) {
    const auto heard = [&] {
      hear();
      return over() || !channel_.health().ok();
    };
    world_.engine().drive(channel_, heard, time);
    return heard();
  }

  Status verdict() const {
    if (const Status failure = channel_.health(); !failure.ok()) return failure;
    if (!refusal_.ok()) return {refusal_.code(), refusal_.message(), {self_, refusal_.peer(), 0}};
    if (differ_) return mismatch({});
    return has_heard_all() ? Status() : absence();
  }

  bool has_heard_all() const {
    return (consented_ ? consents_.size() : reports_.size()) == others_.size();
  }
  bool has_heard(int rank) const {
    return consented_ ? consents_.contains(rank) : reports_.contains(rank);
  }

  std::string where(int rank) const {
    return fmt::format("rank {} ({})", rank,
                       world_.engine().endpoint().whereabouts(
                           channel_.options().members[static_cast<std::size_t>(rank)]));
  }

  // `elsewhere`: what ranks that did not come call for instead.
  Status mismatch(const std::map<int, std::string>& elsewhere) const {
    std::map<int, std::string> called = elsewhere;
    called.emplace(self_, mine_.words);
    for (const auto& [rank, report] : reports_) called.emplace(rank, report.words);
    std::vector<engine::Said> said;
    for (const auto& [rank, words] : called) said.push_back({rank, words});
    const engine::Vote found = engine::vote(said, [&](int rank) { return where(rank); });
    return {Code::mismatch,
            fmt::format("{}: {}", kDifferentGroups, found.table),
            {self_, found.culprit, 0}};
  }

  // Those who did not come, in this call; perhaps they are in another one, and wait for this rank.
  Status absence() const {
    std::map<int, std::string> elsewhere;
    int missing = -1;
    for (const int each : others_) {
      if (has_heard(each)) continue;
      if (missing < 0) missing = each;
      if (const auto other = meetings_.other_reports(each); !other.empty())
        elsewhere.emplace(each, GroupReport::decode(other.front()).words);
    }
    if (!elsewhere.empty()) return mismatch(elsewhere);
    return {Code::timed_out,
            fmt::format("{} did not come to group '{}' within {:g} s; do all its ranks create it, "
                        "in the same order?",
                        where(missing), name_, in_seconds(timeout_)),
            {self_, missing, 0}};
  }

  World& world_;
  engine::Channel& channel_;
  engine::Meetings& meetings_;
  int self_;
  std::uint32_t tag_;
  const std::string& name_;
  Nanoseconds timeout_;
  GroupReport mine_;
  std::vector<int> others_;
  std::map<int, GroupReport> reports_;
  std::set<int> consents_, refused_;
  Status refusal_;  // another rank's verdict
  bool differ_ = false;
  bool consented_ = false;
};

}  // namespace

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
                                                   GroupSpec spec,
                                                   std::chrono::nanoseconds timeout) {
  if (Status status = check_process(); !status.ok()) return status;
  if (Status status = check_list(ranks); !status.ok()) return status;
  spec = completed(std::move(spec));
  if (spec.name.empty()) spec.name = fmt::format("{}/list{}", name(), tag);
  if (timeout.count() <= 0) timeout = setting_.config->timeout;
  const auto agreed = Assembly(*world_, *channel_, ranks, tag, spec, timeout).agree();
  if (!agreed.ok()) return agreed.status();
  return as_group(open(agreed->id, std::move(spec), {ranks.begin(), ranks.end()},
                       agreed->has_device ? Start::on_device : Start::plain));
}

}  // namespace tutti::group
