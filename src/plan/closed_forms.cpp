#include "plan/closed_forms.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "topology/topology.hpp"
#include "tutti/shape.hpp"

namespace tutti::plan {
namespace {

int floor_power(int n) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(n))); }

// What the chains of schedule/build/ring.cpp and the trees of double_binary_tree.cpp are cut into.
constexpr double kChain = 8;
constexpr double kPipe = 4;
// Long slices move in pieces, so that hosts' inner wires and their outer ones work at once.
constexpr double kSegment = 128 << 10;
constexpr double kMostSegments = 8;

// The least time until one message has become `ranks` many, when everybody who has it passes it on
// every `gap` and a message takes `latency` (Karp and others' optimal LogP broadcast).
double spreading(int ranks, double latency, double gap) {
  if (ranks < 2) return 0;
  if (gap <= 0) return latency;
  const auto ways = static_cast<std::size_t>(std::max(1.0, std::floor(latency / gap)));
  std::vector<double> informed = {1};  // after i gaps
  for (std::size_t i = 1;; ++i) {
    const double more = i >= ways ? informed[i - ways] : 0;
    informed.push_back(informed[i - 1] + more);
    if (informed.back() >= ranks) return std::max(latency, static_cast<double>(i) * gap);
  }
}

}  // namespace

double ClosedForms::Way::gap(double bytes) const { return std::max(overhead, bytes / bandwidth); }

ClosedForms::Sum ClosedForms::Sum::operator+(const Sum& other) const {
  return {seconds + other.seconds, bytes + other.bytes, steps + other.steps};
}

ClosedForms::ClosedForms(const Cluster& cluster, const Placement& placement)
    : ranks_(std::max(1, placement.ranks)),
      per_host_(placement.per_host(cluster)),
      hosts_(placement.hosts(cluster)),
      even_(ranks_ % per_host_ == 0),
      leaf_hosts_(cluster.oversubscription > 1 ? cluster.hosts_per_switch : 0) {
  const Wire& within = cluster.within;
  const Wire& between = cluster.between;
  near_ = {within.latency, within.overhead, within.bandwidth};
  far_ = {between.latency, between.overhead, between.bandwidth};
  way_out_ = far_.bandwidth;
  if (cluster.host_bandwidth > 0) way_out_ = std::min(way_out_, cluster.host_bandwidth / per_host_);
  crowd_ = far_;
  crowd_.bandwidth = way_out_;
  beyond_ = crowd_;
  beyond_.bandwidth /= cluster.oversubscription;
  if (cluster.fabric == Fabric::torus_2d) {
    // Partners that are not neighbours are this many hops away on average, and their messages
    // share a host's four links with those that pass through.
    const auto torus = topology::near_square(hosts_);
    const double hops = std::max(1.0, (torus.rows + torus.columns) / 4.0);
    crowd_.latency *= hops;
    crowd_.bandwidth /= std::max(1.0, hops / 4);
    beyond_ = crowd_;
  }
  switches_fold_ = cluster.in_network_reduction;
  if (cluster.processor.reduce_bandwidth > 0) fold_s_ = 1 / cluster.processor.reduce_bandwidth;
}

// Partners that differ in one bit of their rank share a host where hosts begin at multiples of
// twice the distance; of partners `distance` after each other some never do.
bool ClosedForms::stays_inside(int distance, bool in_pairs) const {
  return hosts_ == 1 || (in_pairs && per_host_ % (2 * distance) == 0);
}

ClosedForms::Way ClosedForms::way(int distance, bool in_pairs) const {
  if (stays_inside(distance, in_pairs)) return near_;
  if (distance < per_host_) return far_;
  const bool leaves = leaf_hosts_ > 0 && distance >= leaf_hosts_ * per_host_;
  return leaves ? beyond_ : crowd_;
}

double ClosedForms::send(int distance, double bytes) const {
  return (hosts_ > 1 && distance >= per_host_ ? far_ : near_).message(bytes);
}

// ---- pieces

ClosedForms::Sum ClosedForms::exchange(int distance, double bytes, bool folds,
                                       bool in_pairs) const {
  return {way(distance, in_pairs).message(bytes) + (folds ? fold(bytes) : 0), bytes, 1};
}

