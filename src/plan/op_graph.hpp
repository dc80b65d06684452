// plan/op_graph.hpp - the ops of many programs as one graph: what waits for what, within a rank and
// between ranks. Compact, for millions of them.
//
// Within a rank ops wait where they touch the same chunk and one writes (schedule/hazards.hpp says
// the same chunk by chunk; here by runs of chunks, since schedules of 24,576 ranks move thousands
// at once). Between ranks a receive waits for its send.
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/schedule.hpp"
#include "tutti/status.hpp"

namespace tutti::plan {

struct Node {
  enum class Does : std::uint8_t { sends, receives, folds, copies };
  Does does = Does::copies;
  std::uint32_t rank = 0;   // number of its program here
  std::int32_t seat = 0;    // where it sits
  std::int32_t peer = 0;    // sends, receives: where the other end sits
  std::uint32_t match = 0;  // sends: the receive; receives: the send
  std::uint32_t waits = 0;  // for so many others, its message included
  float operands = 1;       // folds: beyond the first
  double bytes = 0;
};

class OpGraph {
 public:
  // One program's ops, of an array of `bytes`. `seats` says where each rank of its group sits.
  void add(const schedule::Program& program, const std::vector<int>& seats, double bytes,
           std::uint32_t job);
  // Pairs sends with receives, after the last add. `modulus`: ranks that are alike in it stand for
  // each other; 0: everybody for itself. Code::corrupt where a message has no other end, or with a
  // modulus none that is certain.
  Status match(int modulus);

  const std::vector<Node>& nodes() const { return nodes_; }
  std::uint32_t programs() const { return static_cast<std::uint32_t>(jobs_.size()); }
  std::uint32_t job_of(std::uint32_t rank) const { return jobs_[rank]; }
  std::uint32_t first_node(std::uint32_t rank) const { return starts_[rank]; }
  // Those that wait for a node, on its own rank.
  const std::uint32_t* begin(std::uint32_t node) const { return after_.data() + first_[node]; }
  const std::uint32_t* end(std::uint32_t node) const { return after_.data() + first_[node + 1]; }

 private:
  struct Message {
    std::uint32_t job, step;
    std::int32_t from, to;
    std::int32_t distance;
    std::uint32_t node;

    auto key() const { return std::tie(job, step, from, to, distance); }
  };
  std::uint32_t add_node(const Node& node);
  void add_messages(const schedule::Program& program, const schedule::Op& op, Node node,
                    std::vector<std::uint32_t>& own);
  void add_edge(std::uint32_t earlier, std::uint32_t later);
  void link_edges();

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> jobs_;    // of each program
  std::vector<std::uint32_t> starts_;  // its first node
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;
  std::vector<std::uint32_t> first_;
  std::vector<std::uint32_t> after_;
  std::vector<Message> sends_;
  std::vector<Message> receives_;
};

}  // namespace tutti::plan
