#include "tuner/host_time.hpp"

#include <algorithm>
#include <cmath>

#include "core/check.hpp"
#include "cost/event_loop.hpp"
#include "schedule/host/forms.hpp"
#include "schedule/host/pipeline.hpp"
#include "tuner/built_in.hpp"

namespace tutti::tuner {
namespace {

using schedule::Carrier;
using schedule::HostAction;
using schedule::HostForm;
using schedule::HostForms;
using schedule::HostPhase;
using schedule::Reach;

// What one rank does in one phase, in bytes.
struct PhaseBytes {
  double shown = 0;     // put where others read it
  double copied = 0;    // from others, to others, or within the rank
  double folded = 0;    // all operands but one
  double operands = 0;  // of the fold
};

PhaseBytes bytes_of(const HostPhase& phase, double chunk) {
  PhaseBytes bytes;
  for (const schedule::HostMove& move : phase.moves) {
    switch (move.action) {
      case HostAction::show: bytes.shown += chunk; break;
      case HostAction::copy: bytes.copied += chunk; break;
      case HostAction::take: bytes.copied += chunk * (1 - move.givers_share); break;
      case HostAction::give: bytes.copied += chunk * move.givers_share; break;
    }
  }
  if (!phase.fold) return bytes;
  bytes.operands = static_cast<double>(phase.fold->operands.size());
  // Folding one operand is a copy.
  (bytes.operands < 2 ? bytes.copied : bytes.folded) += std::max(1.0, bytes.operands - 1) * chunk;
  bytes.copied += static_cast<double>(phase.fold->puts.size()) * chunk;
  if (phase.fold->keeps_result) bytes.shown += chunk;
  return bytes;
}

// Seconds of a core for the bytes of a phase, by what carries them.
class PhasePrices {
 public:
  PhasePrices(const CallFacts& facts, const Machine& machine)
      : machine_(machine), total_(total_bytes(facts)), folds_(has_reduction(facts.collective)) {}

  double in_lines(const PhaseBytes& bytes) const {
    return machine_.copy.share(bytes.copied, total_) + machine_.fold.share(bytes.folded, total_);
  }

  double through_window(const PhaseBytes& bytes) const {
    return machine_.copy.share(bytes.shown, total_) + in_lines(bytes) + crossing(bytes);
  }

  // Slots stay in the cache: only one side of a copy, and only the rank's own operand and the result
  // of a fold, are elsewhere.
  double through_slots(const PhaseBytes& bytes) const {
    const Price copies = price(machine_.copy, bytes.shown + bytes.copied, total_);
    const Price folds = price(machine_.fold, bytes.folded, total_);
    const double own = bytes.operands > 1 ? 1 / (bytes.operands - 1) : 0;
    return copies.near + copies.extra / 2 + folds.near + own * folds.extra * 2 / 3 +
           crossing(bytes);
  }

  // In place a rank touches half of what a copy of as much would. A result that was folded just
  // before is still in the cache when it is put elsewhere.
  double where_it_lies(const PhaseBytes& bytes) const {
    const Price copies = price(machine_.copy, bytes.copied, total_ / 2);
    const Price folds = price(machine_.fold, bytes.folded, total_ / 2);
    const double operands =
        bytes.operands > 1 ? (bytes.operands + 1) / (3 * (bytes.operands - 1)) : 0;
    return copies.near + (folds_ ? 0.5 : 1) * copies.extra + folds.near + operands * folds.extra;
  }

  double by_kernel(const PhaseBytes& bytes) const {
    return machine_.pull.share(bytes.copied, std::max(1.0, bytes.copied));
  }

 private:
  // Copies and folds cost what they cost in a private cache, and more where the call's bytes come
  // from memory or go there. Of that extra a copy has two parts, a read and a write; a fold of two
  // has three, and one of k operands k + 1.
  struct Price {
    double near = 0;
    double extra = 0;
  };
  static Price price(const Curve& curve, double bytes, double whole) {
    const double near = curve.share(bytes, std::min(whole, kNearBytes));
    return {near, std::max(0.0, curve.share(bytes, whole) - near)};
  }
  static double crossing(double bytes, double byte_s) {
    const double first = std::min(bytes, kCrossingBytes);
    return (first + (bytes - first) * kPrefetched) * byte_s;
  }
  static double crossing(const PhaseBytes& bytes) {
    return crossing(bytes.shown, kShowByte) + crossing(bytes.copied + bytes.folded, kTakeByte);
  }

  const Machine& machine_;
  double total_;
  bool folds_;
};

using PhaseSeconds = std::vector<double>;  // of one rank, by phase

// The phases of all ranks on the cores of a host.
class HostPlay {
 public:
  HostPlay(const CallFacts& facts, const Machine& machine) {
    // Phases come in seconds: a "byte" takes one.
    site_.copy_byte_s = 1;
    site_.host_of.assign(static_cast<std::size_t>(facts.ranks), 0);
    site_.machine_of = site_.host_of;
    site_.cores = machine.cores;
    site_.meet_s = machine.meet_seconds(facts.ranks);
  }

  // Phase after phase, with a meeting before each but the first; in pieces they overlap.
  double seconds(const std::vector<PhaseSeconds>& ranks, std::size_t pieces) const {
    if (pieces <= kPlayedPieces) return play(ranks, pieces, pieces);
    // What a piece adds does not change any more.
    const double all = play(ranks, kPlayedPieces, pieces);
    const double half = play(ranks, kPlayedPieces / 2, pieces);
    const auto more = static_cast<double>(pieces - kPlayedPieces);
    return all + more * (all - half) / (kPlayedPieces - kPlayedPieces / 2);
  }