ClosedForms::Sum ClosedForms::fan(int peers, double bytes) const {
  if (peers < 1) return {};
  const int inside = std::min(peers, per_host_ - 1);
  const int outside = peers - inside;
  double seconds = 0;
  if (inside > 0) seconds = (inside - 1) * near_.gap(bytes) + near_.message(bytes);
  if (outside > 0)
    seconds = std::max(
        seconds, (outside - 1) * far_.gap(bytes) + far_.message(bytes) + inside * near_.overhead);
  return {seconds, peers * bytes, 1};
}

ClosedForms::Sum ClosedForms::everyone(double bytes, double folded) const {
  const int inside = std::min(ranks_, per_host_) - 1;
  const int outside = ranks_ - 1 - inside;
  const Way& away = leaf_hosts_ > 0 && hosts_ > leaf_hosts_ ? beyond_ : crowd_;
  // A core begins and takes in a message for every peer.
  const double core = 2 * (inside * near_.overhead + outside * away.overhead);
  double seconds = 0;
  if (inside > 0) seconds = near_.latency + inside * bytes / near_.bandwidth;
  if (outside > 0) seconds = std::max(seconds, away.latency + outside * bytes / away.bandwidth);
  const double latency =
      outside > 0 ? away.latency - away.overhead : near_.latency - near_.overhead;
  return {std::max(seconds, core + latency) + fold(folded), (ranks_ - 1) * bytes, 1};
}

// One message after another along neighbours, some of them on other hosts.
ClosedForms::Sum ClosedForms::line(int steps, double bytes, bool folds) const {
  const double work = folds ? fold(bytes) : 0;
  const double crossings = hosts_ == 1 ? 0 : static_cast<double>(hosts_) / ranks_;
  const double hop = hosts_ == 1 || per_host_ == 1
                         ? farthest().message(bytes)
                         : (1 - crossings) * near_.message(bytes) + crossings * far_.message(bytes);
  return {steps * (hop + work), bytes, steps};
}

ClosedForms::Sum ClosedForms::round(int ranks, double bytes, bool folds) const {
  const int steps = ranks - 1;
  const double work = folds ? fold(bytes) : 0;
  if (per_host_ % ranks == 0) return {steps * (near_.message(bytes) + work), steps * bytes, steps};
  // A chunk travels over every edge in turn, or queues up before the slow ones.
  const Sum path = line(steps, bytes, folds);
  const double queue = farthest().message(bytes) + (steps - 1) * farthest().gap(bytes) + work;
  return {std::max(path.seconds, queue), steps * bytes, steps};
}

ClosedForms::Sum ClosedForms::pairs(double bytes) const {
  if (ranks_ < 2) return {};
  // Messages of different steps do not wait for each other: the ports are busy all the time.
  const int inside = std::min(ranks_, per_host_) - 1;
  const int outside = ranks_ - 1 - inside;
  const Way& away = leaf_hosts_ > 0 && hosts_ > leaf_hosts_ ? beyond_ : crowd_;
  const double near_s = inside > 0 ? (inside - 1) * std::max(2 * near_.overhead, near_.gap(bytes)) +
                                         near_.message(bytes)
                                   : 0;
  const double far_s = outside > 0 ? (outside - 1) * std::max(2 * away.overhead, away.gap(bytes)) +
                                         away.message(bytes)
                                   : 0;
  return {std::max(near_s, far_s), (ranks_ - 1) * bytes, ranks_ - 1};
}

// Distances 1, 2, 4, …, with messages that grow (or, read backwards, shrink) by `factor`.
ClosedForms::Sum ClosedForms::doubling(int ranks, double first, double factor, bool folds,
                                       bool in_pairs) const {
  Sum sum;
  bool has_left = false;
  for (int distance = 1; distance < ranks; distance *= 2, first *= factor) {
    // Shorter distances together are less than a host: one of them leaves it.
    const bool inside = !in_pairs && 2 * distance <= per_host_ && has_left;
    has_left |= !stays_inside(distance, in_pairs);
    sum = sum + (inside ? Sum{near_.message(first) + (folds ? fold(first) : 0), first, 1}
                        : exchange(distance, first, folds, in_pairs));
  }
  return sum;
}

