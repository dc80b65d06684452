// tool/doctor/diagnosis.hpp - what an examination means: who is odd, what is short, what to do. Pure.
#pragma once

#include <string>
#include <vector>

#include "tool/doctor/examination.hpp"

namespace tutti::tool::doctor {

// What a host reaches at its best, towards other hosts, or among its own ranks where it is alone. 0: nothing was measured.
struct Vitals {
  double latency_s = 0;
  double send_bytes_per_s = 0;
  double receive_bytes_per_s = 0;
  double within_bytes_per_s = 0;  // between two ranks of the host
};

struct Ailment {
  enum class Level : std::uint8_t { note, mend };

  Level level = Level::note;
  std::string host;    // or several, "a, b"; empty: what is between two of them
  std::string what;    // "sends 2.4 MB/s where others reach 24 MB/s"
  std::string advice;  // "look at its cable, …"
};

std::vector<Vitals> vitals_of(const Examination& examination);
// Paths that decide whether a host or a cable is called odd: worth a second look, for others may have been in the way.
std::vector<Path> odd_paths(const Examination& examination);
// The graver ones first; what several hosts have in common once.
std::vector<Ailment> diagnose(const Examination& examination);

}  // namespace tutti::tool::doctor
