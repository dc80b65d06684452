// support/trial.hpp - one collective call, its buffers, and the check of what came out.
//
//   Case all_reduce{.collective = Collective::all_reduce, .dtype = Dtype::bf16, .count = 257};
//   try_out(group, all_reduce);                       // blocking; fails the test if the result is
//   wrong
//
//   Trial trial(group, all_reduce);                   // or in three steps
//   Work work = trial.start();
//   trial.check(work.wait());
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <vector>

#include "support/reference.hpp"
#include "tutti/group.hpp"

namespace tutti::test {

//   even         one contiguous buffer, equal parts
//   uneven       the v-variant: parts differ, some are empty
//   list         one buffer per rank, equal parts
//   uneven_list  one buffer per rank, parts differ
enum class Shape { even, uneven, list, uneven_list };

struct Case {
  Collective collective = Collective::all_reduce;
  Dtype dtype = Dtype::f32;
  Reduction reduction{};
  std::size_t count = 1;  // elements of a part
  int root = 0;
  Algorithm algorithm = Algorithm::automatic;
  Shape shape = Shape::even;
  bool in_place = false;
  bool widens = false;       // the output is of f32; not in place
  std::size_t misalign = 0;  // bytes by which buffers miss a 64-byte boundary
  Values values = Values::exact;
  std::uint64_t seed = 1;
  // That the reference folds in, where it is tree; a Trial has its group's.
  ReductionOrder order = ReductionOrder::rank;
};
std::string describe(const Case& what);

// Of the output.
Dtype result_dtype(const Case& what);

// Whether such a call exists: lists only where there are parts, no in place with lists.
bool exists(const Case& what);

// Elements of part `part` of rank `rank`'s input and output; empty when it has none.
std::vector<std::size_t> input_parts(const Case& what, int size, int rank);
std::vector<std::size_t> output_parts(const Case& what, int size, int rank);
// The whole input of a rank, and its whole output; `before` is what the output held.
Bytes input_of(const Case& what, int size, int rank);
Bytes expected_output(const Case& what, int size, int rank, const Bytes& before);

// Symmetric memory that trials cut their buffers from.
class Arena {
 public:
  // Collective.
  Arena(Group& group, std::size_t bytes);
  explicit Arena(SymmetricMemory memory) : memory_(std::move(memory)) {}
  std::byte* take(std::size_t bytes);  // null when it is used up
  std::size_t room() const { return memory_.bytes - used_; }
  void reset() { used_ = 0; }

 private:
  SymmetricMemory memory_;
  std::size_t used_ = 0;
};

// Memory between two guard zones that nobody may touch.
class Block {
 public:
  Block(std::size_t bytes, std::size_t misalign, Arena* arena);
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void fill(const Bytes& content);
  bool guards_intact() const;

 private:
  Bytes own_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class Trial {
 public:
  // `arena`: this rank's buffers lie in symmetric memory; other ranks may do otherwise.
  Trial(Group& group, const Case& what, Arena* arena = nullptr);

  Status run();  // by the blocking method
  Work start();  // by the async one
  // Fails the current test unless `status` is ok and memory holds what the reference says.
  void check(const Status& status);
  // The same where the caller knows that already: many ways to one result.
  void check(const Status& status, const Bytes& expected);
  Bytes expected() const { return expected_output(what_, size_, rank_, output_before_); }
  // This rank's whole output, in order.
  Bytes output() const;

 private:
  void lay_out(Arena* arena);
  void lay_out_in_place(Arena* arena);
  void fill();
  CallOptions options() const;

  Group& group_;
  Case what_;
  int rank_;
  int size_;
  std::vector<std::size_t> input_counts_;  // this rank's parts
  std::vector<std::size_t> output_counts_;
  std::list<Block> blocks_;
  std::vector<Buffer> inputs_;  // one, or one per part
  std::vector<Buffer> outputs_;
  std::vector<ConstBuffer> const_inputs_;
  Bytes input_before_;
  Bytes output_before_;
};

void try_out(Group& group, const Case& what, Arena* arena = nullptr);
void try_out_async(Group& group, const Case& what, Arena* arena = nullptr);

}  // namespace tutti::test
