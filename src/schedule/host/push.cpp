#include "schedule/host/push.hpp"

#include <algorithm>

namespace tutti::schedule {
namespace {

constexpr std::size_t kWork = 1;  // the phase between the two meetings

// Nothing but moves, of at most one chunk for each rank.
bool only_moves_one_chunk(const HostForm& form) {
  return form.reach == Reach::mapped && form.shown.size() <= 1 && form.unaliased &&
         std::none_of(form.phases.begin(), form.phases.end(),
                      [](const HostPhase& phase) { return phase.fold.has_value(); });
}

// Whether a rank that shows its input has the same in its output: then it copies that, unless it works in place.
bool keeps_what_it_shows(const HostForm& form) {
  if (form.shown.empty() || form.shown[0].where != Spot::Where::input) return false;
  const std::uint64_t extent = extent_of(form.frame, Space::input, form.shown[0].index);
  for (std::uint32_t c = 0; c < chunk_count(form.frame, Space::output); ++c)
    if (extent_of(form.frame, Space::output, c) == extent) return true;
  return false;
}

}  // namespace

std::optional<std::vector<HostForm>> pushed(std::span<const HostForm> forms) {
  if (!std::all_of(forms.begin(), forms.end(), only_moves_one_chunk)) return {};
  const bool are_kept = std::any_of(forms.begin(), forms.end(), keeps_what_it_shows);
  if (forms[0].readers + (are_kept ? 1 : 0) < 2) return {};

  std::vector<HostForm> pushing(forms.begin(), forms.end());
  for (HostForm& form : pushing) {
    auto& moves = form.phases[kWork].moves;
    std::erase_if(moves, [](const HostMove& move) { return move.action == HostAction::give; });
    for (HostMove& move : moves)
      if (move.action == HostAction::take) move.givers_share = 1;
  }
  for (const HostForm& taker : forms)
    for (const HostMove& take : taker.phases[kWork].moves)
      if (take.action == HostAction::take)
        pushing[static_cast<std::size_t>(take.peer)].phases[kWork].moves.push_back(
            {HostAction::give, taker.frame.rank, take.from, take.to, 1});
  return pushing;
}

}  // namespace tutti::schedule
