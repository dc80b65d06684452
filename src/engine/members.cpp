#include "engine/members.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::engine {

Members::Members(ChannelOptions options, transport::Endpoint& endpoint)
    : options_(std::move(options)), endpoint_(endpoint) {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) others_.push_back(peer);
}

std::vector<int> Members::linked() const {
  std::vector<int> peers;
  for (const int peer : others_)
    if (endpoint_.is_linked(options_.members[static_cast<std::size_t>(peer)]))
      peers.push_back(peer);
  return peers;
}

int Members::group_rank(int world_rank) const {
  const auto& members = options_.members;
  const auto at = std::find(members.begin(), members.end(), world_rank);
  if (at != members.end()) return static_cast<int>(at - members.begin());
  return world_rank >= 0 && world_rank == options_.switch_rank ? size() : -1;
}

std::vector<int> Members::everyone() const {
  std::vector<int> all = options_.members;
  if (options_.switch_rank >= 0) all.push_back(options_.switch_rank);
  return all;
}

std::string Members::where(int peer) const {
  const std::string place = endpoint_.whereabouts(world_rank(peer));
  return peer == size() ? fmt::format("the switch ({})", place)
                        : fmt::format("rank {} ({})", peer, place);
}

std::string Members::retell(int peer, const Status& why) const {
  const std::string& text = why.message();
  const auto subject = text.rfind("rank ", 0) == 0 ? text.find(") ") : std::string::npos;
  return subject == std::string::npos ? fmt::format("{} is gone: {}", where(peer), text)
                                      : fmt::format("{} {}", where(peer), text.substr(subject + 2));
}

void Members::send(int peer, transport::MessageKind kind, const void* payload,
                   std::size_t bytes) const {
  (void)link_to(peer).send(transport::header_for(kind, channel(), 0), payload, bytes, 0);
}

}  // namespace tutti::engine
