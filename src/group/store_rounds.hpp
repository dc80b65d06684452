// group/store_rounds.hpp - ranks that share nothing but a store tell each other what they must know.
//
// In a round everybody says something and hears what all have said: a few hear each other himself. Where
// there are more than kBranches and one, the words go up a tree through the store, kBranches of which meet in
// each rank, and come down as one value, which one rank of each host asks for (host_store.hpp): the store has
// two operations for each rank, not one for each pair, and tells all to kBranches leaders of hosts, who tell others.
//
//   rank 17 ─┐
//      …     ├─▶ "…/below/1" ─▶ rank 1 ─┐
//   rank 32 ─┘                  rank 2  ├─▶ "…/below/1", "…/below/2" … ─▶ rank 0 ─▶ "…/all" ─▶ a rank of each host ─▶ everybody
//                                  …    ┘
//
// Waits end with the deadline, when somebody has given up, or when a rank that did not come has ended.
// Thread-safety  none.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "group/host_store.hpp"
#include "group/launcher_board.hpp"
#include "transport/endpoint.hpp"
#include "tutti/group.hpp"

namespace tutti::group {

class AllSaid;

// Where ranks meet in the store. Groups of one name are told apart by how often a rank has joined one.
Result<std::string> join_round(Store& store, const std::string& name, int rank);
std::string said_key(const std::string& prefix, const std::string& key, int rank);
inline std::string switch_key(const std::string& prefix) { return prefix + "/switch"; }

class StoreRounds {
 public:
  // All outlive it. `board`, where there is one, says which ranks have ended.
  StoreRounds(Store& store, const GroupOptions& options, Nanoseconds timeout,
              const LauncherBoard* board, const Clock& clock = steady_clock());

  // Groups of the same name on one store are told apart by how often this rank has joined one.
  Status join();
  // Whether there are so many ranks that words go by the tree.
  bool is_by_tree() const { return size_ > kBranches + 1; }
  // From here on this rank hears what all hear alike from its host's leader, or is that.
  void fan_out(HostStore host);
  // When all have said something since then: leaders of many hosts ask each other.
  void climb(const HostDoors& doors);
  // Nothing more will be heard.
  void leave_host() { host_.leave(kLeavePatience, clock_); }
  // What rank 0 says, to everyone.
  Result<std::string> from_rank_0(const std::string& key, const std::string& value);
  // Everybody says a value and hears everybody's. `check` judges what is known of them: whoever finds fault
  // passes on what it has at once, for all to see.
  using Check = std::function<Status(const std::vector<std::string>&)>;
  Result<std::vector<std::string>> exchange(const std::string& key, const std::string& value,
                                            const Check& check = {});

  // Whether the switch of the job says that it is here; waits for that. It joins as the rank behind the last.
  bool has_switch(std::chrono::milliseconds patience);
  Result<std::string> address_of_switch();

  // Tells those who still wait why this rank does not come any more. The first to do so is heard.
  void give_up(const Status& why);
  // From here on the links tell, too, who is gone.
  void watch_links(transport::Endpoint& endpoint) { endpoint_ = &endpoint; }
  // Whether there is any use in waiting for everybody's `key`.
  Status look_around(const std::string& key);
  std::chrono::milliseconds left() const { return left(deadline_); }

 private:
  std::string said_by(int rank, const std::string& key) const;
  Result<std::string> hear(const std::string& name, std::chrono::milliseconds patience,
                           const std::string& key);
  Status look_for_the_ended(const std::string& key);
  std::chrono::milliseconds left(Nanoseconds until) const;
  Result<std::string> hear_from(Store& store, const std::string& name,
                                std::chrono::milliseconds patience, const std::string& key);
  Result<std::string> hear_alike(const std::string& name, std::chrono::milliseconds patience,
                                 const std::string& key);
  Status tell_all(const std::string& name, const std::string& value);
  std::string key_of_door(std::int64_t host) const;
  bool is_leaf(int rank) const { return rank * kBranches + 1 >= size_; }
  std::string handed_on_by(int rank, const std::string& key) const;
  Result<AllSaid> gather(const std::string& key, const std::string& value, const Check& check,
                         Nanoseconds until);
  Result<std::vector<std::string>> hear_each(const std::string& key, const Check& check);
  Status nobody(const std::vector<int>& absent) const;

  static constexpr std::chrono::milliseconds kLeavePatience{2000};

  Store& store_;
  HostStore host_;
  std::int64_t host_number_ = -1;  // of the host that this rank leads, as they came
  const LauncherBoard* board_;     // where its ranks are the group's
  const Clock& clock_;
  int rank_;
  int size_;
  std::string name_;
  std::string prefix_;
  Nanoseconds deadline_;
  Nanoseconds timeout_;
  transport::Endpoint* endpoint_ = nullptr;
};

}  // namespace tutti::group
