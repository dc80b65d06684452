// tool/doctor/doctor.hpp - what `tutti doctor` was asked for, and its two roles.
//
//   launcher                                       ranks
//   tutti run, or --hosts over ssh  ── starts ──▶  probe, look at their hosts
//   examination ─▶ diagnosis ─▶ report  ◀─ JSON ── rank 0 gathers
//
// Inside a job that somebody else has started rank 0 reports itself.
#pragma once

#include <string>

#include "tool/doctor/probes.hpp"
#include "tool/run/options.hpp"

namespace tutti::tool::doctor {

struct DoctorOptions {
  int ranks = 0;  // 0: was not said
  std::string hosts;
  std::string hostfile;
  std::string remote_shell;
  std::string rendezvous;
  std::string time = "150 ms";
  bool json = false;
  bool is_rank = false;  // started by the launcher's role
  ProbeOptions probes;
};

// Collective; on rank 0 all of it, on the others nothing.
Result<Examination> examine(Group& group, const ProbeOptions& options);
// Starts ranks that examine, as `tutti run` starts ranks, and returns what they found; complains where they fail, and
// then `code` is not kDone.
Examination examine_with_own_ranks(const DoctorOptions& options, int& code);

}  // namespace tutti::tool::doctor
