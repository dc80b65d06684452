#include "mesh/deliveries.hpp"

#include <algorithm>
#include <map>

#include "core/check.hpp"
#include "mesh/boxes.hpp"

namespace tutti::mesh {
namespace {

// Ranks that hold the same box: they have the same coordinates along the axes that are cut.
struct Holders {
  TensorBox box;
  std::vector<int> positions;
};

struct TwoWayCount {
  std::map<int, std::int64_t> sent, received;
};

std::int64_t most_of(const std::map<int, std::int64_t>& counts) {
  std::int64_t most = 0;
  for (const auto& [who, count] : counts) most = std::max(most, count);
  return most;
}

class Matchmaker {
 public:
  explicit Matchmaker(const DeliveryRequest& request)
      : request_(request), ranks_(ranks_of(request.tensor.axes)) {
    std::map<std::vector<std::int64_t>, std::size_t> known;  // coordinates that decide → its place
    for (int position = 0; position < ranks_; ++position) {
      coordinates_.push_back(coordinates_of(request.tensor.axes, position));
      const auto [at, is_new] = known.try_emplace(key_of(position), holders_.size());
      if (is_new) holders_.push_back({before_at(position), {}});
      holders_[at->second].positions.push_back(position);
    }
  }

  DeliveryList run() {
    for (int position = 0; position < ranks_; ++position) serve(position);
    list_.rank_count = std::max(list_.rank_count, most_of(sent_));
    list_.away_count = std::max(most_of(away_.sent), most_of(away_.received));
    list_.host_count = std::max(most_of(hosts_.sent), most_of(hosts_.received));
    return std::move(list_);
  }

 private:
  TensorBox box_at(const Arrangement& arrangement, int position) const {
    return box_of(arrangement, request_.tensor.shape, request_.tensor.axes,
                  coordinates_[static_cast<std::size_t>(position)]);
  }
  TensorBox before_at(int position) const { return box_at(request_.before, position); }

  std::vector<std::int64_t> key_of(int position) const {
    std::vector<std::int64_t> key;
    for (const int axis : axes_in(request_.before.sharded() | request_.before.partial))
      key.push_back(
          coordinates_[static_cast<std::size_t>(position)][static_cast<std::size_t>(axis)]);
    return key;
  }

  int host_of(int position) const {
    return request_.hosts.empty() ? 0 : request_.hosts[static_cast<std::size_t>(position)];
  }

  AxisSet difference(int a, int b) const {
    AxisSet set = 0;
    for (std::size_t axis = 0; axis < request_.tensor.axes.size(); ++axis)
      if (coordinates_[static_cast<std::size_t>(a)][axis] !=
          coordinates_[static_cast<std::size_t>(b)][axis])
        set |= set_of(static_cast<int>(axis));
    return set;
  }

  void serve(int position) {
    const TensorBox wanted = box_at(request_.after, position);
    std::int64_t missing = wanted.count();
    std::int64_t received = 0;
    for (const Holders& holders : holders_) {
      if ((difference(position, holders.positions[0]) & request_.before.partial) != 0) continue;
      TensorBox part = common(wanted, holders.box);
      const std::int64_t count = part.count();
      if (count == 0) continue;
      missing -= count;
      const bool has_it = std::find(holders.positions.begin(), holders.positions.end(), position) !=
                          holders.positions.end();
      if (has_it) continue;
      received += count;
      deliver(choose(holders, position), position, std::move(part), count);
    }
    TUTTI_CHECK(missing == 0);  // the boxes of an arrangement fill the tensor
    list_.rank_count = std::max(list_.rank_count, received);
  }

  int choose(const Holders& holders, int position) {
    const auto rank = [&](int holder) {
      return std::tuple(host_of(holder) != host_of(position), sent_[holder],
                        std::popcount(difference(holder, position)), holder);
    };
    return *std::min_element(holders.positions.begin(), holders.positions.end(),
                             [&](int a, int b) { return rank(a) < rank(b); });
  }

  void deliver(int from, int to, TensorBox part, std::int64_t count) {
    sent_[from] += count;
    if (host_of(from) != host_of(to)) {
      away_.sent[from] += count;
      away_.received[to] += count;
      hosts_.sent[host_of(from)] += count;
      hosts_.received[host_of(to)] += count;
    }
    list_.axes |= difference(from, to);
    list_.deliveries.push_back({from, to, std::move(part)});
  }

  const DeliveryRequest& request_;
  int ranks_;
  std::vector<Coordinates> coordinates_;  // by position
  std::vector<Holders> holders_;
  std::map<int, std::int64_t> sent_;  // by position
  TwoWayCount away_, hosts_;          // with other hosts: by position, by host
  DeliveryList list_;
};

}  // namespace

DeliveryList plan_deliveries(const DeliveryRequest& request) { return Matchmaker(request).run(); }

}  // namespace tutti::mesh
