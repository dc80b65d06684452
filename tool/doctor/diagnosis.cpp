#include "tool/doctor/diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "plan/units.hpp"

namespace tutti::tool::doctor {
namespace {

using plan::short_text;
using plan::Unit;
using Level = Ailment::Level;

// A host is odd below this share of what the others reach. Equal hosts on a quiet network are within a tenth of each
// other; the rest is room for those that are neither: a fault worth finding costs more than half.
constexpr double kOddShare = 0.5;
constexpr double kOddLatency = 5;  // times as long, and at least this much longer:
constexpr double kOddLatencyS = 200e-6;
constexpr double kMuchLoad = 0.5;             // of the processors, before anything was measured
constexpr std::int64_t kLittleShm = 1 << 30;  // containers get 64 MiB where nothing is said

std::string rate(double bytes_per_s) { return short_text(bytes_per_s, Unit::bytes_per_s); }
std::string size(std::int64_t bytes) { return short_text(static_cast<double>(bytes), Unit::bytes); }

// The middle one; of two the better, which half of the hosts reach.
double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Two hosts of one name, such as containers, are told apart by their number.
std::vector<std::string> names_of(const Examination& examination) {
  std::map<std::string, int> seen;
  for (const HostRecord& host : examination.hosts) ++seen[host.name];
  std::vector<std::string> names;
  for (std::size_t i = 0; i < examination.hosts.size(); ++i) {
    const std::string& name = examination.hosts[i].name;
    names.push_back(seen[name] > 1 ? fmt::format("{} (host {})", name, i) : name);
  }
  return names;
}

// What several hosts have in common is said once.
std::vector<Ailment> merged(std::vector<Ailment> findings) {
  std::vector<Ailment> kept;
  for (Ailment& finding : findings) {
    const auto same = std::find_if(kept.begin(), kept.end(), [&](const Ailment& other) {
      return !other.host.empty() && other.what == finding.what && other.advice == finding.advice;
    });
    if (same == kept.end())
      kept.push_back(std::move(finding));
    else
      same->host += ", " + finding.host;
  }
  return kept;
}

class Diagnosis {
 public:
  explicit Diagnosis(const Examination& examination)
      : examination_(examination), names_(names_of(examination)), vitals_(vitals_of(examination)) {}

  std::vector<Path> odd_paths() {
    compare_rates(&Vitals::send_bytes_per_s, "sends");
    compare_rates(&Vitals::receive_bytes_per_s, "receives");
    std::vector<Path> odd;
    for (const Path& path : examination_.paths)
      if (is_odd(path) || is_best_of_a_slow_host(path)) odd.push_back(path);
    return odd;
  }

  std::vector<Ailment> run() {
    compare_rates(&Vitals::send_bytes_per_s, "sends");
    compare_rates(&Vitals::receive_bytes_per_s, "receives");
    compare_latencies();
    look_for_cables();
    for (std::size_t i = 0; i < examination_.hosts.size(); ++i) {
      look_at_limits(examination_.hosts[i], names_[i]);
      look_at_settings(examination_.hosts[i], names_[i]);
      look_at_buffers(examination_.hosts[i], vitals_[i], names_[i]);
    }
    look_for_differences();
    std::stable_sort(findings_.begin(), findings_.end(), [](const Ailment& a, const Ailment& b) {
      return a.level == Level::mend && b.level == Level::note;
    });
    return merged(std::move(findings_));
  }

 private:
  void mend(const std::string& host, std::string what, std::string advice) {
    findings_.push_back({Level::mend, host, std::move(what), std::move(advice)});
  }
  void note(const std::string& host, std::string what, std::string advice) {
    findings_.push_back({Level::note, host, std::move(what), std::move(advice)});
  }

  int host_of(int rank) const { return examination_.host_of[static_cast<std::size_t>(rank)]; }
  const std::string& name_of(int rank) const {
    return names_[static_cast<std::size_t>(host_of(rank))];
  }

  // With two hosts nobody can say which of them is odd.
  bool can_compare() const { return examination_.hosts.size() >= 3; }

  void compare_rates(double Vitals::*rate_of, const char* verb) {
    if (!can_compare()) return;
    std::vector<double> rates;
    for (const Vitals& vitals : vitals_) rates.push_back(vitals.*rate_of);
    const double usual = middle(rates);
    for (std::size_t i = 0; i < vitals_.size(); ++i) {
      if (vitals_[i].*rate_of >= kOddShare * usual) continue;
      slow_.push_back(i);
      mend(names_[i],
           fmt::format("{} {} at its best, where the others reach {}", verb,
                       rate(vitals_[i].*rate_of), rate(usual)),
           "look at its cable and switch port, the speed of its interface (ethtool), a shaper (tc "
           "qdisc), TUTTI_INTERFACE, and who else uses it");
    }
  }