 private:
  static constexpr std::size_t kPlayedPieces = 8;

  // The first `played` of `pieces` equal pieces.
  double play(const std::vector<PhaseSeconds>& ranks, std::size_t played,
              std::size_t pieces) const {
    const std::size_t phases = ranks[0].size();
    const schedule::Pipeline pipeline(phases, played);
    cost::OpGraph graph;
    std::vector<std::vector<std::uint32_t>> actions(ranks.size());  // of each rank, by mark
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      graph.begin_rank(static_cast<int>(rank), 0);
      for (std::size_t turn = 0; turn < pipeline.turns(); ++turn)
        for (std::size_t phase = 0; phase < phases; ++phase) {
          const double share =
              pipeline.has(turn, phase) ? ranks[rank][phase] / static_cast<double>(pieces) : 0;
          actions[rank].push_back(graph.work(cost::Node::Does::copies, share));
          if (actions[rank].size() > 1)
            graph.lead_to(actions[rank].end()[-2], actions[rank].back());
        }
    }
    for (std::size_t turn = 0; turn < pipeline.turns(); ++turn)
      for (std::size_t phase = 0; phase < phases; ++phase)
        if (pipeline.has(turn, phase)) wait(graph, actions, pipeline, turn, phase);
    TUTTI_CHECK(graph.finish(site_, 0).ok());
    cost::PlayOptions options;
    options.whole_messages = true;
    return cost::play(graph, site_, cost::Standing::everybody(site_), {{1, 0}}, options)
        .at(0)
        .seconds;
  }

  static void wait(cost::OpGraph& graph, const std::vector<std::vector<std::uint32_t>>& actions,
                   const schedule::Pipeline& pipeline, std::size_t turn, std::size_t phase) {
    const std::uint64_t needed = pipeline.needed(phase, turn - phase);
    if (needed == 0) return;
    const std::uint32_t meeting = graph.meeting();
    const std::uint64_t now = pipeline.mark_after(turn, phase) - 1;
    for (const auto& rank : actions) {
      graph.lead_to(rank[needed - 1], meeting);
      graph.lead_to(meeting, rank[now]);
    }
  }

  cost::Site site_;
};

// One call: its forms, and which of them runs.
class HostCall {
 public:
  HostCall(const CallFacts& facts, const Machine& machine, const std::vector<HostForms>& ranks)
      : facts_(facts), machine_(machine), prices_(facts, machine), ranks_(ranks) {
    const HostForm& form = ranks[0].window;
    const auto chunk = static_cast<std::size_t>(std::ceil(chunk_of(form)));
    const auto sizes = schedule::sizes_of(form, [&](std::uint64_t) { return chunk; });
    way_ = schedule::way_of(
        ranks[0], sizes,
        {.crowded = machine.crowding(facts.ranks) > 1, .readable = !machine.pull.empty()});
  }

  double seconds() const {
    const auto reach = schedule::reach_of(ranks_[0], way_,
                                          {.source_mapped = facts_.symmetric,
                                           .target_mapped = facts_.symmetric,
                                           .source_readable = true});
    if (reach == Reach::mapped)
      return play([](const HostForms& forms) -> const HostForm& { return forms.mapped; },
                  [&](const PhaseBytes& bytes) { return prices_.where_it_lies(bytes); });
    if (reach == Reach::readable)
      return play([](const HostForms& forms) -> const HostForm& { return *forms.readable; },
                  [&](const PhaseBytes& bytes) { return prices_.by_kernel(bytes); });
    const auto window = [](const HostForms& forms) -> const HostForm& { return forms.window; };
    if (way_.carrier == Carrier::line)
      return play(window, [&](const PhaseBytes& bytes) { return prices_.in_lines(bytes); });
    if (way_.carrier == Carrier::window)
      return play(window, [&](const PhaseBytes& bytes) { return prices_.through_window(bytes); });
    return play(
        window, [&](const PhaseBytes& bytes) { return prices_.through_slots(bytes); },
        std::max<std::size_t>(1, way_.pieces()));
  }

 private:
  double chunk_of(const HostForm& form) const {
    return cost::chunk_bytes(form.frame, total_bytes(facts_));
  }

  template <class FormOf, class PriceOf>
  double play(FormOf form_of, PriceOf price_of, std::size_t pieces = 1) const {
    std::vector<PhaseSeconds> ranks;
    for (const HostForms& forms : ranks_) {
      const HostForm& form = form_of(forms);
      ranks.emplace_back();
      for (const HostPhase& phase : form.phases)
        ranks.back().push_back(price_of(bytes_of(phase, chunk_of(form))));
    }
    return HostPlay(facts_, machine_).seconds(ranks, pieces);
  }

  const CallFacts& facts_;
  const Machine& machine_;
  PhasePrices prices_;
  const std::vector<HostForms>& ranks_;
  schedule::HostWay way_;
};

}  // namespace

std::optional<double> host_seconds(const schedule::Entry& entry, const CallFacts& facts, int shots,
                                   const Machine& machine) {
  if (!can_meet(facts)) return std::nullopt;
  const auto ranks =
      schedule::host_forms_of_all(entry.algorithm, request_of(facts, 0, shots), *facts.catalog);
  TUTTI_CHECK(ranks.ok());  // the entry applies
  if (!*ranks) return std::nullopt;
  const double call_s = facts.ranks > 1 ? kCallSeconds : 0;
  return HostCall(facts, machine, **ranks).seconds() + call_s;
}

}  // namespace tutti::tuner
