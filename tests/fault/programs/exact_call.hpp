// programs/exact_call.hpp - one call of any collective on numbers whose result is known exactly.
//
// Element i of rank r is a function of both; sums wrap, so that they are exact whatever the order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "touched_memory.hpp"
#include "tutti/group.hpp"
#include "tutti/shape.hpp"

namespace tutti::test {

class ExactCall {
 public:
  struct What {
    Collective collective = Collective::all_reduce;
    Algorithm algorithm = Algorithm::automatic;
    std::size_t count = 1024;  // elements of a block
    int root = 0;
  };
  ExactCall(const Group& group, What what);

  // A moment of the call: `act` when this share of the pages of its memory was touched, 0 (the first) … 1 (the last).
  struct Moment {
    double share = 0;
    std::function<void(std::size_t page, std::size_t pages)> act;
  };
  // Fills the inputs and forgets the outputs. With a moment, `count` must be one of whole pages.
  void prepare(Moment moment);
  Status run(Group& group, std::chrono::nanoseconds timeout = {});
  // Where the result is wrong; empty where it is right.
  std::string difference() const;

 private:
  std::size_t elements(const CollectiveSide& side) const;
  std::uint32_t expected(std::size_t index) const;
  void fill(std::size_t first, std::size_t count, std::uint32_t* into) const;

  What what_;
  const CollectiveShape& shape_;
  int rank_, size_;
  std::size_t input_ = 0, output_ = 0;  // elements; the output follows the input
  std::vector<std::uint32_t> plain_;
  std::unique_ptr<TouchedMemory> watched_;
  std::uint32_t* data_ = nullptr;
};

}  // namespace tutti::test
