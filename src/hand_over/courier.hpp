// hand_over/courier.hpp - brings versions to whoever is there, in a thread of its own.
//
//   post ─▶ round: everybody who has come ─▶ announcement, buckets, end ─▶ all say that it is whole
//              ▲                                       │ somebody is lost
//              └──── those who are left, newcomers ◀───┘
//
// In a round of several receivers in CPU memory buckets are broadcast, so that the trainer sends each about once. A
// single receiver, one that has just come, and all on a GPU, where each copies for itself, get messages.
//
// Thread-safety  any thread.
// Failure        of a receiver: it is lost, and named; the version goes to the others in a new round.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "hand_over/door.hpp"
#include "hand_over/flat_copy.hpp"
#include "hand_over/weight_layout.hpp"

namespace tutti::hand_over {

// A version that lies ready.
struct Parcel {
  Announcement announcement;
  std::string layout;
  std::vector<Buffer> pieces;
  Gpu gpu;                                // null: in CPU memory
  std::vector<cuda::EventHandle> events;  // when each piece is there; one: when all are
  cuda::DeviceTraffic::Duty duty;         // until it is with everybody
};

class Courier {
 public:
  // Receivers of `numbers` have been told where the door is: waits until they have come.
  static Result<std::unique_ptr<Courier>> create(std::unique_ptr<Entrance> door, std::string name,
                                                 Config config, std::set<int> numbers);
  ~Courier();  // tells the receivers that this was all

  // Begins to bring it; what it points to stays as it is until withdraw() returns.
  void post(Parcel parcel);
  // Blocks until it is with every living receiver.
  void wait();
  // The same, and then nobody gets it any more.
  void withdraw();
  std::vector<std::pair<int, Status>> lost() const;
  std::vector<train::AttachedReceiver> receivers() const;
  const std::string& addresses() const { return door_->addresses(); }
  // Device memory that is about to be freed.
  void forget(const void* allocation);

 private:
  struct Member {
    Word word;
    std::uint64_t layout_hash = 0;  // of the layout that it was told last; 0: none
    bool has_left_round = false;    // it has come to the door again, or said goodbye
  };
  struct Delivery;

  Courier(std::unique_ptr<Entrance> door, std::string name, Config config)
      : door_(std::move(door)), name_(std::move(name)), config_(std::move(config)) {}
  Status wait_for(const std::set<int>& numbers);
  void rest(std::unique_lock<std::mutex>& lock);
  void run();
  void deliver();
  Status deliver_to(const std::vector<int>& ranks);
  Status begin(Delivery& delivery, const std::vector<int>& ranks, bool together);
  std::vector<int> behind() const;
  // Words at the door: who waits there for a place.
  void hear();
  void look_at_door();
  void renew_round(Status why);
  void give_up(const Status& why);
  void end_round(const Status& why);
  void await_return(const Status& why);
  Status begin_round();
  void announce_end(std::uint64_t flag);
  void lose(const Member& member, const Status& why);
  void show_members();

  const std::unique_ptr<Entrance> door_;
  const std::string name_;
  const Config config_;

  // Of the courier's thread alone.
  std::vector<Member> members_;  // of the round: rank 1, 2, …
  std::vector<Member> waiting_;  // at the door
  std::vector<Member> missed_;   // of the round before: they are to come back
  std::int64_t rounds_ = 0;
  Status trouble_;  // why the round is to end
  cuda::Stream stream_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Group> round_;  // null: nobody is there
  std::optional<Parcel> posted_;
  std::optional<Parcel> parcel_;  // what was posted last; the courier's while it is busy
  bool is_new_ = false;           // it was posted and not looked at yet
  bool busy_ = false;
  bool stopping_ = false;
  std::vector<std::pair<int, Status>> lost_;
  std::vector<train::AttachedReceiver> receivers_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace tutti::hand_over
