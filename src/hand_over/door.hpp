// hand_over/door.hpp - where a trainer and its receivers find each other, for as long as weights are handed over.
//
// The trainer serves a store. A receiver says there that it is ready, and gets a place in a *round*: a group of
// the trainer and of those who are there, on links of its own. When somebody comes, is lost or leaves, the
// round ends, and whoever is left says again that it is ready. docs/formats/hand_over.md has the keys.
//
// Thread-safety  none.
// Failure        Code::io from a visitor: the trainer is gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/config.hpp"
#include "tutti/group.hpp"
#include "tutti/store.hpp"

namespace tutti::hand_over {

// What a receiver says at the door.
struct Word {
  std::int64_t ticket = 0;
  bool leaves = false;  // it does not want to be waited for
  int number = 0;       // of the receiver: its rank in the members' group; of another job: below 0
  std::uint64_t version = 0;  // the newest that it has whole; 0: none
  bool on_host = true;        // it has its weights in CPU memory
  std::string where;          // for people
};

inline constexpr int kTrainer = 0;  // of a round

struct Place {
  std::int64_t round = 0;
  int rank = -1;
  int size = 0;
};

// Joins the round that a place is in; blocks, at most config.join_timeout.
Result<std::shared_ptr<Group>> join_round(const std::shared_ptr<Store>& store, const Place& place,
                                          const std::string& name, const Config& config);

// The trainer's side.
class Entrance {
 public:
  // `address`: "host:port"; port 0: any free one. Both empty: for receivers that are told by the trainer.
  static Result<std::unique_ptr<Entrance>> open(std::string address, std::string secret,
                                                const Config& config, bool one_host);
  // What visitors take: addresses, the likeliest first, divided by commas.
  const std::string& addresses() const { return addresses_; }
  const std::string& secret() const { return secret_; }
  const std::shared_ptr<Store>& store() const { return store_; }

  // What was said since the last call. Does not wait.
  Result<std::vector<Word>> hear();
  // Calls a receiver that is ready. Whether it comes: then it takes the place that it is given.
  Result<bool> is_coming(std::int64_t ticket);
  Status give_place(std::int64_t ticket, const Place& place);

 private:
  Entrance() = default;
  std::string addresses_, secret_;
  std::unique_ptr<StoreServer> server_;
  std::shared_ptr<Store> store_;
  std::int64_t heard_ = 0;
};

// A receiver's side.
class Visitor {
 public:
  // absent number: of another job, and gets one.
  static Result<std::unique_ptr<Visitor>> come(const std::string& addresses,
                                               const std::string& secret,
                                               std::chrono::milliseconds timeout,
                                               std::optional<int> number);
  int number() const { return number_; }
  const std::shared_ptr<Store>& store() const { return store_; }
  // The ticket that a place is given to.
  Result<std::int64_t> say_ready(std::uint64_t version, bool on_host);
  // timed_out: not yet.
  Result<Place> place_for(std::int64_t ticket, std::chrono::milliseconds timeout);
  // It does not come when it is called.
  void decline(std::int64_t ticket);
  void say_goodbye();

 private:
  Result<std::int64_t> say(const Word& word);
  int number_ = 0;
  std::string where_;
  std::shared_ptr<Store> store_;
};

}  // namespace tutti::hand_over
