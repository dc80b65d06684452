#include "schedule/passes.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>

#include "schedule/compose.hpp"
#include "schedule/hazards.hpp"

namespace tutti::schedule {
namespace {

// Beyond the steps of any program, and the same for all ranks.
constexpr std::uint32_t kBarrierStep = 1U << 30;

// For each scratch chunk the ops that touch it, in program order.
class ScratchUses {
 public:
  explicit ScratchUses(const Program& program) : first_(program.scratch.size() + 1, 0) {
    each(program, [&](std::uint32_t, std::uint32_t chunk) { ++first_[chunk + 1]; });
    for (std::size_t c = 1; c < first_.size(); ++c) first_[c] += first_[c - 1];
    ops_.resize(first_.back());
    auto next = first_;
    each(program, [&](std::uint32_t op, std::uint32_t chunk) { ops_[next[chunk]++] = op; });
  }
  std::span<const std::uint32_t> of(std::uint32_t chunk) const {
    return std::span(ops_).subspan(first_[chunk], first_[chunk + 1] - first_[chunk]);
  }

 private:
  template <class Visit>
  static void each(const Program& program, Visit visit) {
    for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
      each_access(program.ops[i], [&](const Region& region, bool) {
        if (region.space != Space::scratch) return;
        for (std::uint32_t c = 0; c < region.count; ++c) visit(i, region.first + c);
      });
    }
  }
  std::vector<std::uint32_t> first_, ops_;
};

// Which ops wait, directly or not, for a send of this rank. A fold over the peers' memory must not:
// the peer's send ends only when the fold has read it, and the two might wait for each other.
std::vector<bool> waits_for_send(const Program& program) {
  std::vector<bool> waits(program.ops.size(), false);
  for (const auto& [earlier, later] : hazards(program)) {
    const OpKind kind = program.ops[earlier].kind;
    if (kind == OpKind::send || waits[earlier]) waits[later] = true;
  }
  return waits;
}

bool overlap(const Region& a, const Region& b) {
  return a.space == b.space && a.first < b.first + b.count && b.first < a.first + a.count;
}

// The recv that fills this operand of reduce `at` and can be dropped: it is the last to touch the
// operand before the reduce, and nobody needs what it received after that.
std::optional<std::uint32_t> feeding_recv(const Program& program, std::uint32_t at,
                                          const Source& operand, const ScratchUses& uses) {
  const Region& region = operand.region;
  const Op& reduce = program.ops[at];
  if (operand.peer != kLocal || region.space != Space::scratch || region.count == 0) return {};
  const auto times =
      std::count_if(reduce.sources.begin(), reduce.sources.end(),
                    [&](const Source& s) { return s.peer == kLocal && overlap(s.region, region); });
  if (times != 1) return {};
  const bool overwritten = reduce.dst == region;
  if (!overwritten && overlap(reduce.dst, region)) return {};
  std::optional<std::uint32_t> feeder = std::nullopt;
  for (std::uint32_t c = 0; c < region.count; ++c) {
    const auto list = uses.of(region.first + c);
    const auto mine = std::ranges::find(list, at);
    if (mine == list.begin() || (!overwritten && mine + 1 != list.end())) return {};
    const std::uint32_t before = *(mine - 1);
    if (feeder && *feeder != before) return {};
    feeder = before;
  }
  const Op& recv = program.ops[*feeder];
  if (recv.kind != OpKind::recv || recv.dst != region) return {};
  return feeder;
}

template <class Visit>
void each_region(Op& op, Visit visit) {
  visit(op.src);
  visit(op.dst);
  for (Source& source : op.sources) visit(source.region);
}

// Renumbers the scratch chunks so that only those in use remain.
void drop_unused_scratch(Program& program) {
  std::vector<std::uint32_t> renumbered(program.scratch.size(), 0);
  const ScratchUses uses(program);
  std::vector<std::uint64_t> kept;
  for (std::uint32_t c = 0; c < program.scratch.size(); ++c) {
    renumbered[c] = static_cast<std::uint32_t>(kept.size());
    if (!uses.of(c).empty()) kept.push_back(program.scratch[c]);
  }
  for (Op& op : program.ops) {
    each_region(op, [&](Region& region) {
      if (region.space == Space::scratch && region.count > 0) {
        region.first = renumbered[region.first];
      }
    });
  }
  program.scratch = std::move(kept);
}

}  // namespace

