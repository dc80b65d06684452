// schedule/host/lower.hpp - the pass from message programs to host forms.
//
// Found by pattern, never by name. The programs of all ranks fit when every message is either
//   shown    a chunk as the caller passed it, read by peers in phase 1, or
//   a result what one fold has made of shown chunks, read by peers in phase 2,
// and nobody forwards anything. All `direct` schedules do, and others for few ranks. Messages become
// reads of the sender's memory: of its window, or of the buffer itself where that can be reached.
//
// Pure. What ranks show, and to whom, is the same whether they work in place or not, so each rank can
// lower for itself: only `unaliased` depends on that, and travels with the arrival.
//
//   const Lowering lowering(programs);                    // of all ranks, after fuse_folds
//   if (!lowering.fits()) return by_messages();
//   HostForm form = lowering.form(rank, Reach::mapped);
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "schedule/host/form.hpp"

namespace tutti::schedule {

class Lowering {
 public:
  explicit Lowering(std::span<const Program> programs);
  ~Lowering();

  bool fits() const { return objection().empty(); }
  // Why they do not fit, as a sentence about the rank that does too much; empty when they do.
  const std::string& objection() const;
  // Whether there is a form for this reach: what only the kernel can read cannot be folded there,
  // and results cannot be put where nothing is mapped.
  bool allows(Reach reach) const;
  // The form of one rank. Needs fits() and allows(reach).
  HostForm form(int rank, Reach reach) const;

 private:
  class Parts;
  std::unique_ptr<const Parts> parts_;
};

// The forms of all ranks; empty when there is none.
std::optional<std::vector<HostForm>> lower(std::span<const Program> programs, Reach reach);

}  // namespace tutti::schedule
