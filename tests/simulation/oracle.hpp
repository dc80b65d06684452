// tests/simulation/oracle.hpp - what is promised of every run, whatever happens in it.
#pragma once

#include <string>
#include <vector>

#include "simulation/simulation.hpp"

namespace tutti::simulation {

// Promises that this run broke, in words; empty: it kept them all.
//   it ends; nobody ends a collective that not all have come to; what ends well has the right data
//   a fault that the library promises to bear changes nothing
//   any other ends in the right error on every rank that it concerns, and the error names the culprit
std::vector<std::string> broken_promises(const Outcome& outcome);

}  // namespace tutti::simulation
