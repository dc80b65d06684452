// engine/launched.hpp - a group's collectives that are on the device: launched, and not over yet.
//
// They end in the order in which they were launched.
//
// Thread-safety  none: the baton's holder.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/attendance.hpp"
#include "engine/device_side.hpp"
#include "engine/members.hpp"
#include "engine/operation.hpp"

namespace tutti::engine {

// Who has come to one of them, launched or not.
class DeviceAttendance final : public Attendance {
 public:
  DeviceAttendance(const Members& members, const DeviceSide& side, std::uint64_t ticket)
      : members_(members), side_(side), ticket_(ticket) {}
  const std::vector<int>& company() const override { return members_.others(); }
  bool has_arrived(int peer) const override {
    return !side_.has_board(peer) || side_.has_called(peer, ticket_);
  }
  std::vector<int> waiting_for() const override;
  std::string trouble(int peer) const override;

 private:
  const Members& members_;
  const DeviceSide& side_;
  std::uint64_t ticket_;
};

class Launched {
 public:
  void use(std::shared_ptr<DeviceSide> side) { side_ = std::move(side); }
  const std::shared_ptr<DeviceSide>& side() const { return side_; }

  bool empty() const { return operations_.empty(); }
  std::size_t size() const { return operations_.size(); }
  void add(Operation operation) { operations_.push_back(std::move(operation)); }
  const Operation& oldest() const { return operations_.front(); }
  // The next one that is over. False: there is none, or the group was aborted.
  bool take_done(Operation& operation);
  // The next one whatever it is at: the group has failed.
  bool take_any(Operation& operation);
  // What the device itself says of the oldest.
  Status trouble() const;

 private:
  std::shared_ptr<DeviceSide> side_;
  std::deque<Operation> operations_;
};

}  // namespace tutti::engine
