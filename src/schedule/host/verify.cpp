// Proves host forms: runs them on expressions, phase by phase, and watches who touches what.
//
// Between two meetings ranks run as they like, so a phase is right when no order can matter: whatever
// one rank writes in it, nobody else touches in it. Then any order gives the same values, and one run
// tells them all. Beyond that:
//   - before the first meeting nobody has arrived, so nobody touches another's memory;
//   - after the last one callers get their buffers back, so nobody touches another's buffers;
//   - a slot is good for the phase after the one that filled it: then the next piece may come.
#include "schedule/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "schedule/hazards.hpp"
#include "schedule/host/text.hpp"
#include "schedule/proof/expressions.hpp"
#include "schedule/proof/results.hpp"
#include "tutti/shape.hpp"

namespace tutti::schedule {
namespace {

using proof::Expressions;
using proof::kUndefined;
using proof::Value;
using proof::wrong;

constexpr int kNobody = -1;
constexpr int kSeveral = -2;

// Of what a taker and a giver move together, the taker writes the first half and the giver the
// second, whatever their shares are.
enum Half : unsigned { kFirst = 1, kSecond = 2, kWhole = 3 };

// The memory of all ranks, and who touched it in the phase under way.
class FormMemory {
 public:
  FormMemory(std::span<const HostForm> forms, Expressions& expressions) : forms_(forms) {
    std::size_t total = 0;
    for (const HostForm& form : forms) {
      places_.emplace_back(form.frame);
      first_.push_back(total);
      total += slots_at(form.frame.rank) + form.shown_extents[at(form.frame.rank)].size() + 1;
    }
    cells_.resize(total);
    for (const HostForm& form : forms) fill(form.frame, expressions);
  }

  void begin_phase() {
    for (Cell& cell : cells_)
      for (Touch& touch : cell.touches) touch = {};
  }

  std::size_t index(int rank, const Spot& spot) const {
    const std::size_t base = first_[at(rank)];
    switch (spot.where) {
      case Spot::Where::input:
      case Spot::Where::output: return base + places_[at(rank)].index(spot.space(), spot.index);
      case Spot::Where::window: return base + slots_at(rank) + spot.index;
      case Spot::Where::result: break;
    }
    return base + slots_at(rank) + forms_[at(rank)].shown_extents[at(rank)].size();
  }

  // kUndefined also when the halves differ.
  Value value(std::size_t cell) const {
    const auto& values = cells_[cell].values;
    return values[0] == values[1] ? values[0] : kUndefined;
  }
  // Both return who else touched it in this phase in a way that does not go together, or kNobody.
  int read(std::size_t cell, int rank) {
    for (Touch& touch : cells_[cell].touches) {
      if (touch.writer != kNobody && touch.writer != rank) return touch.writer;
      touch.toucher = touch.toucher == kNobody || touch.toucher == rank ? rank : kSeveral;
    }
    return kNobody;
  }
  int write(std::size_t cell, int rank, Value value, unsigned halves) {
    for (unsigned h = 0; h < 2; ++h) {
      if ((halves >> h & 1) == 0) continue;
      Touch& touch = cells_[cell].touches[h];
      if (touch.toucher != kNobody && touch.toucher != rank) return touch.toucher;
      touch.writer = touch.toucher = rank;
      cells_[cell].values[h] = value;
    }
    return kNobody;
  }

 private:
  struct Touch {
    int writer = kNobody;
    int toucher = kNobody;  // reads or writes; kSeveral: more than one rank
  };
  struct Cell {
    Value values[2] = {kUndefined, kUndefined};
    Touch touches[2];
  };
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t slots_at(int rank) const { return places_[at(rank)].count(); }

  void fill(const Program& frame, Expressions& expressions) {
    for (const Space space : {Space::input, Space::output}) {
      if (!is_given(frame, space)) continue;
      for (std::uint32_t c = 0; c < chunk_count(frame, space); ++c) {
        const Value leaf = expressions.leaf(frame.rank, extent_of(frame, space, c));
        (void)write(index(frame.rank, chunk_spot(space, c)), frame.rank, leaf, kWhole);
      }
    }
  }

  std::span<const HostForm> forms_;
  std::vector<Places> places_;
  std::vector<std::size_t> first_;
  std::vector<Cell> cells_;
};

class FormProof {
 public:
  explicit FormProof(std::span<const HostForm> forms)
      : forms_(forms), expressions_(static_cast<int>(forms.size())), memory_(forms, expressions_) {}

