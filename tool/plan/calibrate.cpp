// tutti plan calibrate - measures this machine and writes it down as a cluster.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <ctime>
#include <functional>
#include <memory>
#include <numeric>
#include <set>

#include "core/clock.hpp"
#include "plan/units.hpp"
#include "tool/interruption.hpp"
#include "tool/numbers.hpp"
#include "tool/plan/corrections.hpp"
#include "tool/plan/measure.hpp"
#include "tool/plan/plan.hpp"
#include "tool/result_file.hpp"

namespace tutti::tool::plan {
namespace {

namespace planner = tutti::plan;
using planner::Cluster;

constexpr const char* kCalibrateCommand = "plan calibrate";
constexpr const char* kCalibrateFooter = R"(Examples:
  tutti plan calibrate -n 4 -o here.json
  tutti plan calibrate --hosts a:2,b:2 -o ours.json     # over ssh; links inside of hosts and between them
  tutti plan collective all_reduce --ranks 4 --bytes 64K --cluster here.json
  TUTTI_TUNING=machine.json tutti run -n 4 ./train    # with --machine machine.json: the tuner's table

Measures latency, bandwidth and reduction per kind of link (as groups do when they are made), then every
algorithm of every collective at a few sizes and numbers of ranks, which correct the model. At most
--time seconds. Other programs on the machine disturb it.
)";

// Every algorithm is measured at these sizes, nearer to each other where caches end; what lies
// between is what validate asks about.
constexpr std::size_t kSizes[] = {64,       512,       4 << 10, 16 << 10,
                                  64 << 10, 256 << 10, 1 << 20, 2 << 20};
constexpr double kStartSeconds = 2;  // of a job that measures the machine

struct CalibrateOptions {
  WhereWords where;
  std::string output;
  std::string machine;
  std::string time = "60";
  std::string peak;
  bool json = false;
};

planner::Wire wire_of(const tuner::LinkCost& link) {
  constexpr double kLong = 1 << 20;
  planner::Wire wire;
  wire.latency = link.latency_s;
  wire.overhead = std::min(link.message_s, link.latency_s);
  const double seconds = link.bytes.seconds(kLong) + link.byte_s * kLong;
  wire.bandwidth = seconds > 0 ? kLong / seconds : 1e12;
  return wire;
}

// Ranks of a host pass no messages, so that groups do not measure any: they meet and copy.
planner::Wire memory_wire(const tuner::Machine& machine) {
  if (machine.memory.measured) return wire_of(machine.memory);
  constexpr double kLong = 1 << 20;
  planner::Wire wire;
  wire.latency = machine.meet_seconds(2);
  wire.overhead = wire.latency / 2;  // of each of the two
  wire.bandwidth = kLong / machine.copy.seconds(kLong);
  return wire;
}

std::string host_name() {
  char name[256] = "here";
  (void)::gethostname(name, sizeof name - 1);
  return name;
}

Cluster describe_machine(const tuner::Machine& machine, int ranks) {
  constexpr double kLong = 16 << 20;
  Cluster cluster;
  cluster.name = host_name();
  cluster.source = fmt::format("measured {:%Y-%m-%dT%H:%M:%SZ}, {}",
                               fmt::gmtime(std::time(nullptr)), machine.name);
  cluster.ranks_per_host = ranks;
  cluster.within = memory_wire(machine);
  cluster.between = wire_of(machine.tcp);
  cluster.host_bandwidth = cluster.between.bandwidth;
  cluster.processor.reduce_bandwidth = kLong / machine.fold.seconds(kLong);
  cluster.processor.memory_bandwidth = 2 * kLong / machine.copy.seconds(kLong);
  struct sysinfo facts {};
  if (::sysinfo(&facts) == 0)
    cluster.processor.memory_bytes = static_cast<double>(facts.totalram) * facts.mem_unit / ranks;
  cluster.machine = machine;
  return cluster;
}

// 2 to 4, and doubled up to n: what lies between is interpolated. Small numbers are not, because
// that is where ranks begin to outnumber the cores of small machines.
std::set<int> measured_counts(int ranks) {
  std::set<int> counts = {ranks};
  for (int n = 2; n < ranks; n = n < 4 ? n + 1 : 2 * n) counts.insert(n);
  return counts;
}

// Of several hosts: what fits into one, then whole hosts.
std::set<int> measured_counts(const Where& where) {
  if (!where.spans_hosts()) return measured_counts(where.ranks);
  std::set<int> counts;
  if (where.per_host() > 1) counts = measured_counts(where.per_host());
  for (const int hosts : measured_counts(static_cast<int>(where.hosts.size())))
    counts.insert(hosts * where.per_host());
  return counts;
}

class Calibration {
 public:
  Calibration(Where where, double seconds) : where_(std::move(where)), seconds_(seconds) {}

