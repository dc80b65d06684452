// engine/attendance.hpp - who has come to a collective, and who keeps it waiting: what errors are made of.
#pragma once

#include <string>
#include <vector>

namespace tutti::engine {

class Attendance {
 public:
  virtual ~Attendance() = default;
  // Those whose arrival it waits for, sorted.
  virtual const std::vector<int>& company() const = 0;
  virtual bool has_arrived(int peer) const = 0;
  // Those that it cannot go on without; empty when that is nobody in particular.
  virtual std::vector<int> waiting_for() const = 0;
  // What is the matter with a peer that has arrived, in words that are followed by the collective.
  virtual std::string trouble(int /*peer*/) const { return "joined but did not finish"; }
};

}  // namespace tutti::engine
