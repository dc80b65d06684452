#include "support/transports/inproc_endpoints.hpp"

#include "transport/linked_endpoint.hpp"

namespace tutti::transport {

Result<std::vector<std::unique_ptr<Endpoint>>> make_inproc_endpoints(int ranks,
                                                                     const Config& config,
                                                                     Visibility* visibility) {
  const WindowShape shape = WindowShape::of(ranks, config.segment_bytes);
  std::vector<std::shared_ptr<Window>> windows;
  for (int rank = 0; rank < ranks; ++rank) {
    auto window = Window::create(rank, shape, false);
    if (!window.ok()) return window.status();
    windows.push_back(std::move(*window));
  }
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (int rank = 0; rank < ranks; ++rank) {
    LinkedEndpoint::Parts parts;
    parts.rank = rank;
    parts.size = ranks;
    parts.window = windows[static_cast<std::size_t>(rank)];
    parts.visibility = visibility;
    auto endpoint = LinkedEndpoint::create(std::move(parts));
    if (!endpoint.ok()) return endpoint.status();
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != rank)
        (*endpoint)->add_memory({.name = "inproc",
                                 .same_process = true,
                                 .peer = peer,
                                 .theirs = windows[static_cast<std::size_t>(peer)],
                                 .lane_of_peer = peer,
                                 .lane_of_self = rank});
    endpoints.push_back(std::move(*endpoint));
  }
  return endpoints;
}

}  // namespace tutti::transport
