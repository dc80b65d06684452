// cuda/kernels/phase.hpp - what a kernel does from entering to leaving, for each kind of kernel.
#pragma once

#include "cuda/kernels/copy.hpp"
#include "cuda/kernels/fold.hpp"
#include "cuda/kernels/meeting.hpp"
#include "cuda/kernels/shaped_fold.hpp"

namespace tutti::cuda::kernels {

TUTTI_DEVICE std::uint64_t address_of(const Place& place, const Shared& shared, bool target) {
  if (place.peer < 0) return place.at;
  const Post& post = shared.posts[place.peer];
  return place.at + (target ? post.target : post.source);
}

// Works out all addresses, and whether those of the fold lie alike within 16 bytes.
TUTTI_DEVICE bool resolve(const Phase& phase, Shared& shared, const Worker& worker) {
  const Fold& fold = phase.fold;
  const std::uint64_t first = fold.bytes == 0 ? 0 : address_of(fold.operands[0], shared, false);
  std::uint64_t unlike = 0;
  for (int i = worker.index; i < 3 * kMostRanks; i += worker.count) {
    const int at = i % kMostRanks;
    if (i / kMostRanks == 0 && at < phase.copy_count) {
      shared.sources[at] = address_of(phase.copies[at].from, shared, false);
    } else if (fold.bytes == 0) {
      continue;
    } else if (i / kMostRanks == 1 && at < fold.operand_count) {
      shared.operands[at] = address_of(fold.operands[at], shared, false);
      unlike |= shared.operands[at] ^ first;
    } else if (i / kMostRanks == 2 && at < fold.target_count) {
      const std::uint64_t target = address_of(fold.targets[at], shared, true);
      shared.targets[at] = target;
      if (target != 0) unlike |= target ^ first;
    }
  }
  return !worker.any(unlike % sizeof(Quad) != 0);
}

// Enters, does `work(alike)` where nothing is wrong, and leaves.
template <class Work>
TUTTI_DEVICE void run_between(const Phase& phase, Shared& shared, const Worker& worker, Work work) {
  const std::uint64_t epoch = epoch_of(phase);
  const Verdict verdict = enter(phase, shared, worker, epoch);
  if (verdict.fault == Fault::none) work(resolve(phase, shared, worker));
  leave(phase, worker, verdict, epoch);
}

// E: the dtype's element. Fold::copies is for the kernel below.
template <class E>
TUTTI_DEVICE void run_fold_phase(const Phase& phase, Shared& shared, const Worker& worker) {
  run_between(phase, shared, worker, [&](bool alike) {
    run_copies(phase, shared, worker);
    const Fold& fold = phase.fold;
    const bool whole = alike && shared.operands[0] % sizeof(typename E::Bits) == 0;
    const Cut cut = cut_of(shared.operands[0], fold.bytes, whole);
    if constexpr (std::is_same_v<E, TruthElement>)
      fold_truths(fold, shared, cut, worker);
    else
      fold_numbers<E>(fold, shared, cut, worker);
  });
}

// The same for folds that are balanced or widen: of floats. A wider target lies like its operand only at
// multiples of 16.
template <class E>
TUTTI_DEVICE void run_shaped_fold_phase(const Phase& phase, Shared& shared, const Worker& worker) {
  constexpr bool kNarrow = sizeof(typename E::Bits) < sizeof(typename E::Number);
  run_between(phase, shared, worker, [&](bool alike) {
    run_copies(phase, shared, worker);
    const Fold& fold = phase.fold;
    const std::uint64_t first = shared.operands[0];
    const std::uint64_t unit = fold.widens != 0 ? sizeof(Quad) : sizeof(typename E::Bits);
    const Cut cut = cut_of(first, fold.bytes, alike && first % unit == 0);
    if constexpr (kNarrow) {
      if (fold.widens != 0) return fold_shaped<WidenedElement<E>, true>(fold, shared, cut, worker);
    }
    fold_shaped<E, false>(fold, shared, cut, worker);
  });
}

TUTTI_DEVICE void run_copy_phase(const Phase& phase, Shared& shared, const Worker& worker) {
  run_between(phase, shared, worker, [&](bool alike) {
    run_copies(phase, shared, worker);
    const Fold& fold = phase.fold;
    if (fold.bytes != 0)
      copy_fold(fold, shared, cut_of(shared.operands[0], fold.bytes, alike), alike, worker);
  });
}

TUTTI_DEVICE void run_meet(const Phase& phase, Shared& shared, const Worker& worker) {
  enter_meet(phase, shared, worker, load_fresh(phase.meeting.epoch));
}

}  // namespace tutti::cuda::kernels
