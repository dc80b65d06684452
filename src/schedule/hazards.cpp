#include "schedule/hazards.hpp"

namespace tutti::schedule {
namespace {

constexpr std::uint32_t kNone = ~0u;

// What happened to each place so far: its last writer, and a linked list of those who read it
// since.
class History {
 public:
  explicit History(std::size_t places) : writer_(places, kNone), readers_(places, kNone) {}

  void before_read(std::size_t place, std::uint32_t op, std::vector<Hazard>& found) const {
    if (writer_[place] != kNone) found.emplace_back(writer_[place], op);
  }
  void before_write(std::size_t place, std::uint32_t op, std::vector<Hazard>& found) const {
    // With readers in between the last write is behind them anyhow.
    if (readers_[place] == kNone) before_read(place, op, found);
    for (std::uint32_t i = readers_[place]; i != kNone; i = links_[i].next) {
      found.emplace_back(links_[i].op, op);
    }
  }
  void note_read(std::size_t place, std::uint32_t op) {
    links_.push_back({op, readers_[place]});
    readers_[place] = static_cast<std::uint32_t>(links_.size() - 1);
  }
  void note_write(std::size_t place, std::uint32_t op) {
    writer_[place] = op;
    readers_[place] = kNone;
  }

 private:
  struct Link {
    std::uint32_t op, next;
  };
  std::vector<std::uint32_t> writer_, readers_;
  std::vector<Link> links_;
};

}  // namespace

std::vector<Hazard> hazards(const Program& program) {
  const Places places(program);
  History history(places.count());
  std::vector<Hazard> found;
  found.reserve(2 * program.ops.size());
  for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
    // All of an op's accesses are compared with earlier ops before any is noted: an op never waits
    // for itself, also when it folds into one of its operands.
    each_access(program.ops[i], [&](const Region& region, bool writes) {
      for (std::uint32_t c = 0; c < region.count; ++c) {
        const std::size_t place = places.index(region.space, region.first + c);
        writes ? history.before_write(place, i, found) : history.before_read(place, i, found);
      }
    });
    each_access(program.ops[i], [&](const Region& region, bool writes) {
      for (std::uint32_t c = 0; c < region.count; ++c) {
        const std::size_t place = places.index(region.space, region.first + c);
        writes ? history.note_write(place, i) : history.note_read(place, i);
      }
    });
  }
  return found;
}

}  // namespace tutti::schedule
