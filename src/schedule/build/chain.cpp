// chain - the fold of all ranks so far goes from host to host: x0 ∘ x1 ∘ … from the left, reduced inside
// each host on the way, and every link between two hosts carries the array once in each direction.
//
//      station 0          station 1          station 2       A station is a run of neighbouring ranks
//      0  1               2  3               4  5            on one host. Of each slice one rank of a
//       \ |                \ |                \ |            station, its porter, folds the station's
//    a:  0 --x0x1--------> 2 --[x0x1]x2x3---> 4 = a          inputs onto what came before (slice a: 0,
//    b:  1 --------------> 3 ---------------> 5 = b          2, 4; slice b: 1, 3, 5) and passes it on.
//
// The last station has the results. all_reduce passes them round the others, beginning at another station
// for each strand, so that no host's way out carries much more than the rest; every porter hands on what
// it gets to its station. reduce and reduce_scatter send them to where they belong.
//
// Segments of a slice follow each other, so all links work at once. Exact for types that partial folds
// are not rounded in. Ranks may sit on hosts in any order; with as many runs as ranks the chain goes from
// rank to rank.
#include <algorithm>

#include "schedule/build/hosts.hpp"

namespace tutti::schedule::builders {
namespace {

// Ways on which results go round: more do not even out the load by more than a tenth.
constexpr int kMostStrands = 4;

struct Station {
  int first = 0, count = 0;

  bool has(int rank) const { return rank >= first && rank < first + count; }
  int end() const { return first + count; }
};

// The stations in rank order, seen from one rank.
struct Stations {
  std::vector<Station> all;
  int rank, here = 0;  // this rank's station

  explicit Stations(const Request& request) : rank(request.rank) {
    for (int r = 0; r < request.size; ++r) {
      const auto at = static_cast<std::size_t>(r);
      if (r == 0 || request.host_of[at] != request.host_of[at - 1]) all.push_back({r, 0});
      ++all.back().count;
      if (r == request.rank) here = count() - 1;
    }
  }
  int count() const { return static_cast<int>(all.size()); }
  int last() const { return count() - 1; }
  const Station& at(int station) const { return all[static_cast<std::size_t>(station)]; }
  const Station& own() const { return at(here); }
  // Who deals with that slice there.
  int porter(int station, Chunk slice) const {
    return at(station).first + static_cast<int>(slice) % at(station).count;
  }
  bool is_porter(Chunk slice) const { return porter(here, slice) == rank; }
  int widest() const {
    return std::max_element(all.begin(), all.end(),
                            [](const Station& a, const Station& b) { return a.count < b.count; })
        ->count;
  }
  // Calls visit(rank) for the others of this station.
  template <class Visit>
  void each_neighbour(Visit visit) const {
    for (int r = own().first; r < own().end(); ++r)
      if (r != rank) visit(r);
  }
};

// One chunk's way along the chain, up to its result at the last station.
struct Passage {
  Region mine;    // of this rank's input
  Chunk slice;    // whose porters deal with it
  Chunk number;   // of the chunk, for steps that are unlike any other's
  Region result;  // where the last porter leaves it
  std::uint64_t extent;
};

// What this rank does for one chunk: gives it to its porter, or folds it onto what came and passes it on.
void pass_on(Draft& draft, const Stations& stations, const Passage& passage) {
  const int here = stations.here;
  if (!stations.is_porter(passage.slice))
    return draft.send(passage.number, stations.porter(here, passage.slice), passage.mine);
  std::vector<Source> sources;
  if (here > 0) {
    const Region so_far = draft.scratch(passage.extent);
    draft.recv(passage.number + static_cast<Step>(here), stations.porter(here - 1, passage.slice),
               so_far);
    sources.push_back(here == 1 && stations.at(0).count == 1 ? raw(so_far) : partial(so_far));
  }
  for (int r = stations.own().first; r < stations.own().end(); ++r) {
    if (r == stations.rank) {
      sources.push_back(raw(passage.mine));
      continue;
    }
    const Region inbox = draft.scratch(passage.extent);
    draft.recv(passage.number, r, inbox);
    sources.push_back(raw(inbox));
  }
  const Step next = passage.number + static_cast<Step>(here) + 1;
  if (here == stations.last()) return draft.reduce(next, passage.result, std::move(sources), true);
  Region sum = passage.mine;  // a rank alone at the beginning has folded nothing
  if (sources.size() > 1) {
    sum = draft.scratch(passage.extent);
    draft.reduce(next, sum, std::move(sources), false);
  }
  draft.send(next, stations.porter(here + 1, passage.slice), sum);
}

// The first step that no passage of so many chunks uses.
Step after_passages(const Stations& stations, Chunk chunks) {
  return chunks + static_cast<Step>(stations.count());
}

// A result's way round: the last station, then the others, from station `strand` on.
struct RoundTrip {
  const Stations& stations;
  int strand;

