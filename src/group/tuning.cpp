#include "group/tuning.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "group/calibrate.hpp"
#include "group/calibrate_links.hpp"
#include "group/machine_facts.hpp"
#include "group/tuning_cache.hpp"

namespace tutti::group {
namespace {

using std::chrono::milliseconds;
using tuner::Machine;

// How long measuring may take: all of it, by rank 0 alone, for each kind of link.
struct Effort {
  milliseconds all;
  milliseconds alone;
  milliseconds link;
};

// A job that was not asked to measure must not be kept from its work for long.
constexpr Effort kUnasked{milliseconds(400), milliseconds(220), milliseconds(90)};
constexpr Effort kAsked{milliseconds(1500), milliseconds(700), milliseconds(350)};

constexpr double kMostDisturbed = 0.15;
// Costs from between other programs' turns are rough, but measuring again would find no better ones
// until those have gone.
constexpr auto kRoughHoldFor = std::chrono::minutes(10);

// What rank 0 says to everybody.
enum class Word : std::uint32_t { probe, ready, failed };
struct Verdict {
  Word word = Word::ready;
  std::uint32_t bytes = 0;  // of the text that follows: the table, or why there is none
};

// What each rank says of itself.
struct RankCpus {
  CpuSet cpus;
  std::uint64_t kernel = 0;
};

// Between two turns of a processor nobody can tell what a short message costs; how fast long ones
// pass can be told.
void take_usual_latency(tuner::LinkCost& link, const tuner::LinkCost& usual) {
  link.latency_s = std::min(link.latency_s, usual.latency_s);
  link.message_s = std::min(link.message_s, usual.message_s);
  link.bytes = *tuner::Curve::from_knots({link.bytes.knots().back()});
}

std::string date_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

class Tuning {
 public:
  Tuning(Group& group, const TuningOptions& options)
      : group_(group), options_(options), peers_(ProbePeers::find(options.host_of)) {
    call_.timeout = options.config.join_timeout;
  }

  Result<AgreedMachine> agree() {
    if (Status status = find_cpus(); !status.ok()) return status;
    auto machine = group_.rank() == 0 ? lead() : follow();
    if (!machine.ok()) return machine.status();
    return AgreedMachine{*std::move(machine), std::move(machine_of_), own_core_};
  }

 private:
  const std::string& wish() const { return options_.config.tuning; }

  // Who runs where, and the processors that ranks of rank 0's machine may use, taken together: each
  // may be tied to one.
  Status find_cpus() {
    const RankCpus mine{CpuSet::of_this_process(), kernel_id()};
    std::vector<RankCpus> all(static_cast<std::size_t>(group_.size()));
    CallOptions call = call_;
    call.algorithm = options_.gather;
    const Status status =
        group_.all_gather(ConstBuffer{&mine, sizeof mine, Dtype::u8},
                          Buffer{all.data(), all.size() * sizeof(RankCpus), Dtype::u8}, call);
    if (!status.ok()) return status;
    CpuSet together;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      std::size_t first = 0;
      while (!shares_machine(all, first, rank)) ++first;
      machine_of_.push_back(static_cast<int>(first));
      if (first == 0) together.add(all[rank].cpus);
    }
    cpus_ = together.list();
    own_core_ = find_own_core(all);
    return {};
  }

  int find_own_core(const std::vector<RankCpus>& all) const {
    const auto self = static_cast<std::size_t>(group_.rank());
    std::vector<CpuSet> here;
    std::size_t place = 0;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (machine_of_[rank] != machine_of_[self]) continue;
      if (rank == self) place = here.size();
      here.push_back(all[rank].cpus);
    }
    return share_of_cores(here, place);
  }

  bool shares_machine(const std::vector<RankCpus>& all, std::size_t a, std::size_t b) const {
    return options_.host_of[a] == options_.host_of[b] ||
           (all[a].kernel != 0 && all[a].kernel == all[b].kernel);
  }

  Status tell(void* data, std::size_t bytes) {
    CallOptions call = call_;
    call.algorithm = options_.tell;
    return group_.broadcast(Buffer{data, bytes, Dtype::u8}, 0, call);
  }

  // ---- rank 0

  Result<std::shared_ptr<const Machine>> lead() {
    const MachineFacts facts = MachineFacts::find(static_cast<int>(cpus_.size()));
    const std::string identity = fingerprint(facts, options_.links, options_.over_network);
    const std::string folder = cache_folder(options_.config, options_.environment);
    paths_ = TuningPaths::in(folder, identity);
    const bool named = wish() != "auto" && wish() != "measure";
    Result<Machine> machine = Status(Code::internal, "not looked for");
    if (named) {
      machine = load_machine(wish());
    } else if (const std::string path = wish() == "auto" ? paths_.usable(kRoughHoldFor) : "";
               !path.empty()) {
      machine = load_cached(path, identity);
      source_ = path;
    }
    const bool known = machine.ok();
    if (!known && named)
      return give_up(
          machine.status().annotate("TUTTI_TUNING is auto, fixed, measure or a file to read"));
    if (!known || (!named && peers_.tcp >= 0 && machine->tcp.measured)) {
      if (Status status = probe(machine, facts, identity); !status.ok()) return status;
      if (measured_) keep(*machine);
    }
    options_.log.info(Subsystem::tune, "costs {}\n{}",
                      measured_ ? fmt::format("measured in {:.2f} s", took_s_)
                      : named   ? "from " + wish()
                                : "from " + source_,
                      describe(*machine));
    return send(*machine);
  }

  Result<Machine> load_cached(const std::string& path, const std::string& identity) {
    auto machine = load_machine(path);
    if (machine.ok() && machine->fingerprint != identity)
      machine = Status(Code::mismatch, fmt::format("{}: it was measured on another machine", path));
    if (!machine.ok())
      options_.log.warn(Subsystem::tune, "measuring again, because the cache is of no use: {}",
                        machine.status().to_string());
    return machine;
  }

