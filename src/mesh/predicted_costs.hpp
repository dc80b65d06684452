// mesh/predicted_costs.hpp - what steps of a redistribution cost on a mesh, by what its group predicts.
//
// Groups along the same axes may lie differently on hosts: the slowest of them counts. Every rank comes to
// the same figures, without asking another.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "mesh/arrangement.hpp"
#include "tutti/group.hpp"
#include "tutti/redistribution.hpp"

namespace tutti::mesh {

class PredictedCosts {
 public:
  PredictedCosts(std::shared_ptr<Group> group, MeshAxes axes, const std::vector<int>& rank_at);

  double seconds(const StepTraffic& traffic);
  const std::vector<int>& hosts() const { return hosts_; }  // by position

 private:
  struct Seats {
    std::vector<int> ranks;
    std::vector<int> hosts;  // of each, by its number in the group
  };
  // One group along these axes for each way to lie on hosts.
  const std::vector<Seats>& seats_along(const std::vector<int>& axes);
  double price(Collective collective, double bytes, const std::vector<int>& ranks);
  double at_power(Collective collective, int power, const std::vector<int>& ranks);
  double transfer(const StepTraffic& traffic, const Seats& seats);

  std::shared_ptr<Group> group_;
  MeshAxes axes_;
  std::vector<int> rank_at_;
  std::vector<int> hosts_;
  std::map<std::vector<int>, std::vector<Seats>> seats_;  // by axes
  std::map<std::tuple<Collective, int, std::vector<int>>, double> known_;
};

}  // namespace tutti::mesh