  Result<VerifyReport> run() {
    for (phase_ = 0; phase_ < forms_[0].phases.size(); ++phase_) {
      memory_.begin_phase();
      for (const HostForm& form : forms_)
        if (Status status = perform(form); !status.ok()) return status;
    }
    for (auto check : {&FormProof::check_shares, &FormProof::check_slots})
      if (Status status = (this->*check)(); !status.ok()) return status;
    std::vector<Program> frames;
    for (const HostForm& form : forms_) frames.push_back(form.frame);
    const auto value_of = [&](int rank, std::uint32_t chunk) {
      return memory_.value(memory_.index(rank, chunk_spot(Space::output, chunk)));
    };
    if (Status status = proof::check_results(frames, expressions_, value_of, report_); !status.ok())
      return status;
    report_.steps = static_cast<std::uint32_t>(forms_[0].meetings());
    return report_;
  }

 private:
  // Who, where: for messages about the action under way.
  struct Actor {
    const HostForm& form;
    std::string (*name)(const void* action);
    const void* action;
    int rank() const { return form.frame.rank; }
  };
  Status fault(const Actor& actor, const std::string& what) const {
    return wrong(fmt::format("rank {}, phase {} '{}' {}", actor.rank(), phase_,
                             actor.name(actor.action), what));
  }
  Status clash(const Actor& actor, int other) const {
    const std::string who =
        other == kSeveral ? "several others touch" : fmt::format("rank {} touches", other);
    return fault(actor, fmt::format("touches what {} before they meet again", who));
  }

  const HostForm& of(int rank) const { return forms_[static_cast<std::size_t>(rank)]; }
  bool is_last_phase() const { return phase_ + 1 == forms_[0].phases.size(); }

  // ---- one phase of one rank

  Status perform(const HostForm& form) {
    const HostPhase& phase = form.phases[phase_];
    for (const HostMove& move : phase.moves)
      if (Status status = perform(form, move); !status.ok()) return status;
    return phase.fold ? perform(form, *phase.fold) : Status();
  }

  Status perform(const HostForm& form, const HostMove& move) {
    const Actor actor{form, [](const void* it) { return print(*static_cast<const HostMove*>(it)); },
                      &move};
    const bool gives = move.action == HostAction::give;
    const bool takes = move.action == HostAction::take;
    const bool shared = move.givers_share > 0;
    if ((takes || gives) != (move.peer != kLocal)) return fault(actor, "has no such peer");
    if (!(move.givers_share >= 0 && move.givers_share <= 1) || (gives && !shared) ||
        (shared && !takes && !gives))
      return fault(actor, "has no such share");
    if ((move.action == HostAction::show) != (move.to.where == Spot::Where::window))
      return fault(actor, "does not go where it says");
    if (move.from.is_slot() && !takes) return fault(actor, "takes from a slot");
    if (move.action == HostAction::show &&
        (move.to.index >= form.shown.size() || form.shown[move.to.index] != move.from))
      return fault(actor, "shows another chunk than it says");
    if (shared) note_share(form, move);

    Value value = kUndefined;
    const int owner = takes ? move.peer : kLocal;
    if (Status status = read(actor, owner, move.from, value); !status.ok()) return status;
    const unsigned halves = gives ? kSecond : shared ? kFirst : kWhole;
    return write(actor, gives ? move.peer : kLocal, move.to, extent_at(actor, owner, move.from),
                 value, halves);
  }

