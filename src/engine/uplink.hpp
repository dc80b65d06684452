// engine/uplink.hpp - a group's way to the switch that folds for it (`tutti switch`).
//
// The switch is no member: in schedules it is rank n of n, in messages the peer of that number. It hears of a
// group with the group's first call by it. Once it is lost to one member it is given up by all of them, in
// the same collective, for good (switched_run.hpp).
//
// Thread-safety  none: the baton's holder.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/launch.hpp"
#include "engine/members.hpp"

namespace tutti::engine {

class Uplink {
 public:
  // `release`: makes the links let go of what they still send to the switch for this group.
  Uplink(const Members& members, std::function<void()> release)
      : members_(members), release_(std::move(release)) {}

  // The switch's number in the group.
  int peer() const { return members_.size(); }
  // Tells the switch of a collective, and of the group before that.
  void announce(const Launch& launch, std::uint64_t sequence);
  // Whether it has begun that one, too.
  bool has_come(std::uint64_t sequence) const { return come_ == sequence; }
  void note_come(std::uint64_t sequence) { come_ = sequence; }

  // It is gone, or does not serve this group any more. The first reason counts.
  void lose(const Status& why) {
    if (lost_.ok()) lost_ = why;
  }
  const Status& loss() const { return lost_; }
  // Nobody uses it any more, from this collective on.
  void give_up(const Status& why) {
    lose(why);
    given_up_ = news_ = true;
    release_();
  }
  bool is_given_up() const { return given_up_; }
  // True once, after that: people should know.
  bool take_news() { return std::exchange(news_, false); }

 private:
  const Members& members_;
  std::function<void()> release_;
  bool introduced_ = false;
  std::uint64_t come_ = 0;
  Status lost_;
  bool given_up_ = false;
  bool news_ = false;
};

// What a group says of itself to its switch, in a `meet`: in which order it folds, and its members by their
// ranks in the world. Control messages have room for so many.
inline constexpr int kMostSwitchedRanks = 1000;
std::string encode_introduction(ReductionOrder order, const std::vector<int>& members);
struct Introduction {
  ReductionOrder order = ReductionOrder::any;
  std::vector<int> members;
};
std::optional<Introduction> decode_introduction(std::string_view bytes);

}  // namespace tutti::engine