namespace {

// Where chunks of the caller's buffers lie in scratch: one after the other, in the order of the buffer
// that the caller knows them by, so that what was a region stays one.
class StagedPlaces {
 public:
  explicit StagedPlaces(const Program& program) : program_(program) {}

  // Makes room for a chunk, and for those beside it; `place` is resolved.
  std::uint32_t scratch_of(const Place& place) {
    std::optional<std::uint32_t>& base = bases_[static_cast<std::size_t>(place.space)];
    if (!base) {
      base = static_cast<std::uint32_t>(scratch_.size() + program_.scratch.size());
      for (std::uint32_t c = 0; c < chunk_count(program_, place.space); ++c)
        scratch_.push_back(extent_of(program_, place.space, c));
    }
    return *base + place.chunk;
  }
  Region staged(const Region& region) {
    if (region.space == Space::scratch || region.count == 0) return region;
    const Place first = resolve(program_, region.space, region.first);
    return {Space::scratch, scratch_of(first), region.count};
  }
  const std::vector<std::uint64_t>& scratch() const { return scratch_; }

 private:
  const Program& program_;
  std::array<std::optional<std::uint32_t>, 2> bases_;
  std::vector<std::uint64_t> scratch_;
};

// Which chunks of the caller's buffers are read as they were given, and which are written, in order.
struct StagedChunks {
  std::vector<Place> read, written;

  explicit StagedChunks(const Program& program) {
    const auto note = [](std::vector<Place>& list, const Place& place) {
      if (std::ranges::find(list, place) == list.end()) list.push_back(place);
    };
    for (const Op& op : program.ops)
      each_access(op, [&](const Region& region, bool writes) {
        if (region.space == Space::scratch) return;
        for (std::uint32_t c = 0; c < region.count; ++c) {
          const Place place = resolve(program, region.space, region.first + c);
          const bool is_made = std::ranges::find(written, place) != written.end();
          if (writes)
            note(written, place);
          else if (!is_made)
            note(read, place);
        }
      });
  }
};

Op copy_of(std::uint32_t step, const Region& to, const Region& from) {
  Op copy;
  copy.kind = OpKind::copy;
  copy.step = step;
  copy.dst = to;
  copy.src = from;
  return copy;
}

}  // namespace

Program stage(Program program) {
  StagedPlaces places(program);
  const StagedChunks chunks(program);
  std::vector<Op> ops;
  std::uint32_t last_step = 0;
  for (const Place& place : chunks.read)
    ops.push_back(
        copy_of(0, {Space::scratch, places.scratch_of(place), 1}, {place.space, place.chunk, 1}));
  for (const Op& op : program.ops) {
    Op& staged = ops.emplace_back(op);
    each_region(staged, [&](Region& region) { region = places.staged(region); });
    last_step = std::max(last_step, op.step);
  }
  for (const Place& place : chunks.written)
    ops.push_back(copy_of(last_step, {place.space, place.chunk, 1},
                          {Space::scratch, places.scratch_of(place), 1}));
  program.scratch.insert(program.scratch.end(), places.scratch().begin(), places.scratch().end());
  program.ops = std::move(ops);
  return program;
}

Program fuse_folds(Program program) {
  if (!has_reduction(program.collective)) return program;
  const ScratchUses uses(program);
  const auto waits = waits_for_send(program);
  std::vector<bool> dropped(program.ops.size(), false);
  for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind != OpKind::reduce || waits[i]) continue;
    // Operands are looked at before any is replaced, so that each is judged on the same program.
    std::vector<std::optional<std::uint32_t>> feeders;
    for (const Source& source : program.ops[i].sources) {
      feeders.push_back(feeding_recv(program, i, source, uses));
    }
    for (std::size_t s = 0; s < feeders.size(); ++s) {
      if (!feeders[s]) continue;
      const Op& recv = program.ops[*feeders[s]];
      Source& source = program.ops[i].sources[s];
      source = {recv.peer, recv.step, {}, source.raw};
      dropped[*feeders[s]] = true;
    }
  }
  std::vector<Op> kept;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (!dropped[i]) kept.push_back(std::move(program.ops[i]));
  }
  program.ops = std::move(kept);
  drop_unused_scratch(program);
  return program;
}

Program with_barrier(Program program, const Program& barrier) {
  std::vector<int> ranks(static_cast<std::size_t>(program.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  Placement placement;
  placement.ranks = ranks;
  placement.first_step = kBarrierStep;
  placement.first_extent = kNoBytes;
  append(program, barrier, placement);
  return program;
}

}  // namespace tutti::schedule