  // Measures, unless there is a table that fits a short look at the network.
  Status probe(Result<Machine>& machine, const MachineFacts& facts, const std::string& identity) {
    Verdict verdict{Word::probe, 0};
    if (Status status = tell(&verdict, sizeof verdict); !status.ok()) return status;
    bool fits = machine.ok();
    if (fits) {
      auto same = still_like(group_, peers_.tcp, machine->tcp, call_.timeout);
      if (!same.ok()) return same.status();
      fits = *same;
      if (!fits)
        options_.log.info(Subsystem::tune, "measuring again, because the network has changed");
    }
    if (!fits)
      if (Status status = measure(machine, facts, identity); !status.ok()) return status;
    for (const int peer : {peers_.memory, peers_.tcp})
      if (peer >= 0)
        if (Status status = end_probes(group_, peer, call_.timeout); !status.ok()) return status;
    return {};
  }

  Status measure(Result<Machine>& into, const MachineFacts& facts, const std::string& identity) {
    const Nanoseconds start = steady_clock().now();
    const Effort& effort = wish() == "measure" ? kAsked : kUnasked;
    const Budget budget(effort.all);
    const Disturbance disturbance;
    Machine machine = measure_machine(cpus_, budget.part(effort.alone));
    for (const auto& [peer, link] :
         {std::pair{peers_.memory, &machine.memory}, std::pair{peers_.tcp, &machine.tcp}}) {
      if (peer < 0) continue;
      const Ways ways = peer == peers_.tcp ? Ways::both_at_once : Ways::in_turn;
      auto found = measure_link(group_, peer, ways, options_.config.segment_bytes,
                                budget.part(effort.link), call_.timeout);
      if (!found.ok()) return found.status();
      found->byte_s = link->byte_s;
      *link = *std::move(found);
    }
    disturbed_ = disturbance.share();
    if (disturbed_ > kMostDisturbed) {
      machine.memory = tuner::built_in_machine().memory;
      if (machine.tcp.measured) take_usual_latency(machine.tcp, tuner::built_in_machine().tcp);
    }
    machine.name = facts.processor;
    machine.date = date_now();
    machine.fingerprint = identity;
    into = std::move(machine);
    measured_ = true;
    took_s_ = static_cast<double>((steady_clock().now() - start).count()) * 1e-9;
    return {};
  }

  void keep(const Machine& machine) {
    const bool rough = disturbed_ > kMostDisturbed && wish() != "measure";
    const std::string& path = rough ? paths_.rough : paths_.good;
    const Status status = path.empty() ? Status(Code::io, "this user has no cache folder")
                                       : save_machine(path, machine);
    if (status.ok() && !rough) (void)std::remove(paths_.rough.c_str());
    if (!status.ok())
      options_.log.warn(Subsystem::tune, "measured costs are not kept: {}", status.to_string());
    else if (rough)
      options_.log.warn(Subsystem::tune,
                        "this machine was busy (measuring, {:.1f} s, stood in line {:.0f} % of the "
                        "time): its costs are rough, and will be measured again in {} minutes",
                        took_s_, disturbed_ * 100, kRoughHoldFor.count());
  }

  Result<std::shared_ptr<const Machine>> send(const Machine& machine) {
    std::string text = to_json(machine);
    // What the others could not use must not be used here either.
    if (auto again = tuner::parse_machine(text); !again.ok()) return give_up(again.status());
    if (Status status = send_text(Word::ready, text); !status.ok()) return status;
    return std::make_shared<const Machine>(machine);
  }

  Status give_up(Status why) {
    std::string text = why.message();
    // The others fail with the reason; if even that does not reach them, with their own.
    if (Status status = send_text(Word::failed, text); !status.ok()) return status;
    return why;
  }

  Status send_text(Word word, std::string& text) {
    Verdict verdict{word, static_cast<std::uint32_t>(text.size())};
    if (Status status = tell(&verdict, sizeof verdict); !status.ok()) return status;
    return tell(text.data(), text.size());
  }

  // ---- the others

  Result<std::shared_ptr<const Machine>> follow() {
    Verdict verdict;
    if (Status status = tell(&verdict, sizeof verdict); !status.ok()) return status;
    if (verdict.word == Word::probe) {
      if (peers_.has(group_.rank()))
        if (Status status = serve_probes(group_, call_.timeout); !status.ok()) return status;
      if (Status status = tell(&verdict, sizeof verdict); !status.ok()) return status;
    }
    std::string text(verdict.bytes, '\0');
    if (Status status = tell(text.data(), text.size()); !status.ok()) return status;
    if (verdict.word == Word::failed)
      return Status(Code::invalid_argument, "rank 0 has no costs to go by: " + text);
    auto machine = tuner::parse_machine(text);
    if (!machine.ok()) return machine.status().annotate("rank 0 sent costs that cannot be read");
    return std::make_shared<const Machine>(*std::move(machine));
  }

  Group& group_;
  const TuningOptions& options_;
  ProbePeers peers_;
  CallOptions call_;
  std::vector<int> cpus_;
  std::vector<int> machine_of_;
  int own_core_ = -1;
  TuningPaths paths_;
  std::string source_;  // the file that costs were read from
  bool measured_ = false;
  double took_s_ = 0;
  double disturbed_ = 0;
};

}  // namespace

Result<AgreedMachine> agree_on_machine(Group& group, const TuningOptions& options) {
  auto machine = Tuning(group, options).agree();
  if (!machine.ok()) return machine.status().annotate("tuning");
  return machine;
}

}  // namespace tutti::group
