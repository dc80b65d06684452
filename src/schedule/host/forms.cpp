#include "schedule/host/forms.hpp"

#include <algorithm>
#include <memory>

#include "schedule/host/lower.hpp"
#include "schedule/passes.hpp"

namespace tutti::schedule {
namespace {

Result<std::vector<Program>> programs_of(Algorithm algorithm, Request request,
                                         const Catalog& catalog) {
  auto programs = catalog.build_all(algorithm, request);
  if (!programs.ok()) return programs;
  for (Program& program : *programs) program = fuse_folds(std::move(program));
  return programs;
}

// What a rank touches, in parts of the message.
double work_of(const HostForm& form) {
  double touched = 0;
  for (const HostPhase& phase : form.phases) {
    touched += 2 * static_cast<double>(phase.moves.size());
    if (phase.fold)
      touched += static_cast<double>(1 + phase.fold->operands.size() + phase.fold->puts.size());
  }
  return touched / form.frame.cut;
}

// The lowering that was asked for, and where the algorithm knows another way to fold, that one.
class Lowerings {
 public:
  static Result<Lowerings> of(Algorithm algorithm, const Request& request, const Catalog& catalog) {
    auto programs = programs_of(algorithm, request, catalog);
    if (!programs.ok()) return programs.status();
    Lowerings both;
    both.asked_ = std::make_unique<const Lowering>(*programs);
    if (!both.fits()) return both;
    Request other = request;
    other.shots = request.shots == 1 ? 2 : 1;
    auto others = programs_of(algorithm, other, catalog);
    if (!others.ok() || *others == *programs) return both;
    auto lowered = std::make_unique<const Lowering>(*others);
    // All ranks have to run the same program, so all ask about rank 0.
    const auto work = [](const Lowering& each) { return work_of(each.form(0, Reach::mapped)); };
    if (lowered->fits() && work(*lowered) < work(*both.asked_)) both.better_ = std::move(lowered);
    return both;
  }

  bool fits() const { return asked_->fits(); }

  HostForms forms(int rank) const {
    const auto form_if = [&](Reach reach) {
      return asked_->allows(reach) ? std::optional(asked_->form(rank, reach)) : std::nullopt;
    };
    HostForms forms{asked_->form(rank, Reach::window), asked_->form(rank, Reach::mapped),
                    form_if(Reach::readable), form_if(Reach::mapped_source)};
    if (!better_) return forms;
    forms.mapped = better_->form(rank, Reach::mapped);
    forms.mapped_source.reset();  // of the program that is not taken
    return forms;
  }

 private:
  std::unique_ptr<const Lowering> asked_;
  std::unique_ptr<const Lowering> better_;  // where memory is mapped; null: the same
};

}  // namespace

Result<std::optional<HostForms>> host_forms(Algorithm algorithm, const Request& request,
                                            const Catalog& catalog) {
  const auto both = Lowerings::of(algorithm, request, catalog);
  if (!both.ok()) return both.status();
  if (!both->fits()) return std::optional<HostForms>();
  return std::optional(both->forms(request.rank));
}

Result<std::optional<std::vector<HostForms>>> host_forms_of_all(Algorithm algorithm,
                                                                const Request& request,
                                                                const Catalog& catalog) {
  const auto both = Lowerings::of(algorithm, request, catalog);
  if (!both.ok()) return both.status();
  if (!both->fits()) return std::optional<std::vector<HostForms>>();
  std::vector<HostForms> all;
  for (int rank = 0; rank < request.size; ++rank) all.push_back(both->forms(rank));
  return std::optional(std::move(all));
}

std::string_view to_string(Carrier carrier) noexcept {
  switch (carrier) {
    case Carrier::line: return "line";
    case Carrier::window: return "window";
    case Carrier::pieces: return "pieces";
  }
  return "?";
}

HostWay way_of(const HostForms& forms, const ShownSizes& sizes, const HostFacts& facts) {
  const HostForm& form = forms.window;
  HostWay way;
  way.longest = sizes.longest;
  way.widest = sizes.widest;
  const ReadingRange range = reading_range(form.lopsided, form.readers, facts.crowded);
  way.may_read = facts.readable && forms.readable && sizes.longest >= range.from &&
                 sizes.longest <= range.up_to;
  if (form.meetings() == 1 && sizes.widest <= kLineBytes)
    way.carrier = Carrier::line;
  else if (form.meetings() == 1 && sizes.padded <= kWindowBytes && !way.may_read)
    way.carrier = Carrier::window;
  way.may_hope = way.carrier == Carrier::window && sizes.widest >= kHopeFrom && !facts.crowded;
  // One rank copies in while the others copy out: that takes pieces. Where all do the same at the
  // same time, fewer pieces are fewer waits.
  const std::size_t room = down_to_line(kSlotBytes / std::max(sizes.most, sizes.growth));
  const std::size_t wanted = form.lopsided && !facts.crowded ? sizes.longest / 4 : sizes.longest;
  way.piece = std::clamp(up_to_line(wanted), std::min(kShortestPiece, room), room);
  return way;
}

Reach reach_of(const HostForms& forms, const HostWay& way, const FoundMemory& found) {
  const bool pays = way.carrier == Carrier::pieces || way.may_hope;
  if (pays && found.unaliased && found.source_mapped) {
    if (found.target_mapped) return Reach::mapped;
    // Where nobody writes a peer's memory it need not be writable.
    if (forms.mapped_source) return Reach::mapped_source;
  }
  return way.may_read && found.unaliased && found.source_readable ? Reach::readable : Reach::window;
}

}  // namespace tutti::schedule