  Status perform(const HostForm& form, const HostFold& fold) {
    const Actor actor{form, [](const void* it) { return print(*static_cast<const HostFold*>(it)); },
                      &fold};
    if (fold.operands.empty()) return fault(actor, "folds nothing");
    if (!has_reduction(form.frame.collective))
      return fault(actor, "folds where nothing is to be folded");
    operands_.clear();
    for (const HostFold::Operand& operand : fold.operands)
      if (Status status = add_operand(actor, operand); !status.ok()) return status;
    int twice = kNobody;
    const Value value = expressions_.fold(operands_, {fold.finish, fold.balanced}, twice);
    if (twice != kNobody) return fault(actor, fmt::format("counts rank {} twice", twice));
    const auto extent = extent_at(actor, fold.operands[0].peer, fold.operands[0].from);
    for (const HostFold::Operand& operand : fold.operands)
      if (extent_at(actor, operand.peer, operand.from) != extent)
        return fault(actor, "folds operands of different sizes");
    if (Status status = write(actor, kLocal, fold.to, extent, value, kWhole); !status.ok())
      return status;
    if (fold.keeps_result) {
      results_[actor.rank()] = extent;
      const Spot result{Spot::Where::result, 0};
      if (Status status = write(actor, kLocal, result, extent, value, kWhole); !status.ok())
        return status;
    }
    for (const HostFold::Put& put : fold.puts)
      if (Status status = write(actor, put.peer, put.to, extent, value, kWhole); !status.ok())
        return status;
    return {};
  }

  Status add_operand(const Actor& actor, const HostFold::Operand& operand) {
    Value value = kUndefined;
    if (Status status = read(actor, operand.peer, operand.from, value); !status.ok()) return status;
    if (operand.peer != kLocal && !operand.from.is_slot() && actor.form.reach == Reach::readable)
      return fault(actor, "folds what can only be copied");
    if (operand.raw && !expressions_.is_leaf(value))
      return fault(actor, "takes a partial fold for a raw input");
    if (!operand.raw && expressions_.is_leaf(value))
      return fault(actor, "takes a raw input for a partial fold");
    if (expressions_.is_finished(value)) return fault(actor, "folds what was finished already");
    operands_.push_back(value);
    return {};
  }

  // ---- one access

  // The extent of a place that exists; of one that does not, read() and write() have told before.
  std::uint64_t extent_at(const Actor& actor, int peer, const Spot& spot) const {
    const int owner = peer == kLocal ? actor.rank() : peer;
    const HostForm& form = of(owner);
    switch (spot.where) {
      case Spot::Where::input:
      case Spot::Where::output: return extent_of(form.frame, spot.space(), spot.index);
      case Spot::Where::window:
        return form.shown_extents[static_cast<std::size_t>(owner)][spot.index];
      case Spot::Where::result: break;
    }
    const auto kept = results_.find(owner);
    return kept == results_.end() ? ~std::uint64_t{0} : kept->second;
  }

  // What is wrong with this rank's touching that place at this time; empty when nothing is.
  std::string objection(const Actor& actor, int peer, const Spot& spot, bool writes) const {
    if (peer != kLocal &&
        (peer < 0 || peer >= static_cast<int>(forms_.size()) || peer == actor.rank()))
      return "has no such peer";
    const HostForm& owner = peer == kLocal ? actor.form : of(peer);
    const std::size_t slots = spot.where == Spot::Where::result ? 1 : owner.shown.size();
    if (spot.index >= (spot.is_slot() ? slots : chunk_count(owner.frame, spot.space())))
      return "touches what does not exist";
    if (spot.is_slot() && actor.form.reach != Reach::window)
      return "uses a slot where there is no need for one";
    if (writes && spot.where == Spot::Where::input) return "writes an input";
    if (writes && !spot.is_slot() &&
        shape_of(owner.frame.collective)
            .gets_nothing(owner.frame.rank, static_cast<int>(forms_.size())))
      return "writes an output that must stay as it is";
    if (peer == kLocal) return {};
    if (phase_ == 0) return "touches a peer's memory before they have met";
    if (spot.is_slot()) return writes ? "writes into a peer's slot" : "";
    if (is_last_phase()) return "touches a peer's buffers when they are its caller's again";
    if (actor.form.reach == Reach::window) return "touches buffers that it cannot reach";
    if (writes && actor.form.reach != Reach::mapped) return "writes buffers that it cannot write";
    return {};
  }

  Status read(const Actor& actor, int peer, const Spot& spot, Value& value) {
    if (std::string what = objection(actor, peer, spot, false); !what.empty())
      return fault(actor, what);
    const std::size_t cell = memory_.index(peer == kLocal ? actor.rank() : peer, spot);
    if (const int other = memory_.read(cell, actor.rank()); other != kNobody)
      return clash(actor, other);
    if (spot.is_slot()) {
      const auto filled = filled_.find(cell);
      if (filled == filled_.end() || filled->second + 1 != phase_)
        return fault(actor, "reads a slot that was not filled in the phase before");
      slots_read_[cell] = true;
      ++report_.messages;
    } else if (peer != kLocal) {
      ++report_.messages;
    }
    value = memory_.value(cell);
    if (value == kUndefined) return fault(actor, "reads what was not written before");
    return {};
  }

