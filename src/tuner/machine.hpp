// tuner/machine.hpp - what messages, copies, folds and meetings cost on one machine: a value.
//
// Estimates read nothing else, so ranks that hold equal values predict alike. It is measured by
// group/calibrate.hpp, kept and sent as JSON (docs/formats/tuning.md), or written by hand for a
// machine that is not at hand.
//
//   const Machine& machine = built_in_machine();
//   machine.copy.seconds(1 << 20);     memcpy of a MiB, warm
//   machine.meet_seconds(8);           until 8 ranks of a host have seen each other's flags
//
// Thread-safety  a value; const methods may run at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cost/curve.hpp"
#include "tutti/status.hpp"

namespace tutti {
class Json;
}

namespace tutti::tuner {

using cost::Curve;
using cost::Sample;

// A kind of link, as the engine's messages see it.
struct LinkCost {
  double latency_s = 0;   // until a short message is there, once per step
  double message_s = 0;   // what every message or segment takes from the core that handles it
  double byte_s = 0;      // what every byte takes from it besides, while it is on its way (tcp)
  Curve bytes;            // what its bytes take beside that
  bool measured = false;  // on the machine that is named; else taken over from the built-in one

  friend bool operator==(const LinkCost&, const LinkCost&) = default;
};

struct Machine {
  std::string name;         // for people: the processor
  std::string date;         // of the measurement, UTC, such as 2026-11-15T05:08:44Z
  std::string fingerprint;  // of what the figures depend on; empty: of no machine in particular

  int cores = 0;  // that the ranks of a host share; 0: one for each
  LinkCost memory;
  LinkCost tcp;
  Curve copy;  // memcpy on one core, warm
  Curve fold;  // a += b on one core, warm, by the bytes of b
  Curve pull;  // process_vm_readv; empty: not permitted, or not known
  Curve meet;  // by number of ranks instead of bytes

  // Until all of `ranks` ranks on one host have seen the others' flags.
  double meet_seconds(int ranks) const { return ranks < 2 ? 0 : meet.seconds(ranks); }
  // How much longer work takes when `ranks` ranks of a host do it at once.
  double crowding(int ranks) const {
    return cores > 0 && ranks > cores ? static_cast<double>(ranks) / cores : 1;
  }

  friend bool operator==(const Machine&, const Machine&) = default;
};

// The constants of tuner/built_in.hpp.
const Machine& built_in_machine();

// docs/formats/tuning.md. Parsing what was printed gives an equal value.
std::string to_json(const Machine& machine);
// Code::corrupt where it is no JSON, else Code::invalid_argument; both say where and what.
Result<Machine> parse_machine(std::string_view json);
// The same of a document that is part of another.
Result<Machine> machine_of(const Json& document);

// For people: a few lines.
std::string describe(const Machine& machine);

}  // namespace tutti::tuner
