// schedule/proof/expressions.hpp - what a chunk holds, as a formula: the numbers the verifier uses.
//
// A value is a leaf (the piece `extent` of one rank's input, untouched) or a fold of other values.
// Equal formulas get the same Value, so ranks' results are compared by one number. A partial fold that is
// folded on is another formula than one fold of everything: on its way it is rounded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::schedule::proof {

using Value = std::uint32_t;
inline constexpr Value kUndefined = 0;

class Expressions {
 public:
  explicit Expressions(int ranks);

  // To be asked for once per (rank, extent): leaves are not looked up.
  Value leaf(int rank, std::uint64_t extent);
  // The fold of defined values in this order, as Op says. `twice` becomes a rank that occurs in more
  // than one of them, if there is one; it is left alone otherwise.
  struct How {
    bool finish = false;
    bool balanced = false;
  };
  Value fold(std::span<const Value> operands, How how, int& twice);

  bool is_leaf(Value value) const { return nodes_[value].count == 0; }
  bool is_leaf_of(Value value, int rank, std::uint64_t extent) const;
  bool is_finished(Value value) const { return nodes_[value].finished; }
  // Whether the contributions are exactly the ranks 0 … ranks-1; `odd_one` becomes the first rank
  // that is missing or should not be there.
  bool covers(Value value, int ranks, int& odd_one) const;
  // Whether it is one single fold of raw inputs in rank order: x0, x1, x2, …
  bool is_whole(Value value) const { return nodes_[value].whole; }
  // Whether, partial folds written out, it is ((x0 x1) x2) …
  bool is_left(Value value) const { return nodes_[value].run.first == 0 && nodes_[value].run.left; }
  // and whether it is balanced by rank number, as tutti::ReductionOrder::tree says.
  bool is_balanced(Value value) const {
    return nodes_[value].run.first == 0 && nodes_[value].run.balanced;
  }

  // finish[x0 x1 [x2 x3]]: brackets are folds, parentheses how a balanced one goes about it.
  std::string print(Value value) const;

 private:
  // The ranks first … last - 1 in this order, and how they are folded. first < 0: in some other order.
  struct Run {
    int first = -1;
    int last = -1;
    bool left = false;
    bool balanced = false;

    int size() const { return last - first; }
    Run and_then(const Run& next) const;
  };
  struct Node {
    int rank = -1;             // leaf
    std::uint64_t extent = 0;  // leaf
    std::uint32_t first = 0;   // fold: operands_[first …)
    std::uint32_t count = 0;   // 0: leaf
    Value next_in_bucket = kUndefined;
    bool finished = false;
    bool balanced = false;
    bool whole = false;
    Run run;
  };

  std::span<const Value> operands(const Node& node) const {
    return {operands_.data() + node.first, node.count};
  }
  Value lookup(std::uint64_t hash, std::span<const Value> operands, How how) const;
  Run run_of(std::span<const Value> operands, bool balanced) const;
  std::string print(std::span<const Value> operands, bool balanced) const;
  void join(Value into, Value from, int& twice);

  std::size_t words_;                 // of one contribution set
  std::vector<Node> nodes_;           // 0 is kUndefined
  std::vector<std::uint64_t> ranks_;  // words_ per node: whose contributions are in it
  std::vector<Value> operands_;
  std::vector<Value> buckets_;  // of folds, by hash; the rest of a bucket is chained
};

}  // namespace tutti::schedule::proof
