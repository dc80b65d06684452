// Every request that the builders' tests try: sizes, roots, hosts, and who works in place.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "schedule/catalog.hpp"

namespace tutti::schedule {

// Of a group that is proved. Sanitizers make proofs twenty times slower, and look for other things than wrong
// schedules.
inline int most_ranks() { return std::getenv("TUTTI_TEST_REDUCED") ? 17 : 64; }

enum class Mode { out_of_place, in_place, mixed };
inline constexpr Mode kModes[] = {Mode::out_of_place, Mode::in_place, Mode::mixed};

// The programs of all ranks; `mixed`: every second rank works in place.
inline Result<std::vector<Program>> build_world(Algorithm algorithm, Request request, Mode mode) {
  std::vector<Program> programs;
  const Entry* entry = find(request.collective, algorithm);
  const int count = entry != nullptr ? entry->programs_of(request.size) : request.size;
  for (request.rank = 0; request.rank < count; ++request.rank) {
    request.in_place = mode == Mode::in_place || (mode == Mode::mixed && request.rank % 2 == 1);
    auto program = build(algorithm, request);
    if (!program.ok()) return program.status();
    programs.push_back(*std::move(program));
  }
  return programs;
}

// Hosts of n ranks in several layouts: even blocks, dealt out in turn, and of all sizes.
inline std::vector<std::vector<int>> host_layouts(int n) {
  std::vector<std::vector<int>> layouts(4, std::vector<int>(static_cast<std::size_t>(n)));
  int uneven_host = 0, room = 1;
  for (int r = 0; r < n; ++r) {
    const auto at = static_cast<std::size_t>(r);
    layouts[0][at] = r / 4;
    layouts[1][at] = 7 - r % 3;
    layouts[2][at] = uneven_host;
    layouts[3][at] = r / ((n + 1) / 2);
    if (--room == 0) room = 1 + (++uneven_host % 5);
  }
  return layouts;
}

// Whether an algorithm takes ranks in the order of Request::walk.
inline bool walks(Algorithm algorithm) {
  return algorithm == Algorithm::ring || algorithm == Algorithm::binomial_tree ||
         algorithm == Algorithm::double_binary_tree || algorithm == Algorithm::hierarchical;
}

// All ranks, in an order without rhyme: every fifth of them, or seventh.
inline std::vector<int> odd_walk(int n) {
  const int stride = n % 5 != 0 ? 5 : n % 7 != 0 ? 7 : 11;
  std::vector<int> walk;
  for (int i = 0; i < n; ++i) walk.push_back((3 + i * stride) % n);
  return walk;
}

// Calls visit(request) for every size up to `most`, every root that matters, and the variants that
// the entry's algorithm knows. Hosts live as long as the call.
template <class Visit>
void each_request(const Entry& entry, int least, int most, Visit visit,
                  ReductionOrder order = ReductionOrder::any) {
  for (int n = least; n <= most; ++n) {
    std::vector<std::vector<int>> layouts{{}};
    if (wants_hosts(entry.algorithm)) layouts = host_layouts(n);
    for (std::size_t l = 0; l < layouts.size(); ++l) {
      const std::vector<int>& hosts = layouts[l];
      for (int root = 0; root < (has_root(entry.collective) ? n : 1); ++root) {
        // Of large groups each root has one layout of hosts.
        if (n > 17 && root > 0 && static_cast<std::size_t>(root) % layouts.size() != l) continue;
        Request request{.collective = entry.collective, .size = n, .root = root};
        request.host_of = hosts;
        request.order = order;
        if (entry.applies && !entry.applies(request)) continue;
        visit(request);
        // Of large groups few roots are enough: where it stands on the walk is all there is to it.
        if (walks(entry.algorithm) && (n <= 17 || root % 29 == 0)) {
          const std::vector<int> walk = odd_walk(n);
          request.walk = walk;
          visit(request);
          request.walk = {};
        }
        if (entry.algorithm != Algorithm::direct || entry.collective != Collective::all_reduce) {
          continue;
        }
        request.shots = 1;
        visit(request);
      }
    }
  }
}

inline std::string describe(const Entry& entry, const Request& request, Mode mode) {
  const char* modes[] = {"out of place", "in place", "mixed"};
  return std::string(to_string(entry.collective)) + " " + std::string(to_string(entry.algorithm)) +
         " n=" + std::to_string(request.size) + " root=" + std::to_string(request.root) +
         " order=" + std::string(to_string(request.order)) + " " + modes[static_cast<int>(mode)];
}

}  // namespace tutti::schedule
