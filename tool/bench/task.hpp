// tool/bench/task.hpp - one collective on given memory: how to call it, fill it and check it.
#pragma once

#include <cstddef>
#include <vector>

#include "tool/bench/values.hpp"
#include "tutti/group.hpp"
#include "tutti/shape.hpp"

namespace tutti::tool {

// What is measured, the same on all ranks.
struct BenchCell {
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;  // the whole array
  bool in_place = false;
  Algorithm algorithm = Algorithm::automatic;  // what the call asks for
  Dtype dtype = Dtype::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;

  std::size_t count() const { return bytes / size_of(dtype); }
};

// Two areas of at least cell.bytes each, lent.
struct Areas {
  void* first = nullptr;
  void* second = nullptr;
};

class Task {
 public:
  // On a device only call() is for use: its memory cannot be filled and looked at from here.
  Task(const BenchCell& cell, int rank, int ranks, const Areas& areas, Device device = Device::cpu,
       void* stream = nullptr);
  Task(const Task&) = delete;

  const Call& call() const { return call_; }
  Status run(Group& group) const { return group.run(call_); }
  // Writes this rank's contribution, as a training step does with its gradients.
  void fill() const;
  // Fills, after every byte that the call should write was made wrong.
  void fill_and_spoil() const;
  // All zero: for loops that fold the same memory again and again.
  void clear() const;
  // Elements of this rank's result that are not exactly right.
  std::size_t count_wrong() const;

 private:
  struct Piece {  // elements of an area that hold, or should hold, part of a period
    std::byte* at = nullptr;
    std::size_t first = 0;
    std::size_t count = 0;
    std::size_t period = 0;
  };

  void place_sides(const Areas& areas);
  void plan_contribution();
  void plan_result();
  std::byte* element(std::byte* base, std::size_t index) const;
  bool at_root() const { return rank_ == cell_.root; }
  std::size_t add_period(Period period);
  void expect(std::size_t offset, std::size_t first, std::size_t count, std::size_t period);

  BenchCell cell_;
  const CollectiveShape& shape_;
  int rank_;
  int ranks_;
  std::size_t part_;  // elements of a rank's part
  Values values_;
  std::vector<Period> periods_;
  std::byte* input_ = nullptr;
  std::size_t input_count_ = 0;
  std::byte* output_ = nullptr;
  std::size_t output_count_ = 0;
  Piece contribution_;
  std::vector<Piece> result_;
  ConstBuffer input_buffer_;
  Buffer output_buffer_;
  Call call_;
};

// Whether the collective has such a form; broadcast and barrier have only one.
bool has_placement(Collective collective, bool in_place);

}  // namespace tutti::tool
