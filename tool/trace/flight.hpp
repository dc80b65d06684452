// tool/trace/flight.hpp - what each rank did last: from flight-recorder dumps, and from traces.
//
// A dump (docs/formats/recorder.md) has what a rank had begun and where it failed. A rank that was
// killed leaves none; its trace (docs/formats/trace.md) still has what it had finished.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::tool::trace {

struct RecordedCall {
  std::string collective, dtype, reduce_op;
  std::uint64_t bytes = 0;
  std::string label;         // of the call, or of its group
  bool finished = false;     // else it was under way, or failed
  std::int64_t time_ns = 0;  // wall clock: when it was begun, or ended if it has
};

struct FlightGroup {
  std::string name;
  std::vector<int> ranks;                       // world ranks; empty: not known
  std::map<std::uint64_t, RecordedCall> calls;  // by sequence; the older ones are gone
};

struct Flight {
  int rank = 0;
  bool has_dump = false;
  bool has_trace = false;
  std::string reason;                           // why it was dumped
  std::int64_t dumped_ns = 0;                   // wall clock
  std::vector<int> lost;                        // world ranks whose link broke
  std::vector<std::string> labels;              // what the program calls each rank; empty: nothing
  std::map<std::uint32_t, FlightGroup> groups;  // by channel
};

struct Flights {
  int size = 0;               // ranks of the job; 0: nobody says
  std::vector<Flight> ranks;  // by rank; those that left something
  std::vector<std::string> remarks;
};

// Reads every dump and trace of `folder`. invalid_argument: there is neither; corrupt names the
// file.
Result<Flights> read_flights(const std::string& folder);
// One dump; `path` is for messages. For tests.
Result<Flight> parse_dump(const std::string& path, const std::string& text, int* size);

}  // namespace tutti::tool::trace
