// bundles - all_to_all between hosts: what the ranks of one host have for those of another goes as one
// message, instead of one for each pair of ranks.
//
//      host A                               host B
//      0 -a b-.                           .-> 3  a c
//              `-> 0 ==== a b c d ====> 3 <
//      1 -c d-'                           `-> 4  b d
//
// A host's ranks take turns at being its porters: the one for the host d after it is that of place d-1,
// and so is the one at the other end. The bytes between hosts stay the same.
#include "schedule/build/hosts.hpp"

namespace tutti::schedule::builders {
namespace {

class Bundles {
 public:
  Bundles(const Request& request, const Hosts& hosts, Draft& draft)
      : hosts_(hosts),
        draft_(draft),
        n_(static_cast<std::uint64_t>(request.size)),
        own_(static_cast<Chunk>(request.rank)) {
    std::size_t most = 0;
    for (const auto& list : hosts.members) {
      runs_.push_back(runs_of(list));
      most = std::max(most, runs_.back().size());
      first_ = std::max(first_, static_cast<Step>(list.size()));
    }
    most_runs_ = static_cast<Step>(most);
  }

  // To the host `way` after this one: gathered by a porter, who sends it on.
  void give(int way) {
    const int porter = porter_of(0, way);
    const Step step = base(way);
    const auto& there = at(runs_, way);
    if (own_ != static_cast<Chunk>(porter)) {
      for (Step run = 0; run < there.size(); ++run)
        draft_.send(step + run, porter, {Space::input, there[run].first, there[run].count});
      return;
    }
    Region bundle{Space::scratch, 0, 0};
    for (const int rank : sorted(hosts_.local()))
      for (Step run = 0; run < there.size(); ++run) {
        const Region part = draft_.scratch(extent(rank, there[run].first), there[run].count);
        if (rank == porter)
          draft_.copy(step, part, {Space::input, there[run].first, there[run].count});
        else
          draft_.recv(step + run, rank, part);
        if (bundle.count == 0) bundle.first = part.first;
        bundle.count += part.count;
      }
    draft_.send(step + most_runs_, porter_of(way, way), bundle);
  }

  // From the host `way` before this one: by its porter here, who hands it out.
  void take(int way) {
    const int porter = porter_of(0, way);
    const Step step = base(way) + most_runs_ + 1;
    const auto& from = at(runs_, -way);
    if (own_ != static_cast<Chunk>(porter)) {
      for (Step run = 0; run < from.size(); ++run) draft_.recv(step + run, porter, from[run]);
      return;
    }
    const std::vector<int> senders = sorted(at(hosts_.members, -way));
    const std::vector<int> here = sorted(hosts_.local());
    Region bundle{Space::scratch, 0, 0};
    for (const int sender : senders)
      for (const int rank : here) {
        const Region block = draft_.scratch(extent(sender, static_cast<Chunk>(rank)));
        if (bundle.count++ == 0) bundle.first = block.first;
      }
    draft_.recv(base(way) + most_runs_, porter_of(-way, way), bundle);
    const auto many = static_cast<Chunk>(here.size());
    for (Chunk i = 0; i < many; ++i) hand_out(bundle, senders, here[i], i, many, from, step);
  }

 private:
  static std::vector<int> sorted(std::vector<int> ranks) {
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }
  template <class List>
  const List& at(const std::vector<List>& by_host, int way) const {
    return by_host[static_cast<std::size_t>(wrap(hosts_.host + way, hosts_.count()))];
  }
  // Of the host `where` hosts on, for what goes `way` hosts far.
  int porter_of(int where, int way) const {
    const auto& list = at(hosts_.members, where);
    return list[static_cast<std::size_t>(way - 1) % list.size()];
  }
  std::uint64_t extent(int from, Chunk to) const {
    return static_cast<std::uint64_t>(from) * n_ + to;
  }
  Step base(int way) const { return first_ + static_cast<Step>(way - 1) * (2 * most_runs_ + 1); }

  // What `senders` have for `rank`, every `stride`th block of the bundle.
  void hand_out(const Region& bundle, const std::vector<int>& senders, int rank, Chunk first,
                Chunk stride, const std::vector<Region>& runs, Step step) {
    const bool is_own = static_cast<Chunk>(rank) == own_;
    Chunk sender = 0;
    for (Step run = 0; run < runs.size(); ++run) {
      Region column = runs[run];
      if (!is_own) column.space = Space::scratch;
      for (Chunk i = 0; i < runs[run].count; ++i, ++sender) {
        const Region block = piece(bundle, sender * stride + first);
        Region place = output(runs[run].first + i);
        if (!is_own) {
          place = draft_.scratch(extent(senders[sender], static_cast<Chunk>(rank)));
          if (i == 0) column.first = place.first;
        }
        draft_.copy(step, place, block);
      }
      if (!is_own) draft_.send(step + run, rank, column);
    }
  }

  const Hosts& hosts_;
  Draft& draft_;
  std::uint64_t n_;
  Chunk own_;
  std::vector<std::vector<Region>> runs_;  // each host's ranks
  Step most_runs_ = 0;
  Step first_ = 0;  // after what stays inside a host
};

// Among the ranks of this host, as pairwise does it.
void exchange_inside(Draft& draft, const Request& request, const Hosts& hosts) {
  const auto own = static_cast<Chunk>(request.rank);
  const int n = hosts.local_size();
  if (!request.in_place) draft.copy(0, output(own), input(own));
  std::vector<std::pair<Region, Region>> waiting;  // in place: blocks that cannot land yet
  for (int k = 1; k < n; ++k) {
    const int to = hosts.local()[static_cast<std::size_t>(wrap(hosts.place + k, n))];
    const int from = hosts.local()[static_cast<std::size_t>(wrap(hosts.place - k, n))];
    Region landing = output(static_cast<Chunk>(from));
    if (request.in_place) {
      landing = draft.scratch(
          static_cast<std::uint64_t>(from) * static_cast<std::uint64_t>(request.size) + own);
      waiting.emplace_back(output(static_cast<Chunk>(from)), landing);
    }
    draft.send(static_cast<Step>(k - 1), to, input(static_cast<Chunk>(to)));
    draft.recv(static_cast<Step>(k - 1), from, landing);
  }
  for (const auto& [place, block] : waiting) draft.copy(static_cast<Step>(n - 1), place, block);
}

}  // namespace

Program bundles_all_to_all(const Request& request, const Hosts& hosts) {
  Draft draft(request, Algorithm::hierarchical);
  Bundles bundles(request, hosts, draft);
  for (int way = 1; way < hosts.count(); ++way) bundles.give(way);
  exchange_inside(draft, request, hosts);
  for (int way = 1; way < hosts.count(); ++way) bundles.take(way);
  return draft.take();
}

}  // namespace tutti::schedule::builders