  // The station at place p of the way, and the place of one.
  int station(int place) const {
    return place == 0 ? stations.last() : (strand + place - 1) % stations.last();
  }
  int place(int station) const {
    return station == stations.last() ? 0 : wrap(station - strand, stations.last()) + 1;
  }
};

// What this rank does with one result: porters pass it on, to the next station and to their neighbours.
// Takes as many steps as there are stations, and one.
void hand_round(Draft& draft, const Stations& stations, const RoundTrip& trip, Chunk slice,
                Region result, Step base) {
  const int place = trip.place(stations.here);
  const Step step = base + static_cast<Step>(place);
  if (!stations.is_porter(slice))
    return draft.recv(step + 1, stations.porter(stations.here, slice), result);
  if (place > 0) draft.recv(step, stations.porter(trip.station(place - 1), slice), result);
  if (place < stations.last())
    draft.send(step + 1, stations.porter(trip.station(place + 1), slice), result);
  stations.each_neighbour([&](int rank) { draft.send(step + 1, rank, result); });
}

Program chain_all_reduce(const Request& request) {
  const Stations stations(request);
  const auto strands = static_cast<Chunk>(std::min(stations.last(), kMostStrands));
  const Chunk chunks = static_cast<Chunk>(stations.widest()) * strands;
  Draft draft(request, Algorithm::chain, chunks);
  for (Chunk c = 0; c < chunks; ++c)
    pass_on(draft, stations, {input(c), c / strands, c, output(c), c});
  for (Chunk c = 0; c < chunks; ++c) {
    const int begin = static_cast<int>(c % strands) * stations.last() / static_cast<int>(strands);
    hand_round(draft, stations, {stations, begin}, c / strands, output(c),
               after_passages(stations, chunks) + c * static_cast<Step>(stations.count() + 1));
  }
  return draft.take();
}

// Where the last porter leaves a result that belongs to `owner`, and how it gets there.
Region place_of_result(Draft& draft, const Stations& stations, Chunk slice, int owner,
                       Region output, std::uint64_t extent) {
  const bool folds_it = stations.here == stations.last() && stations.is_porter(slice);
  return folds_it && owner != stations.rank ? draft.scratch(extent) : output;
}
void bring_home(Draft& draft, const Stations& stations, Chunk slice, int owner, Region result,
                Step step) {
  const int porter = stations.porter(stations.last(), slice);
  if (porter == owner) return;
  if (stations.rank == porter) draft.send(step, owner, result);
  if (stations.rank == owner) draft.recv(step, porter, result);
}

Program chain_reduce(const Request& request) {
  const Stations stations(request);
  const auto chunks = static_cast<Chunk>(stations.widest());
  Draft draft(request, Algorithm::chain, chunks);
  for (Chunk c = 0; c < chunks; ++c) {
    const Region result = place_of_result(draft, stations, c, request.root, output(c), c);
    pass_on(draft, stations, {input(c), c, c, result, c});
    bring_home(draft, stations, c, request.root, result, after_passages(stations, chunks) + c);
  }
  return draft.take();
}

// Parts are slices here, and each goes home on its own.
Program chain_reduce_scatter(const Request& request) {
  const Stations stations(request);
  const auto parts = static_cast<Chunk>(request.size);
  Draft draft(request, Algorithm::chain);
  for (Chunk part = 0; part < parts; ++part) {
    const auto owner = static_cast<int>(part);
    const Region result = place_of_result(draft, stations, part, owner, output(0), part);
    pass_on(draft, stations, {input(part), part, part, result, part});
    bring_home(draft, stations, part, owner, result, after_passages(stations, parts) + part);
  }
  return draft.take();
}

}  // namespace

std::span<const Entry> chain_rows() {
  static constexpr Entry kRows[] = {
      {Collective::reduce, Algorithm::chain, chain_reduce, kOnward, kEven, spans_hosts},
      {Collective::all_reduce, Algorithm::chain, chain_all_reduce, kOnward, kEven, spans_hosts},
      {Collective::reduce_scatter, Algorithm::chain, chain_reduce_scatter, kOnward, kUneven,
       spans_hosts},
  };
  return kRows;
}

}  // namespace tutti::schedule::builders
