#include "schedule/hazards.hpp"

#include <bit>
#include <memory>

namespace tutti::schedule {
namespace {

constexpr std::uint32_t kNone = ~0u;

// What happened to the places so far, by runs of neighbours that share their story: schedules of
// tens of thousands of ranks move thousands of chunks at once.
//
//   places  0 1 2 3 4 5 6 7      op 3 has written 2 … 5 and op 4 has read 4 … 7 since
//   begins  x   x   x   x        runs 0-1 (nothing), 2-3 (written), 4-5 (written, read), 6-7 (read)
class History {
 public:
  explicit History(std::size_t places)
      : begins_(places / kBits + 1), stories_(std::make_unique_for_overwrite<Story[]>(places + 1)) {
    stories_[0] = {static_cast<std::uint32_t>(places), kNone, kNone};
    mark(0);
  }

  // Calls wait(earlier) for those that a read, or a write, of these places has to wait for.
  template <class Wait>
  void before_read(std::uint32_t first, std::uint32_t end, Wait wait) {
    each_run(first, end, [&](const Story& story) {
      if (story.writer != kNone) wait(story.writer);
    });
  }
  template <class Wait>
  void before_write(std::uint32_t first, std::uint32_t end, Wait wait) {
    each_run(first, end, [&](const Story& story) {
      // With readers in between the last write is behind them anyhow.
      if (story.readers == kNone && story.writer != kNone) wait(story.writer);
      for (std::uint32_t i = story.readers; i != kNone; i = links_[i].next) wait(links_[i].op);
    });
  }
  void note_read(std::uint32_t first, std::uint32_t end, std::uint32_t op) {
    each_run(first, end, [&](Story& story) {
      links_.push_back({op, story.readers});
      story.readers = static_cast<std::uint32_t>(links_.size() - 1);
    });
  }
  void note_write(std::uint32_t first, std::uint32_t end, std::uint32_t op) {
    cut(end);
    cut(first);
    stories_[first] = {end, op, kNone};
    for (std::uint32_t at = first + 1; at < end; ++at) {
      if (at % kBits == 0 && end - at >= kBits) {
        begins_[at / kBits] = 0;
        at += kBits - 1;
      } else {
        begins_[at / kBits] &= ~(std::uint64_t{1} << at % kBits);
      }
    }
  }

 private:
  static constexpr std::uint32_t kBits = 64;
  struct Story {
    std::uint32_t end;      // of the run
    std::uint32_t writer;   // the last one
    std::uint32_t readers;  // since then: the first link of a list
  };
  // Runs that were one share the rest of their lists.
  struct Link {
    std::uint32_t op, next;
  };

  void mark(std::uint32_t at) { begins_[at / kBits] |= std::uint64_t{1} << at % kBits; }

  // Where the run begins that `at` lies in.
  std::uint32_t begin_of(std::uint32_t at) const {
    std::size_t word = at / kBits;
    std::uint64_t bits = begins_[word] << (kBits - 1 - at % kBits);
    if (bits != 0) return at - static_cast<std::uint32_t>(std::countl_zero(bits));
    do bits = begins_[--word];
    while (bits == 0);
    return static_cast<std::uint32_t>(word * kBits + kBits - 1) -
           static_cast<std::uint32_t>(std::countl_zero(bits));
  }

  // So that a run begins at `at`.
  void cut(std::uint32_t at) {
    const std::uint32_t begin = begin_of(at);
    if (begin == at || stories_[begin].end == at) return;
    stories_[at] = stories_[begin];
    stories_[begin].end = at;
    mark(at);
  }

  template <class Visit>
  void each_run(std::uint32_t first, std::uint32_t end, Visit visit) {
    cut(first);
    cut(end);
    for (std::uint32_t at = first; at < end; at = stories_[at].end) visit(stories_[at]);
  }

  std::vector<std::uint64_t> begins_;  // a bit for each place
  std::unique_ptr<Story[]> stories_;   // where a run begins
  std::vector<Link> links_;
};

}  // namespace

std::vector<Hazard> hazards(const Program& program) {
  const Places places(program);
  History history(places.count());
  std::vector<Hazard> found;
  found.reserve(2 * program.ops.size());
  // Chunks that follow each other are places that do: aliasing moves a space as a whole.
  const auto each_range = [&](const Op& op, auto visit) {
    each_access(op, [&](const Region& region, bool writes) {
      if (region.count == 0) return;
      const auto first = static_cast<std::uint32_t>(places.index(region.space, region.first));
      visit(first, first + region.count, writes);
    });
  };
  for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
    const std::size_t before = found.size();
    const auto wait = [&](std::uint32_t earlier) {
      const bool is_known = found.size() > before && found.back().first == earlier;
      if (!is_known) found.emplace_back(earlier, i);
    };
    // All of an op's accesses are compared with earlier ops before any is noted: an op never waits
    // for itself, also when it folds into one of its operands.
    each_range(program.ops[i], [&](std::uint32_t first, std::uint32_t end, bool writes) {
      writes ? history.before_write(first, end, wait) : history.before_read(first, end, wait);
    });
    each_range(program.ops[i], [&](std::uint32_t first, std::uint32_t end, bool writes) {
      writes ? history.note_write(first, end, i) : history.note_read(first, end, i);
    });
  }
  return found;
}

}  // namespace tutti::schedule
