// engine/host_plan.hpp - the host forms of a call bound to sizes: chunks turned into bytes.
//
// Made once per kind of call; bound again only when a call comes with other sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/launch.hpp"
#include "schedule/host/forms.hpp"

namespace tutti::engine {

// A chunk's way, in bytes from the beginning of each side.
struct BoundMove {
  schedule::HostAction action = schedule::HostAction::copy;
  int peer = 0;
  schedule::Space from_space = schedule::Space::input;
  schedule::Space to_space = schedule::Space::output;
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t packed = 0;  // in the line or window of whoever shows it
  std::uint32_t slot = 0;  //   and in pieces
  std::size_t bytes = 0;
  std::size_t split = 0;   // bytes before this are the taker's to move, the rest the giver's
  std::size_t growth = 1;  // more than 1: of results that are wider than what was shown
};

struct BoundFold {
  struct Operand {
    int peer = schedule::kLocal;
    schedule::Space space = schedule::Space::input;  // own: where it lies
    std::size_t from = 0;
    std::size_t packed = 0;
    std::uint32_t slot = 0;
    bool raw = false;
  };
  struct Put {
    int peer = 0;
    std::size_t to = 0;
  };
  schedule::Space to_space = schedule::Space::output;
  std::size_t to = 0;
  std::size_t bytes = 0;  // of an operand; its results may have more
  std::vector<Operand> operands;
  std::vector<Put> puts;
  bool keeps_result = false;
  bool finish = false;
  bool balanced = false;
};

struct BoundPhase {
  std::vector<BoundMove> moves;
  bool has_fold = false;
  BoundFold fold;
};

struct BoundForm {
  const schedule::HostForm* form = nullptr;
  std::uint64_t version = 0;  // of the sizes that it is bound to
  std::vector<BoundPhase> phases;
};

class HostPlan {
 public:
  explicit HostPlan(schedule::HostForms forms);
  HostPlan(const HostPlan&) = delete;  // its bound forms point into it
  HostPlan& operator=(const HostPlan&) = delete;

  const schedule::HostForms& forms() const { return forms_; }
  // Binds the plan to the launch's sizes; nothing happens when they are those of the last time, and
  // all parts are alike.
  void bind(const Launch& launch, const schedule::HostFacts& facts);
  // Since bind(): how data goes if nothing can be reached, and that form.
  const schedule::HostWay& way() const { return way_; }
  const BoundForm& window() const { return window_; }
  // The others are bound when they are asked for first.
  const BoundForm& mapped(const Launch& launch) { return up_to_date(mapped_, launch); }
  const BoundForm& mapped_source(const Launch& launch) {
    return up_to_date(mapped_source_, launch);
  }
  const BoundForm& readable(const Launch& launch) { return up_to_date(readable_, launch); }

 private:
  const BoundForm& up_to_date(BoundForm& bound, const Launch& launch);

  schedule::HostForms forms_;
  std::uint64_t version_ = 0;
  std::size_t input_bytes_ = 0;
  std::size_t output_bytes_ = 0;
  Dtype dtype_ = Dtype::u8;
  bool widens_ = false;
  bool even_ = true;
  schedule::HostWay way_;
  BoundForm window_;
  BoundForm mapped_;
  BoundForm mapped_source_;
  BoundForm readable_;
};

}  // namespace tutti::engine
