// schedule/hazards.hpp - which ops of one rank's program must wait for which others.
//
// Two ops depend on each other when they touch the same chunk and at least one writes. Chunks are
// compared after aliasing, so the answer for a program that works in place may be another one.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti::schedule {

// Calls visit(region, writes) for every region of this rank's own memory that the op touches.
template <class Visit>
void each_access(const Op& op, Visit visit) {
  switch (op.kind) {
    case OpKind::send: visit(op.src, false); return;
    case OpKind::recv: visit(op.dst, true); return;
    case OpKind::copy:
      visit(op.src, false);
      visit(op.dst, true);
      return;
    case OpKind::reduce:
      for (const Source& source : op.sources) {
        if (source.peer == kLocal) visit(source.region, false);
      }
      visit(op.dst, true);
      return;
  }
}

// Numbers the places of a program: one per chunk, the same one for chunks that are the same memory.
class Places {
 public:
  explicit Places(const Program& program)
      : program_(&program),
        outputs_(chunk_count(program, Space::output)),
        inputs_(chunk_count(program, Space::input)) {}

  std::size_t count() const { return outputs_ + inputs_ + program_->scratch.size(); }
  std::size_t index(Space space, std::uint32_t chunk) const {
    const Place place = resolve(*program_, space, chunk);
    switch (place.space) {
      case Space::output: return place.chunk;
      case Space::input: return outputs_ + place.chunk;
      case Space::scratch: break;
    }
    return outputs_ + inputs_ + place.chunk;
  }

 private:
  const Program* program_;
  std::size_t outputs_, inputs_;
};

// An op, and a later one that must wait for it; indices into program.ops. Ordered by the later one.
// Pairs that follow from others may be missing, a pair may stand twice. All regions must exist.
using Hazard = std::pair<std::uint32_t, std::uint32_t>;
std::vector<Hazard> hazards(const Program& program);

}  // namespace tutti::schedule