ClosedForms::Sum ClosedForms::tree(int ranks, int spacing, double bytes, bool folds) const {
  Sum sum;
  for (int distance = 1; distance < ranks; distance *= 2) {
    const bool inside = spacing == 1 && (ranks <= per_host_ || stays_inside(distance, true));
    sum = sum + Sum{(inside ? near_ : far_).message(bytes) + (folds ? fold(bytes) : 0), bytes, 1};
  }
  return sum;
}

ClosedForms::Sum ClosedForms::chain(double bytes, bool folds) const {
  const double piece = bytes / kChain;
  const Sum first = line(ranks_ - 1, piece, folds);
  const double gap =
      std::max(2 * farthest().overhead, piece / farthest().bandwidth) + (folds ? fold(piece) : 0);
  return {first.seconds + (kChain - 1) * gap, bytes, ranks_ - 1};
}

// `ways` 1: down or up, 2: both. Each tree has one half in kPipe pieces.
ClosedForms::Sum ClosedForms::double_tree(double bytes, int ways, bool folds) const {
  const double piece = bytes / (2 * kPipe);
  Sum way_up = tree(ranks_, 1, piece, folds);
  const double busy =
      std::max(bytes / farthest().bandwidth - 2 * piece / farthest().bandwidth, 0.0) +
      4 * (kPipe - 1) * farthest().overhead;
  return {ways * (way_up.seconds + busy) + (folds ? fold(bytes - piece) : 0), ways * bytes,
          ways * way_up.steps};
}

// reduce_scatter (or all_gather) inside each host and then among the ranks of like place on all
// hosts: every rank's own way out is used. Pieces overlap.
ClosedForms::Sum ClosedForms::rails(double bytes, int ways, bool folds) const {
  const double slice = bytes / per_host_;
  const double inside = (per_host_ - 1) * slice / near_.bandwidth * ways;
  const double part = slice / hosts_;
  const Way& away = leaf_hosts_ > 0 && hosts_ > leaf_hosts_ ? beyond_ : crowd_;
  const double outside = (hosts_ - 1) * part / away.bandwidth * ways;
  const double latency = ways * (near_.latency + (hosts_ - 1) * away.latency +
                                 2 * (per_host_ - 2) * near_.overhead * (per_host_ > 2));
  const double pieces = std::clamp(std::floor(slice / kSegment), 1.0, kMostSegments);
  const double seconds = latency + std::max(inside, outside) + std::min(inside, outside) / pieces +
                         (folds ? fold((per_host_ - 1) * slice + (hosts_ - 1) * part) : 0);
  return {seconds, ways * ((per_host_ - 1) * slice + (hosts_ - 1) * part), ways * (1 + hosts_ - 1)};
}

// ---- algorithms

// reduce is broadcast backwards, with folds.
ClosedForms::Maybe ClosedForms::broadcast(Algorithm algorithm, double bytes, bool folds) const {
  // Backwards every rank sends once.
  const auto sent_once = [&](Sum sum) {
    if (folds) sum.bytes = bytes;
    return sum;
  };
  const auto all_folds = [&](Sum sum) {
    if (folds) sum.seconds += fold((ranks_ - 1) * bytes);
    return sent_once(sum);
  };
  switch (algorithm) {
    case Algorithm::direct:
    case Algorithm::linear: return all_folds(fan(ranks_ - 1, bytes));
    case Algorithm::ring: return chain(bytes, folds);
    case Algorithm::binomial_tree: return sent_once(tree(ranks_, 1, bytes, folds));
    case Algorithm::double_binary_tree: {
      const Sum feed{farthest().message(bytes / (2 * kPipe)), bytes, 1};
      return double_tree(bytes, 1, folds) + Sum{feed.seconds, 0, 1};
    }
    case Algorithm::halving_doubling: {
      if (!folds) return std::nullopt;
      const int core = floor_power(ranks_);
      const Sum extra = core < ranks_ ? exchange(core, bytes, true) : Sum{};
      return extra + doubling(core, bytes / core, 2, true) + doubling(core, bytes / core, 2, false);
    }
    case Algorithm::hierarchical: {
      const Sum inside = folds ? fan(per_host_ - 1, bytes) : tree(per_host_, 1, bytes, false);
      Sum sum = tree(hosts_, per_host_, bytes, folds) + inside;
      if (folds) sum.seconds += fold((per_host_ - 1) * bytes);
      return sent_once(sum);
    }
    default: return std::nullopt;
  }
}

