#include "group/chooser.hpp"

#include <algorithm>
#include <bit>

namespace tutti::group {

void Chooser::use(std::shared_ptr<const tuner::Machine> machine, Log log) {
  machine_ = std::move(machine);
  log_ = std::move(log);
  chosen_.clear();
  predicted_.clear();
}

Result<tuner::Choice> Chooser::choose(const tuner::CallFacts& facts, Algorithm forced) {
  // One choice per power of two: all ranks round alike.
  tuner::CallFacts rounded = facts;
  rounded.bytes = facts.bytes == 0 ? 0 : std::bit_ceil(facts.bytes);
  const std::uint64_t key = static_cast<std::uint64_t>(facts.collective) |
                            static_cast<std::uint64_t>(facts.order) << 8 |
                            static_cast<std::uint64_t>(facts.uneven) << 16 |
                            static_cast<std::uint64_t>(facts.symmetric) << 17 |
                            static_cast<std::uint64_t>(facts.whole_folds) << 18 |
                            static_cast<std::uint64_t>(facts.has_switch) << 19 |
                            static_cast<std::uint64_t>(std::bit_width(rounded.bytes)) << 24 |
                            static_cast<std::uint64_t>(forced) << 40;
  const auto at = chosen_.find(key);
  if (at != chosen_.end()) return at->second;
  auto choice = forced == Algorithm::automatic ? choose_among_all(rounded)
                                               : tuner::choose_forced(rounded, forced, *machine_);
  if (choice.ok()) chosen_.emplace(key, *choice);
  return choice;
}

std::pair<Nanoseconds, Nanoseconds> Chooser::predict(const tuner::CallFacts& facts,
                                                     Algorithm algorithm) {
  const std::uint64_t key = static_cast<std::uint64_t>(facts.collective) |
                            static_cast<std::uint64_t>(algorithm) << 8 |
                            static_cast<std::uint64_t>(facts.bytes) << 16;
  if (const auto at = predicted_.find(key); at != predicted_.end()) return at->second;
  std::pair<Nanoseconds, Nanoseconds> times{0, 0};
  tuner::CallFacts exact = facts;
  auto any = tuner::choose_forced(exact, algorithm, *machine_);
  if (any.ok() && any->predicted != tuner::kUnknownTime) times.first = any->predicted;
  exact.symmetric = true;
  times.second = times.first;
  if (auto shared = tuner::choose_forced(exact, algorithm, *machine_); shared.ok())
    times.second = std::min(times.first, shared->predicted);
  predicted_.emplace(key, times);
  return times;
}

Result<tuner::Choice> Chooser::choose_among_all(const tuner::CallFacts& facts) const {
  if (!log_.enabled(Level::info, Subsystem::tune)) return tuner::choose(facts, *machine_);
  const std::vector<tuner::Choice> choices = tuner::candidates(facts, *machine_);
  log_.info(Subsystem::tune, "{}", tuner::describe(facts, choices));
  return choices.front();
}

}  // namespace tutti::group
