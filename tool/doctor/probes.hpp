// tool/doctor/probes.hpp - round trips and transfers between the ranks of a group.
//
// Ranks meet in rounds, as in a tournament: in each everybody has one partner, so that all pairs of a round are measured
// at the same time, and no rank by two others. First every pair of ranks plays ping-pong; then pairs within hosts move
// bytes, and then the first ranks of all hosts: what a host can do at its interface, with everybody else at work too.
#pragma once

#include <chrono>
#include <vector>

#include "tool/doctor/examination.hpp"
#include "tutti/group.hpp"

namespace tutti::tool::doctor {

struct ProbeOptions {
  std::chrono::nanoseconds transfer{};  // about how long each one takes
  int repeats = 3;  // of which the best counts: a disturbance only ever takes away
};

// Collective. What this rank has measured: paths that begin here.
Result<std::vector<Path>> probe(Group& group, const ProbeOptions& options);

// Collective, with the same paths on every rank: each transfer once more, alone, and for longer. What this rank measured.
Result<std::vector<Path>> probe_again(Group& group, const ProbeOptions& options,
                                      const std::vector<Path>& paths);

// The partner of `player` among 0 … players − 1, or -1: nobody. Rounds 0 … players − 2 (players − 1 where they are odd)
// bring everybody together with everybody, once.
int partner_in(int round, int player, int players);
int rounds_of(int players);

}  // namespace tutti::tool::doctor
