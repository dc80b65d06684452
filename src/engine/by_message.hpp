// engine/by_message.hpp - a run whose data come in messages, over the links.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/run.hpp"
#include "engine/segments.hpp"

namespace tutti::engine {

// The ranks with whom messages of a call are exchanged, and those of them who may hear of it with the first
// data that they are sent; both sorted.
struct Company {
  std::vector<int> peers;
  std::vector<int> told_with_data;
};

class ByMessage : public Run {
 public:
  // Of the call under way.
  virtual const Company& company() const = 0;
  // A segment of this collective has come. One that does not fit is a failure, Code::corrupt.
  virtual void deliver(int peer, const transport::Header& header, Segment segment) = 0;
  // Where the payload of such a segment can be written at once; null: it has to wait for its turn.
  virtual std::byte* place(int peer, const transport::Header& header) const = 0;
};

}  // namespace tutti::engine