ClosedForms::Maybe ClosedForms::all_reduce(Algorithm algorithm, double bytes) const {
  const double part = bytes / ranks_;
  const int core = floor_power(ranks_);
  Sum extras;
  if (core < ranks_) {
    extras = exchange(core, bytes, true) + exchange(core, bytes, false);
    extras.bytes = bytes;  // of a partner: the result for its extra
  }
  switch (algorithm) {
    case Algorithm::direct: {
      const Sum one = everyone(bytes, (ranks_ - 1) * bytes);
      const Sum two = everyone(part, (ranks_ - 1) * part) + everyone(part, 0);
      return one.seconds < two.seconds ? one : two;
    }
    case Algorithm::ring: return round(ranks_, part, true) + round(ranks_, part, false);
    case Algorithm::binomial_tree:
      return *broadcast(Algorithm::binomial_tree, bytes, true) + tree(ranks_, 1, bytes, false);
    case Algorithm::double_binary_tree: return double_tree(bytes, 2, true);
    case Algorithm::recursive_doubling: return extras + doubling(core, bytes, 1, true);
    case Algorithm::halving_doubling:
      return extras + doubling(core, bytes / core, 2, true) +
             doubling(core, bytes / core, 2, false);
    case Algorithm::pairwise: {
      Sum scatter = pairs(part);
      scatter.seconds += fold((ranks_ - 1) * part);
      return scatter + round(ranks_, part, false);
    }
    case Algorithm::torus_2d: {
      const auto torus = topology::near_square(ranks_);
      if (torus.rows < 2) return std::nullopt;
      const double slice = bytes / torus.columns;
      const Sum rows = round(torus.columns, slice, true) + round(torus.columns, slice, false);
      const Sum hop = exchange(torus.columns, part, false);
      const double steps = torus.rows - 1;
      return rows + Sum{2 * steps * hop.seconds + steps * fold(part), 2 * steps * part,
                        2 * (torus.rows - 1)};
    }
    case Algorithm::hierarchical:
      if (even_) return rails(bytes, 2, true);
      return *broadcast(Algorithm::hierarchical, bytes, true) + tree(per_host_, 1, bytes, false);
    default: return std::nullopt;
  }
}

ClosedForms::Maybe ClosedForms::scatter(Algorithm algorithm, double bytes) const {
  switch (algorithm) {
    case Algorithm::direct:
    case Algorithm::linear: return fan(ranks_ - 1, bytes / ranks_);
    case Algorithm::binomial_tree: {
      Sum sum;
      double left = ranks_ - 1;  // blocks that are still to come, halved at every level
      for (int distance = 1; distance < ranks_; distance *= 2) {
        const double blocks = std::min<double>(distance, left);
        left -= blocks;
        const Way& edge = stays_inside(distance, true) ? near_ : far_;
        sum = sum + Sum{edge.message(blocks * bytes / ranks_), blocks * bytes / ranks_, 1};
      }
      return sum;
    }
    default: return std::nullopt;
  }
}

// scatter backwards; the busiest sender is the root's last child, with nearly half of all.
ClosedForms::Maybe ClosedForms::gather(Algorithm algorithm, double bytes) const {
  Maybe sum = scatter(algorithm, bytes);
  if (!sum) return sum;
  const int core = floor_power(ranks_);
  const int blocks = core < ranks_ ? std::max(ranks_ - core, core / 2) : core / 2;
  sum->bytes = (algorithm == Algorithm::binomial_tree ? blocks : 1) * bytes / ranks_;
  return sum;
}

