// cuda/kernels/meeting.hpp - how a launch enters and leaves, by flags that all ranks see (job.hpp).
//
//   block 0    posts ─▶ raises `entered` ┐                          last block
//   block …                              ├▶ all `entered` up? tags as expected? ─▶ work ─▶ raises `left`,
//   block n                              ┘                                                 all `left` up?
//
// A flag is raised by one thread with release, behind a sync of its block: what the block's other threads, and
// blocks that were counted as through before, have written is then seen by whoever sees the flag. More fences
// than that would each cost every thread a microsecond.
//
// Flags count, and never go back: the epoch in device memory says how often this rank has left, so the
// flags of this launch are up at epoch + 1. A flag of kPoison or more, or the abort word, ends waiting.
#pragma once

#include "cuda/kernels/machine.hpp"

namespace tutti::cuda::kernels {

// What the threads of a block share.
struct Shared {
  Post posts[kMostRanks];
  Fault found[kMostRanks];
  std::uint64_t operands[kMostRanks];  // addresses, once they are resolved
  std::uint64_t targets[kMostRanks];
  std::uint64_t sources[kMostRanks];  // of the copies
};

// The same in all threads of a block; without abort, the same in all blocks.
struct Verdict {
  Fault fault = Fault::none;
  int peer = 0;
};

// The abort word lies in host memory, where a look takes a microsecond.
inline constexpr unsigned kLooksPerAbortLook = 1000;

TUTTI_DEVICE Fault await(const std::uint64_t* flag, std::uint64_t count,
                         const std::uint32_t* abort) {
  for (unsigned looks = 1;; ++looks) {
    const std::uint64_t value = load_acquire(flag);
    if (value >= kPoison) return Fault::aborted;
    if (value >= count) return Fault::none;
    if (looks % kLooksPerAbortLook == 0 && load_fresh(abort) != 0) return Fault::aborted;
    nap(looks);
  }
}

TUTTI_DEVICE void report(const Phase& phase, const Verdict& verdict) {
  // As fault_of, peer_of and ticket_of take it apart.
  const std::uint64_t word = phase.ticket << 16 | static_cast<std::uint64_t>(verdict.peer) << 8 |
                             static_cast<std::uint64_t>(verdict.fault);
  if (phase.fault != nullptr) store_release(phase.fault, word);
}

// Abort comes before a difference: then some peers' posts were never seen.
TUTTI_DEVICE Verdict first_found(const Phase& phase, const Shared& shared) {
  Verdict verdict;
  for (int p = phase.ranks - 1; p >= 0; --p) {
    const Fault fault = shared.found[p];
    const bool counts =
        verdict.fault == Fault::aborted ? fault == Fault::aborted : fault != Fault::none;
    if (counts) verdict = {fault, p};
  }
  return verdict;
}

// Every rank's post, by `fetch(rank, post)`, one rank per thread; then what is wrong with any of them.
template <class Fetch>
TUTTI_DEVICE Verdict gather_posts(const Phase& phase, Shared& shared, const Worker& worker,
                                  Fetch fetch) {
  bool fine = true;
  for (int p = worker.index; p < phase.ranks; p += worker.count) {
    Post post{};
    Fault fault = fetch(p, post);
    if (fault == Fault::none && post.tag != phase.tags[p]) fault = Fault::differs;
    shared.posts[p] = post;
    shared.found[p] = fault;
    fine = fine && fault == Fault::none;
  }
  if (!worker.any(!fine)) return {};
  const Verdict verdict = first_found(phase, shared);
  // All blocks find the same difference, and one tells; whoever gives up tells for itself.
  if (worker.index == 0 && (worker.block == 0 || verdict.fault == Fault::aborted))
    report(phase, verdict);
  return verdict;
}

// ---- the ways to enter

// One block alone reads host memory: each read takes the bus half a microsecond, one after the other.
// Block 0 is dispatched first, so the others never wait for one that does not run yet. It looks at the abort
// word, too: peers may not have entered at all, and been let go.
TUTTI_DEVICE Verdict enter_posted(const Phase& phase, Shared& shared, const Worker& worker) {
  Handout& handout = *phase.handout;
  if (worker.block != 0)
    return gather_posts(phase, shared, worker, [&](int p, Post& post) {
      for (unsigned looks = 1; load_acquire(&handout.ticket) != phase.ticket; ++looks) nap(looks);
      post = load_fresh(&handout.posts[p]);
      return load_fresh(&handout.aborted) != 0 ? Fault::aborted : Fault::none;
    });
  const Verdict verdict = gather_posts(phase, shared, worker, [&](int p, Post& post) {
    post = load_fresh(&phase.posts[p]);
    if (worker.blocks > 1) handout.posts[p] = post;
    return load_fresh(phase.meeting.abort) != 0 ? Fault::aborted : Fault::none;
  });
  if (worker.blocks > 1) {
    if (worker.index == 0) handout.aborted = verdict.fault == Fault::aborted;
    worker.sync();
    if (worker.index == 0) store_release(&handout.ticket, phase.ticket);
  }
  return verdict;
}

// Flags are up for good until this rank leaves; where one is not, `meet` was given up.
TUTTI_DEVICE Verdict enter_met(const Phase& phase, Shared& shared, const Worker& worker,
                               std::uint64_t epoch) {
  const Meeting& meeting = phase.meeting;
  return gather_posts(phase, shared, worker, [&](int p, Post& post) {
    const std::uint64_t value = load_acquire(&meeting.entered[p * kFlagStride]);
    if (value <= epoch || value >= kPoison) return Fault::aborted;
    post = load_fresh(&meeting.posts[p * phase.ranks + phase.rank]);
    return Fault::none;
  });
}

TUTTI_DEVICE Verdict enter_meet(const Phase& phase, Shared& shared, const Worker& worker,
                                std::uint64_t epoch) {
  const Meeting& meeting = phase.meeting;
  if (worker.block == 0) {
    for (int r = worker.index; r < phase.ranks; r += worker.count)
      meeting.posts[phase.rank * phase.ranks + r] = phase.mine[r];
    worker.sync();
    if (worker.index == 0) {
      store_release(&meeting.entered[phase.rank * kFlagStride], epoch + 1);
      if (phase.begun != nullptr) store_fresh(phase.begun, phase.ticket);
    }
  }
  return gather_posts(phase, shared, worker, [&](int p, Post& post) {
    const Fault fault = await(&meeting.entered[p * kFlagStride], epoch + 1, meeting.abort);
    if (fault == Fault::none) post = load_fresh(&meeting.posts[p * phase.ranks + phase.rank]);
    return fault;
  });
}

TUTTI_DEVICE Verdict enter(const Phase& phase, Shared& shared, const Worker& worker,
                           std::uint64_t epoch) {
  switch (phase.enter) {
    case Enter::resolved: break;
    case Enter::posted: return enter_posted(phase, shared, worker);
    case Enter::met: return enter_met(phase, shared, worker, epoch);
    case Enter::meet: return enter_meet(phase, shared, worker, epoch);
  }
  return {};
}

// ---- leaving

inline constexpr std::uint32_t kSomeBlockGaveUp = std::uint32_t{1} << 31;  // in Meeting::finished

// Counts this block as through. For the last one: resets the count and says whether all worked on.
struct Through {
  bool last = false;
  bool aborted = false;
};
TUTTI_DEVICE Through count_through(const Meeting& meeting, const Worker& worker, bool aborted) {
  if (worker.blocks == 1) return {true, aborted};
  if (aborted) fetch_or(meeting.finished, kSomeBlockGaveUp);
  const std::uint32_t before = fetch_add(meeting.finished, 1);
  const auto others = static_cast<std::uint32_t>(worker.blocks - 1);
  if ((before & ~kSomeBlockGaveUp) != others) return {};
  *meeting.finished = 0;
  return {true, (before & kSomeBlockGaveUp) != 0};
}

// What this rank wrote is seen by whoever sees its flag. A launch that was given up raises none: it has
// not done what peers would believe.
TUTTI_DEVICE void leave(const Phase& phase, const Worker& worker, const Verdict& verdict,
                        std::uint64_t epoch) {
  if (phase.leave == Leave::by_stream) return;
  const Meeting& meeting = phase.meeting;
  worker.sync();
  Through through;
  if (worker.index == 0) through = count_through(meeting, worker, verdict.fault == Fault::aborted);
  if (!worker.any(through.last && !through.aborted)) return;

  if (worker.index == 0) store_release(&meeting.left[phase.rank * kFlagStride], epoch + 1);
  bool aborted = false;
  for (int p = worker.index; p < phase.ranks; p += worker.count)
    if (await(&meeting.left[p * kFlagStride], epoch + 1, meeting.abort) != Fault::none) {
      aborted = true;
      report(phase, {Fault::aborted, p});
    }
  if (worker.any(aborted) || worker.index != 0) return;
  *meeting.epoch = epoch + 1;
  if (phase.done != nullptr) store_release(phase.done, phase.ticket);
}

// How often this rank has left before, where the launch needs to know.
TUTTI_DEVICE std::uint64_t epoch_of(const Phase& phase) {
  const bool meets = phase.enter == Enter::met || phase.enter == Enter::meet;
  return meets || phase.leave == Leave::meet ? load_fresh(phase.meeting.epoch) : 0;
}

}  // namespace tutti::cuda::kernels