  // Calls `keep` with whatever there is so far, and ends with that when it is interrupted.
  using Keep = std::function<Status(const Cluster&)>;
  Result<Cluster> run(const Keep& keep) {
    if (Status status = measure_machine(); !status.ok()) return status;
    Cluster cluster = describe_machine(machine_, where_.per_host());
    const std::string table = tuner::to_json(machine_);
    if (Status status = keep(cluster); !status.ok()) return status;
    const auto counts = measured_counts(where_);
    const double left =
        seconds_ - 2 * kStartSeconds - kJobSeconds * static_cast<double>(counts.size());
    // More ranks take longer, and are disturbed more.
    const double ranks = std::accumulate(counts.begin(), counts.end(), 0.0);
    std::vector<MeasuredCell> all;
    for (const int n : counts) {
      auto cells = cells_for(where_, n, {std::begin(kSizes), std::end(kSizes)});
      const MeasureJob job{where_, n,           left * n / ranks,
                           table,  transport(), fmt::format("{} ranks", n)};
      const Status status = measure_cells(job, cells);
      if (!status.ok() && interruption() == 0) return status;
      std::erase_if(cells, [](const MeasuredCell& cell) { return cell.visits == 0; });
      all.insert(all.end(), cells.begin(), cells.end());
      cells_ += cells.size();
      for (const MeasuredCell& cell : cells) visits_ += static_cast<std::size_t>(cell.visits);
      cluster.corrections = corrections_of(cluster, all);
      if (Status checked = planner::check_cluster(cluster); !checked.ok()) return checked;
      if (Status kept = keep(cluster); !kept.ok()) return kept;
      if (interruption() != 0) break;
    }
    return cluster;
  }

  std::size_t cells() const { return cells_; }
  std::size_t visits() const { return visits_; }

 private:
  // Between hosts ranks find theirs.
  const char* transport() const { return where_.spans_hosts() ? "" : "shm"; }

  // What groups measure when they are made: on several hosts all links at once, else once per kind.
  Status measure_machine() {
    auto all = plan::measure_machine({where_, where_.ranks, 0, "", transport(), "links"});
    if (!all.ok()) return all.status();
    machine_ = *std::move(all);
    if (where_.spans_hosts()) return {};
    auto tcp = plan::measure_machine({where_, 2, 0, "", "tcp", "tcp links"});
    if (!tcp.ok()) return tcp.status();
    machine_.tcp = tcp->tcp;
    return {};
  }

