#include "schedule/drawing.hpp"

#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <utility>

#include "tutti/shape.hpp"

namespace tutti::schedule {
namespace {

using Out = std::back_insert_iterator<std::string>;
constexpr Space kSpaces[] = {Space::input, Space::output, Space::scratch};
// A fold is no HostAction; pages know it by the number after those.
constexpr int kFold = 0
#define TUTTI_HOST_ACTION(name) +1
#include "schedule/host/actions.def"
#undef TUTTI_HOST_ACTION
    ;

// What the verifier proves of each result, told in short.
Contributors goal_of(const Program& program, std::uint32_t chunk) {
  const CollectiveShape& shape = shape_of(program.collective);
  if (shape.folds()) return {0, shape.contributors(program.rank, program.size)};
  return {shape.origin(static_cast<int>(chunk / program.cut), program.root), 1};
}

Cell::Where where_of(Space space) {
  switch (space) {
    case Space::input: return Cell::Where::input;
    case Space::output: return Cell::Where::output;
    case Space::scratch: break;
  }
  return Cell::Where::scratch;
}

// The chunk that this rank's fold leaves in its result slot, where it does.
std::optional<Spot> kept_result(const HostForm& form) {
  for (const HostPhase& phase : form.phases)
    if (phase.fold && phase.fold->keeps_result) return phase.fold->to;
  return {};
}

// ---- JSON

template <class List, class Put>
void put_list(Out out, const List& list, Put put) {
  fmt::format_to(out, "[");
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i > 0) fmt::format_to(out, ",");
    put(list[i]);
  }
  fmt::format_to(out, "]");
}

void put_cell(Out out, const Cell& cell) {
  fmt::format_to(out, "[{},{},{},{},{},{}]", static_cast<int>(cell.where), cell.chunk, cell.extent,
                 cell.start.count == 0 ? -1 : cell.start.first, cell.goal.first, cell.goal.count);
}

// The first number is the op's place in ops.def.
void put_op(Out out, const Op& op, const Cells& cells) {
  const auto at = [&](const Region& region) { return cells.index(region.space, region.first); };
  fmt::format_to(out, "[{},{},", static_cast<int>(op.kind), op.step);
  switch (op.kind) {
    case OpKind::send: fmt::format_to(out, "{},{},{}", op.peer, at(op.src), op.src.count); break;
    case OpKind::recv: fmt::format_to(out, "{},{},{}", op.peer, at(op.dst), op.dst.count); break;
    case OpKind::copy: fmt::format_to(out, "{},{},{}", at(op.dst), at(op.src), op.dst.count); break;
    case OpKind::reduce:
      fmt::format_to(out, "{},{},{},", at(op.dst), op.dst.count, op.finish ? 1 : 0);
      put_list(out, op.sources, [&](const Source& source) {
        if (source.peer == kLocal)
          fmt::format_to(out, "{}", at(source.region));
        else
          fmt::format_to(out, "[{},{}]", source.peer, source.step);
      });
      break;
  }
  fmt::format_to(out, "]");
}

// The phases of one rank, with everybody's cells at hand.
class HostPrinter {
 public:
  HostPrinter(Out out, const std::vector<Cells>& cells, int rank)
      : out_(out), cells_(cells), rank_(rank) {}

  void put(const HostPhase& phase) {
    fmt::format_to(out_, "[");
    const char* comma = "";
    for (const HostMove& move : phase.moves) {
      fmt::format_to(out_, "{}", std::exchange(comma, ","));
      put(move);
    }
    if (phase.fold) {
      fmt::format_to(out_, "{}", comma);
      put(*phase.fold);
    }
    fmt::format_to(out_, "]");
  }

 private:
  std::size_t at(int peer, const Spot& spot) const {
    return cells_[static_cast<std::size_t>(peer == kLocal ? rank_ : peer)].index(spot);
  }

  // The first number is the action's place in actions.def.
  void put(const HostMove& move) {
    fmt::format_to(out_, "[{},", static_cast<int>(move.action));
    switch (move.action) {
      case HostAction::show:
      case HostAction::copy:
        fmt::format_to(out_, "{},{}", at(kLocal, move.from), at(kLocal, move.to));
        break;
      case HostAction::take:
        fmt::format_to(out_, "{},{},{},{:.4g}", move.peer, at(move.peer, move.from),
                       at(kLocal, move.to), 1 - move.givers_share);
        break;
      case HostAction::give:
        fmt::format_to(out_, "{},{},{},{:.4g}", move.peer, at(kLocal, move.from),
                       at(move.peer, move.to), move.givers_share);
        break;
    }
    fmt::format_to(out_, "]");
  }

