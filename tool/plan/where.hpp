// tool/plan/where.hpp - where the ranks run that calibrate and validate measure with: on this host, or on
// several, in the words of `tutti run`.
#pragma once

#include <string>
#include <vector>

#include "tool/run/hosts.hpp"
#include "tutti/status.hpp"

namespace CLI {
class App;
}

namespace tutti::tool::plan {

struct WhereWords {
  int ranks = 0;
  std::string hosts;
  std::string remote_shell;
  std::string rendezvous;
};

struct Where {
  int ranks = 2;            // in all
  std::vector<Host> hosts;  // empty: this one
  std::string remote_shell;
  std::string rendezvous;

  bool spans_hosts() const { return hosts.size() > 1; }
  int per_host() const { return hosts.empty() ? ranks : hosts.front().ranks; }
  // The host of each of the first `n` ranks; empty: they are all here.
  std::vector<int> host_of(int n) const;
};

// -n, --hosts, --ssh and --rendezvous.
void add_where(CLI::App& parser, WhereWords& words);
// Code::invalid_argument names the flag. Hosts take as many ranks each: what is measured holds for hosts that
// are alike.
Result<Where> understand(const WhereWords& words);

}  // namespace tutti::tool::plan