  void compare_latencies() {
    if (!can_compare()) return;
    std::vector<double> latencies;
    for (const Vitals& vitals : vitals_) latencies.push_back(vitals.latency_s);
    const double usual = middle(latencies);
    for (std::size_t i = 0; i < vitals_.size(); ++i)
      if (latencies[i] > std::max(kOddLatency * usual, usual + kOddLatencyS))
        mend(names_[i],
             fmt::format("takes {} for a message at its best, where the others take {}",
                         short_text(latencies[i], Unit::seconds), short_text(usual, Unit::seconds)),
             "look for a longer way to it, a busy host, or processors that sleep deeply");
  }

  bool is_slow(int host) const {
    return std::find(slow_.begin(), slow_.end(), static_cast<std::size_t>(host)) != slow_.end();
  }

  // Both hosts do well with others, or in the other direction: something between them is odd.
  bool is_odd(const Path& path) const {
    const int from = host_of(path.from);
    const int to = host_of(path.to);
    if (from == to || path.bytes_per_s <= 0 || is_slow(from) || is_slow(to)) return false;
    return path.bytes_per_s < kOddShare * usual_rate(path);
  }

  // What speaks for a slow host, if anything does.
  bool is_best_of_a_slow_host(const Path& path) const {
    const int from = host_of(path.from);
    const int to = host_of(path.to);
    const auto is_its_best = [&](int host, double Vitals::*rate_of) {
      return is_slow(host) && path.bytes_per_s == vitals_[static_cast<std::size_t>(host)].*rate_of;
    };
    return from != to && path.bytes_per_s > 0 &&
           (is_its_best(from, &Vitals::send_bytes_per_s) ||
            is_its_best(to, &Vitals::receive_bytes_per_s));
  }

  double usual_rate(const Path& path) const {
    const Vitals& sender = vitals_[static_cast<std::size_t>(host_of(path.from))];
    const Vitals& receiver = vitals_[static_cast<std::size_t>(host_of(path.to))];
    return can_compare() ? std::min(sender.send_bytes_per_s, receiver.receive_bytes_per_s)
                         : std::max(sender.send_bytes_per_s, receiver.send_bytes_per_s);
  }

  void look_for_cables() {
    for (const Path& path : examination_.paths)
      if (is_odd(path))
        mend("",
             fmt::format("from {} to {} {} go, where {} were reached", name_of(path.from),
                         name_of(path.to), rate(path.bytes_per_s), rate(usual_rate(path))),
             "look at what lies between them: switches, uplinks that many share, routes");
  }

  void look_at_limits(const HostRecord& host, const std::string& name) {
    if (host.descriptors >= 0 && host.needed_descriptors > host.descriptors)
      mend(name,
           fmt::format("a process may open {} files, and so many ranks need {}", host.descriptors,
                       host.needed_descriptors),
           "raise the hard limit: ulimit -Hn, LimitNOFILE= of its service, --ulimit nofile");
    if (host.threads >= 0 && host.needed_threads > host.threads)
      mend(name,
           fmt::format("{} threads may be started, and so many ranks need {}", host.threads,
                       host.needed_threads),
           "raise ulimit -u, or the container's pids.max");
    if (host.memory_bytes >= 0 && host.needed_memory > host.memory_bytes)
      mend(name,
           fmt::format("{} of memory are free, and links between so many ranks take {}",
                       size(host.memory_bytes), size(host.needed_memory)),
           "use more hosts, or raise the container's memory.max");
    if (host.cgroup_cpus > 0 && host.cgroup_cpus < static_cast<double>(host.ranks))
      mend(name,
           fmt::format("its control group gives {:.1f} processors to {} ranks", host.cgroup_cpus,
                       host.ranks),
           "raise cpu.max: in Kubernetes leave limits.cpu out, or make it a core a rank");
    if (host.locked_memory >= 0 && host.pinning != 0)
      note(name, fmt::format("{} of memory may be locked", size(host.locked_memory)),
           "adapters of RDMA and GPUs want it unlimited: ulimit -l, LimitMEMLOCK=infinity");
    if (host.shm_bytes >= 0 && host.shm_bytes < kLittleShm)
      note(
          name, fmt::format("{} are free in /dev/shm", size(host.shm_bytes)),
          "tutti needs none of it, PyTorch's data loaders do: --shm-size, or an emptyDir of medium "
          "Memory");
  }

