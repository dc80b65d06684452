// cost/op_graph.hpp - the ops of many ranks as one graph: what waits for what, within a rank and
// between ranks. Compact, for millions of them, and the same whatever the size of the array.
//
// Within a rank ops wait where schedule/hazards.hpp says so; between ranks a receive waits for its
// send. What is not made of messages is built by hand: work on cores, and meetings that everybody
// waits for.
//
//   const auto showing = graph.work(Node::Does::copies, share);      of the rank begun last
//   graph.lead_to(showing, meeting);
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cost/site.hpp"
#include "schedule/schedule.hpp"
#include "tutti/status.hpp"

namespace tutti::cost {

struct Node {
  enum class Does : std::uint8_t { sends, receives, folds, copies, meets };
  Does does = Does::copies;
  bool only_folded = false;  // receives: into scratch that a fold reads
  bool has_company = false;  // receives: from several other hosts in one step
  std::uint32_t rank = 0;    // number of its program here
  std::int32_t seat = 0;     // where it sits
  std::int32_t peer = 0;     // sends, receives: where the other end sits
  std::uint32_t match = 0;   // sends: the receive; receives: the send
  std::uint32_t waits = 0;   // for so many others, its message included
  float operands = 1;        // folds: beyond the first
  double share = 0;          // of the whole array's bytes
};

// Bytes of one chunk of a program whose whole array has `total`.
double chunk_bytes(const schedule::Program& program, double total);

class OpGraph {
 public:
  // One program's ops. `seats` says where each rank of its group sits.
  void add(const schedule::Program& program, const Site& site, const std::vector<int>& seats,
           std::uint32_t job);

  // By hand: another rank, its next piece of work, a meeting of all ranks of a job.
  void begin_rank(int seat, std::uint32_t job);
  std::uint32_t work(Node::Does does, double share, int operands = 1);
  std::uint32_t meeting() { return work(Node::Does::meets, 0); }
  void lead_to(std::uint32_t earlier, std::uint32_t later);

  // Ends the graph: pairs sends with receives, and numbers the nodes in the order in which those
  // that could begin at one moment do. `modulus`: ranks that are alike in it stand for each other;
  // 0: everybody for itself. Code::corrupt where a message has no other end, or with a modulus none
  // that is certain.
  Status finish(const Site& site, int modulus);

  const std::vector<Node>& nodes() const { return nodes_; }
  std::uint32_t programs() const { return static_cast<std::uint32_t>(jobs_.size()); }
  std::uint32_t job_of(std::uint32_t rank) const { return jobs_[rank]; }
  // Those that wait for a node; a send's receive aside.
  const std::uint32_t* begin(std::uint32_t node) const { return after_.data() + first_[node]; }
  const std::uint32_t* end(std::uint32_t node) const { return after_.data() + first_[node + 1]; }

 private:
  struct Message {
    std::uint64_t pair;  // job, from and to
    std::uint32_t step;
    std::int32_t distance;
    std::uint32_t node;
  };
  std::uint32_t add_node(const Node& node);
  void add_message(std::vector<Message>& list, const schedule::Program& program, int from, int to,
                   std::uint32_t step);
  void add_taken(const schedule::Program& program, const schedule::Op& op,
                 const std::vector<int>& seats, Node node);
  void note_company(const schedule::Program& program, const Site& site,
                    const std::vector<std::uint32_t>& node_of);
  Status match(int modulus);
  void number(const Site& site);
  void link_edges();

  int seat_ = 0;  // of the rank begun last
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> jobs_;    // of each program
  std::vector<std::uint32_t> starts_;  // its first node, before they are numbered
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;
  std::vector<std::uint32_t> first_;
  std::vector<std::uint32_t> after_;
  std::vector<Message> sends_;
  std::vector<Message> receives_;
};

}  // namespace tutti::cost