ClosedForms::Maybe ClosedForms::all_gather(Algorithm algorithm, double bytes) const {
  const double part = bytes / ranks_;
  const int core = floor_power(ranks_);
  switch (algorithm) {
    case Algorithm::direct: return everyone(part, 0);
    case Algorithm::ring: return round(ranks_, part, false);
    case Algorithm::recursive_doubling: {
      Sum sum = doubling(core, bytes / core, 2, false);
      if (core < ranks_) sum = sum + exchange(core, part, false) + exchange(core, bytes, false);
      return sum;
    }
    case Algorithm::hypercube:
      if (core < ranks_) return std::nullopt;
      return doubling(ranks_, part, 2, false);
    case Algorithm::bruck: {
      Sum sum;
      for (int distance = 1; distance < ranks_; distance *= 2)
        sum = sum + exchange(distance, std::min(distance, ranks_ - distance) * part, false, false);
      return sum;
    }
    case Algorithm::torus_2d: {
      const auto torus = topology::near_square(ranks_);
      if (torus.rows < 2) return std::nullopt;
      const Sum hop = exchange(torus.columns, bytes / torus.rows, false);
      const int steps = torus.rows - 1;
      return round(torus.columns, part, false) + Sum{steps * hop.seconds, steps * hop.bytes, steps};
    }
    case Algorithm::hierarchical: {
      // Leaders pass whole hosts round.
      const double host = bytes / hosts_;
      const int steps = hosts_ - 1;
      return fan(per_host_ - 1, part) + Sum{steps * far_.message(host), steps * host, steps} +
             tree(per_host_, 1, bytes, false);
    }
    default: return std::nullopt;
  }
}

ClosedForms::Maybe ClosedForms::reduce_scatter(Algorithm algorithm, double bytes) const {
  const double part = bytes / ranks_;
  switch (algorithm) {
    case Algorithm::direct: return everyone(part, (ranks_ - 1) * part);
    case Algorithm::ring: return round(ranks_, part, true);
    case Algorithm::halving_doubling:
      if (floor_power(ranks_) < ranks_) return std::nullopt;
      return doubling(ranks_, part, 2, true);
    case Algorithm::pairwise: {
      Sum sum = pairs(part);
      sum.seconds += fold((ranks_ - 1) * part);
      return sum;
    }
    default: return std::nullopt;
  }
}

ClosedForms::Maybe ClosedForms::all_to_all(Algorithm algorithm, double bytes) const {
  const double part = bytes / ranks_;
  switch (algorithm) {
    case Algorithm::direct: return everyone(part, 0);
    case Algorithm::pairwise: return pairs(part);
    case Algorithm::bruck: {
      Sum sum;
      for (int distance = 1; distance < ranks_; distance *= 2) {
        // Places whose number has this bit set.
        const int whole = ranks_ / (2 * distance) * distance;
        const int rest = std::max(0, ranks_ % (2 * distance) - distance);
        sum = sum + exchange(distance, (whole + rest) * part, false, false);
      }
      return sum;
    }
    default: return std::nullopt;
  }
}

ClosedForms::Maybe ClosedForms::barrier(Algorithm algorithm) const {
  switch (algorithm) {
    case Algorithm::direct: return everyone(0, 0);
    case Algorithm::linear: return fan(ranks_ - 1, 0) + fan(ranks_ - 1, 0);
    case Algorithm::binomial_tree: return tree(ranks_, 1, 0, false) + tree(ranks_, 1, 0, false);
    case Algorithm::recursive_doubling: return doubling(ranks_, 0, 1, false, false);
    case Algorithm::hierarchical:
      return fan(per_host_ - 1, 0) + tree(hosts_, per_host_, 0, false) + fan(per_host_ - 1, 0);
    default: return std::nullopt;
  }
}

ClosedForms::Maybe ClosedForms::scan(Algorithm algorithm, double bytes) const {
  switch (algorithm) {
    case Algorithm::direct: {
      Sum sum = fan(ranks_ - 1, bytes);
      sum.seconds += fold((ranks_ - 1) * bytes);
      return sum;
    }
    case Algorithm::linear: return line(ranks_ - 1, bytes, true);
    case Algorithm::recursive_doubling: return doubling(ranks_, bytes, 1, true, false);
    default: return std::nullopt;
  }
}