  Status write(const Actor& actor, int peer, const Spot& spot, std::uint64_t extent, Value value,
               unsigned halves) {
    if (std::string what = objection(actor, peer, spot, true); !what.empty())
      return fault(actor, what);
    if (extent_at(actor, peer, spot) != extent) return fault(actor, "changes the size of a chunk");
    const std::size_t cell = memory_.index(peer == kLocal ? actor.rank() : peer, spot);
    if (const int other = memory_.write(cell, actor.rank(), value, halves); other != kNobody)
      return clash(actor, other);
    if (peer != kLocal && halves == kWhole) ++report_.messages;
    if (spot.is_slot()) {
      if (filled_.count(cell) > 0) return fault(actor, "fills a slot twice");
      filled_[cell] = phase_;
      slots_read_[cell] = false;
    }
    return {};
  }

  // ---- the whole

  // A move that taker and giver share: who takes it where, from whom, what, in which phase.
  using Shared = std::tuple<std::size_t, int, int, std::uint32_t, int, std::uint32_t>;
  void note_share(const HostForm& form, const HostMove& move) {
    const bool takes = move.action == HostAction::take;
    const int taker = takes ? form.frame.rank : move.peer;
    const int giver = takes ? move.peer : form.frame.rank;
    const Shared key{
        phase_,        taker, static_cast<int>(move.to.where),
        move.to.index, giver, move.from.index * 2 + (move.from.where == Spot::Where::input)};
    (takes ? taken_ : given_)[key] += move.givers_share;
  }
  // What a giver is to move, it moves, and nothing else.
  Status check_shares() {
    if (taken_ == given_) return {};
    return wrong("a part of a chunk is moved by nobody, or by its taker and its giver");
  }
  // A copy into a window costs as much as any other.
  Status check_slots() {
    for (const auto& [cell, was_read] : slots_read_)
      if (!was_read) return wrong("a slot is filled that nobody reads");
    return {};
  }

  std::span<const HostForm> forms_;
  Expressions expressions_;
  FormMemory memory_;
  std::size_t phase_ = 0;
  std::map<std::size_t, std::size_t> filled_;  // slots: in which phase
  std::map<std::size_t, bool> slots_read_;
  std::map<int, std::uint64_t> results_;  // extent of what each rank keeps
  std::map<Shared, double> taken_, given_;
  std::vector<Value> operands_;
  VerifyReport report_;
};

Status check_forms(std::span<const HostForm> forms) {
  std::vector<Program> frames;
  for (const HostForm& form : forms) frames.push_back(form.frame);
  if (Status status = proof::check_headers(frames); !status.ok()) return status;
  const HostForm& model = forms[0];
  for (const HostForm& form : forms) {
    const auto rank = static_cast<std::size_t>(form.frame.rank);
    if (form.reach != model.reach || form.phases.size() != model.phases.size() ||
        form.shown_extents != model.shown_extents || form.lopsided != model.lopsided ||
        form.readers != model.readers)
      return wrong(fmt::format("rank {} has another form than rank 0", rank));
    // With one rank there is nobody to meet, but a phase before and one after all the same.
    if (form.phases.size() < 2) return wrong("ranks that never meet are no group");
    if (form.shown_extents.size() != forms.size() ||
        form.shown.size() != form.shown_extents[rank].size())
      return wrong(
          fmt::format("rank {} shows another number of chunks than the others know", rank));
    for (std::size_t slot = 0; slot < form.shown.size(); ++slot) {
      const Spot& spot = form.shown[slot];
      if (spot.is_slot() || spot.index >= chunk_count(form.frame, spot.space()) ||
          extent_of(form.frame, spot.space(), spot.index) != form.shown_extents[rank][slot])
        return wrong(fmt::format("rank {} shows another chunk than the others know", rank));
    }
  }
  return {};
}

}  // namespace

Result<VerifyReport> verify(std::span<const HostForm> forms) {
  if (Status status = check_forms(forms); !status.ok()) return status;
  return FormProof(forms).run();
}

}  // namespace tutti::schedule
