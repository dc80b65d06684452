#include "schedule/compose.hpp"

#include "core/check.hpp"

namespace tutti::schedule {
namespace {

class Mapping {
 public:
  Mapping(const Placement& placement, std::size_t scratch)
      : placement_(placement), scratch_(static_cast<std::uint32_t>(scratch)) {}

  // Scratch is the part's own, and lies close.
  Region region(const Region& part) const {
    const Region begin = begin_of(part.space);
    const std::uint32_t step = part.space == Space::scratch ? placement_.scale : stride();
    TUTTI_CHECK(step == placement_.scale || part.count == 1);
    return {begin.space, begin.first + part.first * step, part.count * placement_.scale};
  }
  std::uint64_t extent(std::uint64_t part) const {
    return placement_.first_extent + part * stride();
  }
  int rank(int part) const {
    return part == kLocal ? kLocal : placement_.ranks[static_cast<std::size_t>(part)];
  }
  std::uint32_t step(std::uint32_t part) const { return placement_.first_step + part; }

  Source source(const Source& part) const {
    Source mapped = part;
    mapped.raw = part.raw && placement_.raw;
    if (part.peer == kLocal) {
      mapped.region = region(part.region);
    } else {
      mapped.peer = rank(part.peer);
      mapped.step = step(part.step);
    }
    return mapped;
  }

 private:
  std::uint32_t stride() const {
    return placement_.stride > 0 ? placement_.stride : placement_.scale;
  }
  Region begin_of(Space space) const {
    switch (space) {
      case Space::input: return placement_.input;
      case Space::output: return placement_.output;
      case Space::scratch: break;
    }
    return {Space::scratch, scratch_, 0};
  }
  const Placement& placement_;
  std::uint32_t scratch_;
};

// Fields that an op does not use stay as they are, so that programs compare equal.
Op map_op(const Mapping& mapping, const Op& part, bool finish) {
  Op op = part;
  op.step = mapping.step(part.step);
  op.peer = mapping.rank(part.peer);
  if (part.dst.count > 0) op.dst = mapping.region(part.dst);
  if (part.src.count > 0) op.src = mapping.region(part.src);
  for (Source& source : op.sources) source = mapping.source(source);
  op.finish = part.finish && finish;
  return op;
}

class Renaming {
 public:
  Renaming(const Program& program, std::span<const int> walk)
      : walk_(walk),
        cut_(program.cut),
        in_parts_(extent_count(program.collective, program.size, program.cut) > program.cut),
        chunks_{chunk_count(program, Space::input), chunk_count(program, Space::output)} {}

  int rank(int place) const {
    return place == kLocal ? kLocal : walk_[static_cast<std::size_t>(place)];
  }
  // Extents are numbered by rank where there are parts.
  std::uint64_t extent(std::uint64_t id) const {
    return in_parts_ ? static_cast<std::uint64_t>(walk_[id / cut_]) * cut_ + id % cut_ : id;
  }
  void apply(Region& region) const {
    if (!in_parts_ || region.count == 0 || region.space == Space::scratch) return;
    if (chunks_[region.space == Space::output] <= cut_) return;  // the own part alone
    TUTTI_CHECK(region.count == 1);
    region.first = static_cast<std::uint32_t>(extent(region.first));
  }

 private:
  std::span<const int> walk_;
  std::uint32_t cut_;
  bool in_parts_;
  std::uint32_t chunks_[2];
};

}  // namespace

Program renamed(Program program, std::span<const int> walk) {
  const Renaming renaming(program, walk);
  program.rank = renaming.rank(program.rank);
  program.root = renaming.rank(program.root);
  for (std::uint64_t& extent : program.scratch) extent = renaming.extent(extent);
  for (Op& op : program.ops) {
    op.peer = renaming.rank(op.peer);
    renaming.apply(op.dst);
    renaming.apply(op.src);
    for (Source& source : op.sources) {
      source.peer = renaming.rank(source.peer);
      if (source.peer == kLocal) renaming.apply(source.region);
    }
  }
  return program;
}

void append(Program& whole, const Program& part, const Placement& placement) {
  const Mapping mapping(placement, whole.scratch.size());
  for (std::uint64_t extent : part.scratch) {
    for (std::uint32_t i = 0; i < placement.scale; ++i) {
      whole.scratch.push_back(mapping.extent(extent) + i);
    }
  }
  for (const Op& op : part.ops) whole.ops.push_back(map_op(mapping, op, placement.finish));
}

}  // namespace tutti::schedule
