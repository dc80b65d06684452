// plan/in_network.hpp - all_reduce by switches that fold, as SHARP does it: one way up the tree of
// switches and one way down, as programs like any other. Switches are ranks beyond the group's.
//
//               spine                 Inside a host each rank owns a slice: others send it theirs
//              /     \                (step 0), it folds and sends the sum up. Leaves fold what
//          leaf       leaf            their hosts' owners send, the spine folds the leaves' sums;
//         /    \     /    \           results come down the same way and are spread inside hosts.
//      host   host host   host
#pragma once

#include <vector>

#include "plan/cluster.hpp"
#include "schedule/schedule.hpp"

namespace tutti::plan {

class SwitchTree {
 public:
  SwitchTree(const Cluster& cluster, const std::vector<int>& seats);

  int switches() const { return leaves() + 1; }
  // Of a rank, or (from `ranks` on) of a leaf, or of the spine, which is last.
  schedule::Program program(int rank) const;

 private:
  int ranks() const { return static_cast<int>(host_.size()); }
  int leaves() const { return static_cast<int>(hosts_of_leaf_.size()); }
  int leaf_rank(int leaf) const { return ranks() + leaf; }
  int spine_rank() const { return ranks() + leaves(); }
  // The rank of a host that owns slice `slice`.
  int owner(int host, int slice) const;
  schedule::Program empty(int rank) const;
  schedule::Program of_rank(int rank) const;
  schedule::Program of_leaf(int leaf) const;
  schedule::Program of_spine() const;

  std::vector<int> host_;  // of each rank, dense
  std::vector<std::vector<int>> ranks_of_host_;
  std::vector<std::vector<int>> hosts_of_leaf_;
  std::vector<int> leaf_of_host_;
  int slices_ = 1;
};

}  // namespace tutti::plan
