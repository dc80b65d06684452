// relay - broadcast and reduce between hosts: the array goes from host to host in pieces, so that every
// link between two hosts carries it once, and all of them work at once.
//
//      host A (root's)   host B        host C         Of each piece one rank of a host, its porter, passes
//      0 = root          2             4              it on to the next host's and hands it out inside its
//      |  `--------.     |             |              host (|): as many ways out of a host are used as it
//      1 --a--b--> 1 ==> 3 ==========> 5 ...          has ranks. Pieces a, c, … go by 0, 2, 4; b, d, … by
//                                                     1, 3, 5.
// reduce is that backwards: porters fold what their host has onto what came along, and the root's host
// ends it.
#include "schedule/build/hosts.hpp"

namespace tutti::schedule::builders {
namespace {

// A chain of H hosts takes pieces + H - 2 steps of 1/pieces: at six a link, at most a sixth more than the
// wire needs, and never so many that messages are mostly overhead.
constexpr Chunk kPiecesPerLink = 6, kFewestPieces = 8, kMostPieces = 128;

struct Relay {
  const Hosts& hosts;
  int root;
  int here =
      wrap(hosts.host - hosts.root_host, hosts.count());  // hosts between the root's and this one

  Chunk pieces() const {
    return std::clamp(kPiecesPerLink * static_cast<Chunk>(hosts.count() - 1), kFewestPieces,
                      kMostPieces);
  }
  bool is_last() const { return here == hosts.count() - 1; }
  // Who passes a piece on, `way` hosts from this one.
  int porter(Chunk piece, int way = 0) const {
    const auto& list =
        hosts.members[static_cast<std::size_t>(wrap(hosts.host + way, hosts.count()))];
    return list[piece % list.size()];
  }
  // Steps of a piece: between the root and its porter there, from host to host, inside a host.
  Step at_root(Chunk piece) const { return piece; }
  Step hop(Chunk piece, int from) const { return pieces() + piece + static_cast<Step>(from); }
  Step inside(Chunk piece) const {
    return 2 * pieces() + static_cast<Step>(hosts.count() + here) + piece;
  }
};

}  // namespace

Program relay_broadcast(const Request& request, const Hosts& hosts) {
  const Relay relay{hosts, request.root};
  Draft draft(request, Algorithm::hierarchical, relay.pieces());
  for (Chunk c = 0; c < relay.pieces(); ++c) {
    const int porter = relay.porter(c);
    const bool starts = relay.here == 0;
    if (starts && request.rank == request.root && porter != request.root)
      draft.send(relay.at_root(c), porter, output(c));
    if (request.rank != porter) {
      if (request.rank != request.root) draft.recv(relay.inside(c), porter, output(c));
      continue;
    }
    if (!starts)
      draft.recv(relay.hop(c, relay.here - 1), relay.porter(c, -1), output(c));
    else if (porter != request.root)
      draft.recv(relay.at_root(c), request.root, output(c));
    if (!relay.is_last()) draft.send(relay.hop(c, relay.here), relay.porter(c, 1), output(c));
    for (const int rank : hosts.local())
      if (rank != porter && rank != request.root) draft.send(relay.inside(c), rank, output(c));
  }
  return draft.take();
}

Program relay_reduce(const Request& request, const Hosts& hosts) {
  const Relay relay{hosts, request.root};
  const bool at_root = request.rank == request.root;
  Draft draft(request, Algorithm::hierarchical, relay.pieces());
  for (Chunk c = 0; c < relay.pieces(); ++c) {
    const int porter = relay.porter(c);
    const bool ends = relay.here == 0;
    if (request.rank != porter) {
      draft.send(relay.inside(c), porter, input(c));
      if (at_root) draft.recv(relay.at_root(c), porter, output(c));
      continue;
    }
    std::vector<Source> sources = {raw(input(c))};
    for (const int rank : hosts.local()) {
      if (rank == porter) continue;
      const Region inbox = draft.scratch(c);
      draft.recv(relay.inside(c), rank, inbox);
      sources.push_back(raw(inbox));
    }
    if (!relay.is_last()) {
      const Region along = draft.scratch(c);
      draft.recv(relay.hop(c, relay.here), relay.porter(c, 1), along);
      // What a rank alone on the last host begins with is nobody's fold.
      const auto next = static_cast<std::size_t>(wrap(hosts.host + 1, hosts.count()));
      const bool is_raw = relay.here + 2 == hosts.count() && hosts.members[next].size() == 1;
      sources.push_back(is_raw ? raw(along) : partial(along));
    }
    Region sum = input(c);
    if (ends || sources.size() > 1) {
      sum = at_root ? output(c) : draft.scratch(c);
      draft.reduce(relay.hop(c, relay.here), sum, std::move(sources), ends);
    }
    if (!ends)
      draft.send(relay.hop(c, relay.here - 1), relay.porter(c, -1), sum);
    else if (!at_root)
      draft.send(relay.at_root(c), request.root, sum);
  }
  return draft.take();
}

}  // namespace tutti::schedule::builders
