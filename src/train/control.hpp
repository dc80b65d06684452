// train/control.hpp - all that ranks must agree on before an update, in one vector of i64 that is
// summed once per step.
//
//   [ norm limbs | tokens | stops | meets | faults, one slot for each of up to 64 ranks | use counts, packed ]
//
// Faults: a rank writes into slot rank mod 64 the first thing it found not finite. With more than 64
// ranks two may share a slot; then the slot says so and names neither.
// Use counts: how many ranks used each parameter, in fields just wide enough for the group's size.
//
// Nothing overflows with up to 65,536 ranks and 2^30 parameters, which the constructor checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "train/exact_sum.hpp"

namespace tutti::train {

class Control {
 public:
  Control(int rank, int ranks, std::size_t parameters);

  // What this rank says. Fault: the first call counts; later ones change nothing. A parameter may be
  // said to be used more than once.
  void set_norm(const ExactSum& sum);
  void set_tokens(std::int64_t tokens);
  void set_stop();
  void set_meet();  // it wants to end with this step
  void set_loss_fault();
  void set_gradient_fault(std::size_t parameter, bool after_reduction);
  void set_used(std::size_t parameter);
  std::span<std::int64_t> vector() { return words_; }  // to be all_reduced with sum
  void clear();

  // What all said; after the all_reduce.
  struct SlotFault {
    int rank = -1;  // -1: several ranks share this slot
    bool is_loss = false;
    bool after_reduction = false;  // then `rank` only owns the shard in which it was found
    std::optional<std::size_t> parameter;
  };
  ExactSum norm() const;  // of the squares
  std::int64_t tokens() const;
  bool stop() const;
  bool meet() const;  // some rank wants to
  std::vector<SlotFault> slot_faults() const;
  int used_by(std::size_t parameter) const;  // how many ranks

 private:
  void set_fault(std::uint64_t payload);
  std::size_t first_count() const;  // of the words with use counts

  int rank_;
  std::size_t parameters_;
  std::size_t slots_;
  int field_bits_;
  std::size_t fields_per_word_;
  bool fault_told_ = false;
  std::vector<std::int64_t> words_;
};

}  // namespace tutti::train