  Where where_;
  double seconds_;
  tuner::Machine machine_;
  std::size_t cells_ = 0;
  std::size_t visits_ = 0;
};

void print_summary(const Cluster& cluster, const Calibration& calibration,
                   const CalibrateOptions& options, double took) {
  using planner::short_text;
  using planner::Unit;
  const auto wire = [](const char* name, const planner::Wire& wire, bool measured) {
    fmt::print("  {:<10}latency {:>8}  per message {:>8}  {:>9}{}\n", name,
               short_text(wire.latency, Unit::seconds), short_text(wire.overhead, Unit::seconds),
               short_text(wire.bandwidth, Unit::bytes_per_s),
               measured ? "" : "  (built in: it could not be measured)");
  };
  const tuner::Machine& machine = *cluster.machine;
  fmt::print("{} ({}, {} core{})\n", cluster.name, machine.name, machine.cores,
             machine.cores == 1 ? "" : "s");
  wire("memory", cluster.within, true);
  wire("tcp", cluster.between, machine.tcp.measured);
  fmt::print("  {:<10}{:>9} folded, {:>9} copied, tcp takes {:.2f} s of a core per GB\n", "core",
             short_text(cluster.processor.reduce_bandwidth, Unit::bytes_per_s),
             short_text(cluster.processor.memory_bandwidth / 2, Unit::bytes_per_s),
             machine.tcp.byte_s * 1e9);
  fmt::print("{} cells, {:.1f} visits each, {:.0f} s; written to {}\n", calibration.cells(),
             static_cast<double>(calibration.visits()) /
                 static_cast<double>(std::max<std::size_t>(1, calibration.cells())),
             took, options.output);
  fmt::print("next: tutti plan validate {} --cluster {}\n",
             options.where.hosts.empty() ? fmt::format("-n {}", options.where.ranks)
                                         : "--hosts " + options.where.hosts,
             options.output);
}

struct Understood {
  Where where;
  double seconds = 0;
  double peak = 0;
};

Result<Understood> understand(const CalibrateOptions& options) {
  Understood understood;
  auto where = plan::understand(options.where);
  if (!where.ok()) return where.status();
  understood.where = *std::move(where);
  const auto time =
      read_duration("--time", options.time, std::chrono::seconds(8), std::chrono::hours(1));
  if (!time.ok()) return time.status();
  understood.seconds = in_seconds(*time);
  if (!options.peak.empty()) {
    const auto read = planner::read_quantity(options.peak, planner::Unit::flops);
    if (!read.ok()) return read.status().annotate("--peak");
    if (*read <= 0)
      return Status(Code::invalid_argument,
                    fmt::format("--peak {} must be more than 0", options.peak));
    understood.peak = *read;
  }
  for (const auto& [flag, path] :
       {std::pair("-o", &options.output), {"--machine", &options.machine}})
    if (Status status = check_output(flag, *path == "-" ? "" : *path); !status.ok()) return status;
  return understood;
}

// What the cluster file holds.
std::string cluster_text(Cluster cluster, double peak) {
  if (peak > 0) {
    cluster.processor.peak_flops = peak;
    cluster.processor.efficiency = 0.5;
  }
  return planner::to_json(cluster);
}

int tell_interrupted(const Calibration& calibration, const ResultFile& file, bool has_machine) {
  const int code = 128 + interruption();
  if (!has_machine)
    return complain(
        kCalibrateCommand,
        fmt::format("interrupted before anything was measured; {} was not written", file.path()),
        code);
  return complain(kCalibrateCommand,
                  fmt::format("interrupted; the machine and the {} cells measured so far are in {}",
                              calibration.cells(), file.path()),
                  code);
}

int answer(const CalibrateOptions& options) {
  const auto understood = understand(options);
  if (!understood.ok()) return complain(kCalibrateCommand, understood.status());
  catch_interruptions();
  const std::time_t began = std::time(nullptr);
  const ResultFile file(options.output);
  const ResultFile machine(options.machine);
  Calibration calibration(understood->where, understood->seconds);
  const auto cluster = calibration.run([&](const Cluster& so_far) {
    const Status status = file.keep(cluster_text(so_far, understood->peak));
    return status.ok() ? machine.keep(tuner::to_json(*so_far.machine)) : status;
  });
  if (!cluster.ok() && interruption() != 0) return tell_interrupted(calibration, file, false);
  if (!cluster.ok()) return complain(kCalibrateCommand, cluster.status().message(), kFailed);
  const std::string text = cluster_text(*cluster, understood->peak);
  if (Status status = file.finish(text); !status.ok()) return complain(kCalibrateCommand, status);
  if (Status status = machine.finish(tuner::to_json(*cluster->machine)); !status.ok())
    return complain(kCalibrateCommand, status);
  if (interruption() != 0) return tell_interrupted(calibration, file, true);
  if (options.output == "-") return kDone;  // that is where it went
  if (options.json)
    fmt::print("{}", text);
  else
    print_summary(*cluster, calibration, options, std::difftime(std::time(nullptr), began));
  return kDone;
}

}  // namespace

Command make_calibrate(CLI::App& plan) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* parser = plan.add_subcommand("calibrate", "measure this machine, for --cluster");
  add_where(*parser, options->where);
  parser->add_option("-o,--output", options->output, "cluster file to write")->required();
  parser->add_option("--time", options->time, "at most this long")->capture_default_str();
  parser->add_option("--machine", options->machine,
                     "write the tuner's table here too, for TUTTI_TUNING (docs/formats/tuning.md)");
  parser->add_option("--peak", options->peak,
                     "what a rank computes, such as \"90 GFLOP/s\": not measured here");
  parser->add_flag("--json", options->json, "print the cluster file instead of a summary");
  parser->footer(kCalibrateFooter);
  return {parser, [options] { return answer(*options); }};
}

Command make_measure(CLI::App& plan) {
  auto words = std::make_shared<MeasureWords>();
  CLI::App* parser = plan.add_subcommand("measure", "one rank of calibrate or validate");
  parser->group("");  // not listed
  parser->add_option("--request", words->request, "what to measure")->required();
  parser->add_option("--terminal", words->terminal, "where a progress bar may be drawn");
  return {parser, [words] { return measure_as_rank(*words); }};
}

}  // namespace tutti::tool::plan