ClosedForms::Maybe ClosedForms::of_collective(Collective collective, Algorithm algorithm,
                                              double bytes) const {
  if (algorithm == Algorithm::hierarchical && (hosts_ == 1 || per_host_ == 1)) return std::nullopt;
  switch (collective) {
    case Collective::broadcast: return broadcast(algorithm, bytes, false);
    case Collective::reduce: return broadcast(algorithm, bytes, true);
    case Collective::all_reduce: return all_reduce(algorithm, bytes);
    case Collective::gather: return gather(algorithm, bytes);
    case Collective::scatter: return scatter(algorithm, bytes);
    case Collective::all_gather: return all_gather(algorithm, bytes);
    case Collective::reduce_scatter: return reduce_scatter(algorithm, bytes);
    case Collective::all_to_all: return all_to_all(algorithm, bytes);
    case Collective::barrier: return barrier(algorithm);
    case Collective::scan:
    case Collective::exclusive_scan: return scan(algorithm, bytes);
    default: return std::nullopt;  // not every collective needs a formula
  }
}

std::optional<CollectiveCost> ClosedForms::of(Collective collective, Algorithm algorithm,
                                              double bytes) const {
  const Maybe sum = of_collective(collective, algorithm, bytes);
  if (!sum) return std::nullopt;
  return CollectiveCost{sum->seconds, algorithm, sum->bytes, 0, sum->steps};
}

std::optional<CollectiveCost> ClosedForms::by_rails(Collective collective, double bytes) const {
  const bool folds = collective == Collective::reduce_scatter;
  if (hosts_ == 1 || per_host_ == 1 || !even_) return std::nullopt;
  if (!folds && collective != Collective::all_gather) return std::nullopt;
  const Sum sum = rails(bytes, 1, folds);
  return CollectiveCost{sum.seconds, Algorithm::hierarchical, sum.bytes, 0, sum.steps};
}

CollectiveCost ClosedForms::in_network(double bytes) const {
  const double slice = bytes / per_host_;
  const double inside = 2 * (per_host_ - 1) * slice / near_.bandwidth;
  const double outside = slice / crowd_.bandwidth;  // up and down at once
  const double pieces = std::clamp(std::floor(slice / kSegment), 1.0, kMostSegments);
  const double latency = 2 * far_.latency + (per_host_ > 1 ? 2 * near_.latency : 0);
  const double seconds = latency + std::max(inside, outside) + std::min(inside, outside) / pieces +
                         fold((per_host_ - 1) * slice);
  return {seconds, Algorithm::automatic, 2 * (per_host_ - 1) * slice + slice, 0,
          per_host_ > 1 ? 4 : 2};
}

double ClosedForms::lower_bound(Collective collective, double bytes) const {
  if (ranks_ < 2) return 0;
  const double both = (per_host_ > 1 ? near_.bandwidth : 0) + (hosts_ > 1 ? far_.bandwidth : 0);
  const bool by_switches = switches_fold_ && hosts_ > 1 && collective == Collective::all_reduce;
  const double at_rank = (by_switches ? 1 : bus_factor(collective, ranks_)) * bytes / both;
  const double shares = bus_factor(collective, ranks_) * ranks_ / std::max(1, ranks_ - 1);
  // What lies on other hosts must come in, by all of a host's ways at once.
  const double outside = static_cast<double>(ranks_ - per_host_) / ranks_;
  const double at_host =
      (by_switches ? 1 : shares * outside) * (hosts_ > 1 ? bytes : 0) / (per_host_ * way_out_);
  const bool all_hear = collective != Collective::gather && collective != Collective::scatter;
  const double least = hosts_ > 1 ? far_.latency : near_.latency;
  double news = least;
  if (all_hear && !by_switches && collective != Collective::scan &&
      collective != Collective::exclusive_scan)
    news = hosts_ > 1 ? spreading(hosts_, far_.latency, std::max(far_.overhead, 1e-9) / per_host_)
                      : spreading(ranks_, near_.latency, std::max(near_.overhead, 1e-9));
  return std::max({at_rank, at_host, news, least});
}

}  // namespace tutti::plan
