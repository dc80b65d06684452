#include "cost/event_loop.hpp"

#include <algorithm>
#include <queue>

namespace tutti::cost {
namespace {

// A number in 0 … 1 that depends on both arguments alone (splitmix64).
double draw(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15ULL + index + 1;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

class EventLoop {
 public:
  EventLoop(const OpGraph& graph, const Site& site, const Standing& standing,
            const std::vector<JobSize>& jobs, const PlayOptions& options)
      : graph_(graph),
        site_(site),
        jobs_(jobs),
        options_(options),
        network_(site, standing),
        states_(graph.nodes().size()) {}

  std::vector<PlayedJob> run() {
    const std::vector<Node>& nodes = graph_.nodes();
    std::vector<PlayedJob> ends(jobs_.size());
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      const double start = jobs_[graph_.job_of(nodes[i].rank)].start_s;
      states_[i].ready = {start, start};
      states_[i].open = nodes[i].waits;
      if (nodes[i].waits == 0) enqueue(start, i);
    }
    std::size_t count = 0;
    for (; !next_.empty(); ++count) {
      const std::uint32_t i = next_.top().node;
      next_.pop();
      const Flow done = play(i);
      PlayedJob& end = ends[graph_.job_of(nodes[i].rank)];
      end.seconds = std::max(end.seconds, done.last);
      end.steps = std::max(end.steps, static_cast<int>(states_[i].depth));
      release(i, done);
    }
    // Schedules are proved to be free of deadlocks; others are the caller's.
    return count == nodes.size() ? ends : std::vector<PlayedJob>{};
  }

 private:
  struct State {
    Flow ready;    // of what it waits for, its message aside
    Flow arrived;  // receives: of the message
    std::uint32_t open = 0;
    std::uint32_t depth = 0;
  };

  Flow play(std::uint32_t i) {
    const Node& node = graph_.nodes()[i];
    const double bytes = node.share * jobs_[graph_.job_of(node.rank)].bytes;
    switch (node.does) {
      case Node::Does::sends: return send(i, node, bytes);
      case Node::Does::receives: return receive(i, node, bytes);
      case Node::Does::folds: return work(i, node, bytes, node.operands * site_.fold_byte_s);
      case Node::Does::copies: return work(i, node, bytes, site_.copy_byte_s);
      case Node::Does::meets: {
        const double end = states_[i].ready.last + site_.meet_s;
        return {end, end};
      }
    }
    return {};
  }

  // Not rounded: the first piece is a whole segment, however short the last one is.
  double pieces(double bytes, double segment_bytes) const {
    return options_.whole_messages ? 1 : std::max(1.0, bytes / segment_bytes);
  }

  // The core hands piece after piece to the wire; handling itself is part of the latency.
  Flow send(std::uint32_t i, const Node& node, double bytes) {
    const MessageCost& cost = site_.message(node.seat, node.peer);
    const double k = pieces(bytes, cost.segment_bytes);
    const Flow ready = states_[i].ready;
    const double moving = cost.send_byte_s * bytes;
    const auto core = network_.take_core(node.seat, ready.first, cost.overhead_s * k, moving);
    const double start = cost.way.empty() ? core.working : core.handling;
    const double others = site_.is_switch(node.seat) ? 0 : cost.overhead_s * (k - 1);
    const Flow begin{start, std::max(ready.last, start + others)};
    Network::Message message{node.seat, node.peer, bytes, k, is_long_comer(node, bytes)};
    if (options_.jitter > 0) message.latency_factor += options_.jitter * draw(options_.seed, i);
    Flow left = network_.pass(message, begin);
    left.first = std::max(left.first, start + moving / k);
    left.last = std::max({left.last, core.working + moving + others, begin.last + moving / k});
    const double flight = network_.flight_s(message);
    states_[node.match].arrived = {left.first + flight, left.last + flight};
    return left;
  }

  bool is_long_comer(const Node& send, double bytes) const {
    return bytes >= site_.incast_bytes && graph_.nodes()[send.match].has_company;
  }

  // Over a wire the core takes bytes in as they come; from memory it copies them out once they are
  // there.
  Flow receive(std::uint32_t i, const Node& node, double bytes) {
    const MessageCost& cost = site_.message(node.peer, node.seat);
    const double k = pieces(bytes, cost.segment_bytes);
    const State& state = states_[i];
    const Flow at{std::max(state.arrived.first, state.ready.first),
                  std::max(state.arrived.last, state.ready.last)};
    ++states_[i].depth;
    if (site_.is_switch(node.seat)) return at;
    const bool stays = node.only_folded && cost.folds_read;
    const double moving = stays ? 0 : cost.receive_byte_s * bytes;
    const double all = cost.overhead_s * k + moving;
    const double early = cost.way.empty() ? 0 : moving / k;
    const auto core = network_.take_core(node.seat, at.first - early, cost.overhead_s * k, moving);
    const double start = cost.way.empty() ? core.working : core.handling;
    return {std::max(start + all / k, at.first + cost.overhead_s),
            std::max(core.working + all, at.last + all / k - early)};
  }

  Flow work(std::uint32_t i, const Node& node, double bytes, double byte_s) {
    const Flow ready = states_[i].ready;
    if (site_.is_switch(node.seat)) return ready;
    const double k = pieces(bytes, site_.segment_bytes);
    const double seconds = bytes * byte_s;
    const double start = network_.take_core(node.seat, ready.first, 0, seconds).working;
    return {start + seconds / k, std::max(start + seconds, ready.last + seconds / k)};
  }

  void release(std::uint32_t i, Flow done) {
    for (const std::uint32_t* later = graph_.begin(i); later != graph_.end(i); ++later) {
      Flow& ready = states_[*later].ready;
      ready.first = std::max(ready.first, done.first);
      ready.last = std::max(ready.last, done.last);
      waits_no_more(i, *later);
    }
    const Node& node = graph_.nodes()[i];
    if (node.does == Node::Does::sends) waits_no_more(i, node.match);
  }

  void waits_no_more(std::uint32_t earlier, std::uint32_t later) {
    State& state = states_[later];
    state.depth = std::max(state.depth, states_[earlier].depth);
    if (--state.open == 0) enqueue(std::max(state.ready.first, state.arrived.first), later);
  }

  void enqueue(double time, std::uint32_t node) { next_.push({time, node}); }

  // By the time from which they can begin, so that nobody takes a way before an earlier one; of
  // equal times by their number.
  struct Key {
    double time;
    std::uint32_t node;
    bool operator>(const Key& other) const {
      return time != other.time ? time > other.time : node > other.node;
    }
  };

  const OpGraph& graph_;
  const Site& site_;
  const std::vector<JobSize>& jobs_;
  const PlayOptions& options_;
  Network network_;
  std::vector<State> states_;
  std::priority_queue<Key, std::vector<Key>, std::greater<>> next_;
};

}  // namespace

std::vector<PlayedJob> play(const OpGraph& graph, const Site& site, const Standing& standing,
                            const std::vector<JobSize>& jobs, const PlayOptions& options) {
  return EventLoop(graph, site, standing, jobs, options).run();
}

}  // namespace tutti::cost