  void look_at_settings(const HostRecord& host, const std::string& name) {
    if (host.ranks > host.cpus && host.cpus > 0)
      note(name, fmt::format("{} ranks share {} processors", host.ranks, host.cpus),
           "start one rank a core at most");
    if (host.load > kMuchLoad * static_cast<double>(host.cpus))
      note(name, fmt::format("was busy before: a load of {:.1f}", host.load),
           "measure again when it is quiet");
    if (host.congestion == "bbr")
      note(name, "presets bbr for TCP's congestion control",
           "tutti takes cubic instead; TUTTI_TCP_CONGESTION=system keeps it");
    if (host.numa_balancing != 0 && host.numa_nodes > 1)
      note(name, fmt::format("moves pages between its {} NUMA nodes", host.numa_nodes),
           "pin the ranks and turn it off: sysctl kernel.numa_balancing=0");
    if (host.governor == "powersave")
      note(name, "its processors save power", "cpupower frequency-set -g performance");
  }

  // What is under way at full speed has to fit.
  void look_at_buffers(const HostRecord& host, const Vitals& vitals, const std::string& name) {
    if (examination_.hosts.size() < 2) return;
    const double under_way = vitals.send_bytes_per_s * 2 * vitals.latency_s;
    for (const auto& [most, variable] :
         {std::pair(host.send_buffer, "tcp_wmem"), {host.receive_buffer, "tcp_rmem"}})
      if (most >= 0 && under_way > static_cast<double>(most))
        mend(name,
             fmt::format("TCP may have {} under way, and {} at this distance want {}", size(most),
                         rate(vitals.send_bytes_per_s), size(static_cast<std::int64_t>(under_way))),
             fmt::format("raise the third number of net.ipv4.{}, or TUTTI_STREAMS", variable));
  }

  // The host that most agree with, of equal numbers the first: those that differ from it are odd.
  template <class Value>
  std::size_t usual_host(Value HostRecord::*field) const {
    std::map<Value, std::size_t> count;
    for (const HostRecord& host : examination_.hosts) ++count[host.*field];
    std::size_t usual = 0;
    for (std::size_t i = 1; i < examination_.hosts.size(); ++i)
      if (count[examination_.hosts[i].*field] > count[examination_.hosts[usual].*field]) usual = i;
    return usual;
  }

  template <class Value>
  void compare(Value HostRecord::*field, const char* what, Level level, const char* advice) {
    const std::size_t usual = usual_host(field);
    const Value& expected = examination_.hosts[usual].*field;
    for (std::size_t i = 0; i < examination_.hosts.size(); ++i) {
      const Value& other = examination_.hosts[i].*field;
      if (other == expected) continue;
      findings_.push_back({level, names_[i],
                           fmt::format("{} is {}, on {} {}", what, other, names_[usual], expected),
                           advice});
    }
  }

  void look_for_differences() {
    if (examination_.hosts.empty()) return;
    compare(&HostRecord::version, "the version of tutti", Level::mend, "install the same on all");
    compare(&HostRecord::mtu, "the interface's MTU", Level::mend,
            "set the same on all hosts and switches: ip link set dev … mtu …");
    compare(&HostRecord::congestion, "TCP's congestion control", Level::note,
            "set the same on all: sysctl net.ipv4.tcp_congestion_control");
    compare(&HostRecord::cpus, "the number of processors", Level::note,
            "the slowest host decides how long a step takes");
  }

  const Examination& examination_;
  std::vector<std::string> names_;
  std::vector<Vitals> vitals_;
  std::vector<std::size_t> slow_;
  std::vector<Ailment> findings_;
};

void keep_least(double& kept, double value) {
  if (value > 0) kept = kept > 0 ? std::min(kept, value) : value;
}

}  // namespace

std::vector<Vitals> vitals_of(const Examination& examination) {
  std::vector<Vitals> vitals(examination.hosts.size());
  const bool alone = examination.hosts.size() == 1;
  for (const Path& path : examination.paths) {
    const int from = examination.host_of[static_cast<std::size_t>(path.from)];
    const int to = examination.host_of[static_cast<std::size_t>(path.to)];
    Vitals& sender = vitals[static_cast<std::size_t>(from)];
    Vitals& receiver = vitals[static_cast<std::size_t>(to)];
    if (from == to)
      sender.within_bytes_per_s = std::max(sender.within_bytes_per_s, path.bytes_per_s);
    if (from == to && !alone) continue;
    keep_least(sender.latency_s, path.latency_s);
    keep_least(receiver.latency_s, path.latency_s);
    if (from == to) continue;
    sender.send_bytes_per_s = std::max(sender.send_bytes_per_s, path.bytes_per_s);
    receiver.receive_bytes_per_s = std::max(receiver.receive_bytes_per_s, path.bytes_per_s);
  }
  return vitals;
}

std::vector<Path> odd_paths(const Examination& examination) {
  return Diagnosis(examination).odd_paths();
}

std::vector<Ailment> diagnose(const Examination& examination) {
  return Diagnosis(examination).run();
}

}  // namespace tutti::tool::doctor
