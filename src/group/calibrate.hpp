// group/calibrate.hpp - measures what copies, folds, pulls and meetings cost on this machine.
//
// Everything here is local to one process: rank 0 measures for all, while the others sleep. Ranks
// that meet are played by threads, each on a processor of its own as far as there are enough; a
// process costs the same but for the switch between two that share a processor, which is a little
// dearer. What links cost is measured by group/calibrate_links.hpp.
//
// Failure        what cannot be measured (no memory, no thread, no permission) keeps the built-in
//                figure, or stays empty where that is a figure too (pull).
#pragma once

#include <vector>

#include "core/clock.hpp"
#include "tuner/machine.hpp"

namespace tutti::group {

// The steady clock.
double now_s();

// When measuring has to end, and how much of the time a part of it may take.
class Budget {
 public:
  explicit Budget(Nanoseconds all) : all_(all), end_(deadline_after(steady_clock().now(), all)) {}

  double left_s() const;
  // A budget within this one.
  Budget part(Nanoseconds most) const;
  // The same, as a share of what this one had at first.
  Budget share(double part_of_all) const;

 private:
  Nanoseconds all_;
  Nanoseconds end_;
};

// The fastest quarter, at least one: whatever else runs on the machine only ever adds time.
std::vector<double> undisturbed(std::vector<double> seconds);
// Their median.
double typical(std::vector<double> seconds);

// Which part of the time since it was made this thread wanted to run and could not, because others
// did. 0 where the kernel does not tell.
class Disturbance {
 public:
  Disturbance();
  double share() const;

 private:
  double start_s_;
  double delay_s_;
};

// Seconds of a core per byte that it sends or receives by tcp; 0: could not be measured.
double measure_tcp_byte(const Budget& budget);

// The built-in machine with what was measured here in place of its figures. `cpus`: the processors
// that ranks of this host may use. Takes a few tenths of a second, and never much more than
// `budget`.
tuner::Machine measure_machine(const std::vector<int>& cpus, const Budget& budget);

// Seconds until `ranks` threads have seen each other's flags; 0: could not be measured.
double measure_meeting(int ranks, const std::vector<int>& cpus, const Budget& budget);

}  // namespace tutti::group
