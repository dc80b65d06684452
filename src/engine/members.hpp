// engine/members.hpp - the ranks of a group: who they are, and how to reach them.
//
// Thread-safety  const once the group is set up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/endpoint.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::engine {

struct ChannelOptions {
  std::uint32_t id = 0;
  std::string name;
  std::vector<int> members;  // world rank of each group rank
  int rank = 0;              // of this process, in the group
  std::vector<int> host_of;  // host of each group rank
  std::vector<int> walk;     // schedule::Request::walk
  int switch_rank = -1;      // of the switch that folds for it, in the world; -1: there is none
  Urgency urgency = Urgency::normal;
};

// Of all groups of a world: those that a split makes at once have one id, and no rank in common.
inline std::uint64_t key_of(const ChannelOptions& group) {
  return static_cast<std::uint64_t>(group.id) << 32 |
         static_cast<std::uint32_t>(group.members.front());
}

class Members {
 public:
  Members(ChannelOptions options, transport::Endpoint& endpoint);

  const ChannelOptions& options() const { return options_; }
  // While the group is being set up.
  void set_walk(std::vector<int> walk) { options_.walk = std::move(walk); }
  int rank() const { return options_.rank; }
  int size() const { return static_cast<int>(options_.members.size()); }
  std::uint32_t channel() const { return options_.id; }
  const std::string& name() const { return options_.name; }
  // The world ranks of all whose links this group uses: the members, and the switch.
  std::vector<int> everyone() const;
  // Everybody but this rank, in order.
  const std::vector<int>& others() const { return others_; }

  // `peer` may be the switch, as everywhere below: its number is size().
  transport::Link& link_to(int peer) const { return *endpoint_.link(world_rank(peer)); }
  int world_rank(int peer) const {
    return peer == size() ? options_.switch_rank : options_.members[static_cast<std::size_t>(peer)];
  }
  // Links are made at their first use: not every pair talks to each other.
  bool is_lazy() const { return endpoint_.is_lazy(); }
  // Others to whom there is a link now.
  std::vector<int> linked() const;
  // -1: not a member, nor the switch.
  int group_rank(int world_rank) const;
  // "rank 3 (host b, pid 4182)"
  std::string where(int peer) const;
  // What a link says of a rank of the world ("rank 7 (host b, pid 4182) is silent") holds for the
  // group too, which has a number of its own for that rank.
  std::string retell(int peer, const Status& why) const;
  // A control message; what a link does not take is lost, as if the peer were gone.
  void send(int peer, transport::MessageKind kind, const void* payload, std::size_t bytes) const;

 private:
  ChannelOptions options_;
  transport::Endpoint& endpoint_;
  std::vector<int> others_;
};

}  // namespace tutti::engine