  void put(const HostFold& fold) {
    fmt::format_to(out_, "[{},{},{},", kFold, at(kLocal, fold.to), fold.finish ? 1 : 0);
    put_list(out_, fold.operands, [&](const auto& each) { put(each.peer, each.from); });
    fmt::format_to(out_, ",");
    std::vector<HostFold::Put> puts;
    if (fold.keeps_result) puts.push_back({kLocal, {Spot::Where::result, 0}});
    puts.insert(puts.end(), fold.puts.begin(), fold.puts.end());
    put_list(out_, puts, [&](const auto& each) { put(each.peer, each.to); });
    fmt::format_to(out_, "]");
  }

  // A cell of this rank, or [peer, cell].
  void put(int peer, const Spot& spot) {
    if (peer == kLocal)
      fmt::format_to(out_, "{}", at(peer, spot));
    else
      fmt::format_to(out_, "[{},{}]", peer, at(peer, spot));
  }

  Out out_;
  const std::vector<Cells>& cells_;
  int rank_;
};

// A list of {"cells":[…],…} with whatever put_rest(out, cells of all, rank) adds to each.
template <class Ranks, class PutRest>
std::string print_ranks(const Ranks& ranks, PutRest put_rest) {
  const std::vector<Cells> cells(ranks.begin(), ranks.end());
  std::string text = "[";
  const Out out = std::back_inserter(text);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    text += rank > 0 ? ",\n{\"cells\":" : "\n{\"cells\":";
    put_list(out, cells[rank].all(), [&](const Cell& cell) { put_cell(out, cell); });
    put_rest(out, cells, rank);
    text += "}";
  }
  return text + "]";
}

}  // namespace

Cells::Cells(const Program& program) : program_(&program), numbers_(std::size(kSpaces)) {
  for (const Space space : kSpaces) {
    auto& numbers = numbers_[static_cast<std::size_t>(space)];
    for (std::uint32_t chunk = 0; chunk < chunk_count(program, space); ++chunk) {
      const bool here = resolve(program, space, chunk) == Place{space, chunk};
      numbers.push_back(here ? static_cast<int>(cells_.size()) : -1);
      if (here)
        cells_.push_back({where_of(space), chunk, extent_of(program, space, chunk), {}, {}});
    }
  }
  for (const Space space : {Space::input, Space::output})
    for (std::uint32_t chunk = 0; chunk < chunk_count(program, space); ++chunk) {
      Cell& cell = cells_[index(space, chunk)];
      if (is_given(program, space)) cell.start = {program.rank, 1};
      if (space == Space::output) cell.goal = goal_of(program, chunk);
    }
  first_slot_ = cells_.size();
}

Cells::Cells(const HostForm& form) : Cells(form.frame) {
  // Where memory is reached, chunks are shown where they lie.
  if (form.reach != Reach::window) return;
  const auto extent = [&](const Spot& chunk) {
    return extent_of(form.frame, chunk.space(), chunk.index);
  };
  for (std::uint32_t slot = 0; slot < form.shown.size(); ++slot)
    cells_.push_back({Cell::Where::window, slot, extent(form.shown[slot]), {}, {}});
  if (const auto result = kept_result(form))
    cells_.push_back({Cell::Where::result, 0, extent(*result), {}, {}});
}

std::size_t Cells::index(Space space, std::uint32_t chunk) const {
  const Place place = resolve(*program_, space, chunk);
  const auto& numbers = numbers_[static_cast<std::size_t>(place.space)];
  // A region of no chunks may begin at the end.
  return place.chunk < numbers.size() ? static_cast<std::size_t>(numbers[place.chunk]) : 0;
}

std::size_t Cells::index(const Spot& spot) const {
  switch (spot.where) {
    case Spot::Where::input:
    case Spot::Where::output: return index(spot.space(), spot.index);
    case Spot::Where::window: return first_slot_ + spot.index;
    case Spot::Where::result: break;
  }
  return cells_.size() - 1;
}

std::uint64_t extents_per_colour(const Program& program) {
  const CollectiveShape& shape = shape_of(program.collective);
  if (shape.has_pairs()) return static_cast<std::uint64_t>(program.size) * program.cut;
  return shape.has_parts() ? program.cut : 1;
}

std::string print_drawing(std::span<const Program> programs) {
  return print_ranks(programs, [&](Out out, const std::vector<Cells>& cells, std::size_t rank) {
    fmt::format_to(out, ",\"ops\":");
    put_list(out, programs[rank].ops, [&](const Op& op) { put_op(out, op, cells[rank]); });
  });
}

std::string print_drawing(std::span<const HostForm> forms) {
  return print_ranks(forms, [&](Out out, const std::vector<Cells>& cells, std::size_t rank) {
    HostPrinter printer(out, cells, static_cast<int>(rank));
    fmt::format_to(out, ",\"phases\":");
    put_list(out, forms[rank].phases, [&](const HostPhase& phase) { printer.put(phase); });
  });
}

}  // namespace tutti::schedule
