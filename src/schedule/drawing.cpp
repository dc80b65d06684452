#include "schedule/drawing.hpp"

#include <fmt/format.h>

#include <iterator>

#include "tutti/shape.hpp"

namespace tutti::schedule {
namespace {

using Out = std::back_insert_iterator<std::string>;
constexpr Space kSpaces[] = {Space::input, Space::output, Space::scratch};

// What the verifier proves of each result, told in short.
Contributors goal_of(const Program& program, std::uint32_t chunk) {
  const CollectiveShape& shape = shape_of(program.collective);
  if (shape.folds()) return {0, shape.contributors(program.rank, program.size)};
  return {shape.origin(static_cast<int>(chunk / program.cut), program.root), 1};
}

bool holds_at_first(const Program& program, Space space) {
  if (shape_of(program.collective).has_one_buffer())
    return space == Space::output && program.rank == program.root;
  return space == Space::input;
}

void put_sources(Out out, const Op& op, const Cells& cells) {
  for (std::size_t i = 0; i < op.sources.size(); ++i) {
    const Source& source = op.sources[i];
    if (i > 0) fmt::format_to(out, ",");
    if (source.peer == kLocal)
      fmt::format_to(out, "{}", cells.index(source.region.space, source.region.first));
    else
      fmt::format_to(out, "[{},{}]", source.peer, source.step);
  }
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
      fmt::format_to(out, "{},{},{},[", at(op.dst), op.dst.count, op.finish ? 1 : 0);
      put_sources(out, op, cells);
      fmt::format_to(out, "]");
      break;
  }
  fmt::format_to(out, "]");
}

void put_cell(Out out, const Cell& cell) {
  fmt::format_to(out, "[{},{},{},{},{},{}]", static_cast<int>(cell.space), cell.chunk, cell.extent,
                 cell.start.count == 0 ? -1 : cell.start.first, cell.goal.first, cell.goal.count);
}

}  // namespace

Cells::Cells(const Program& program) : program_(&program), numbers_(3) {
  for (const Space space : kSpaces) {
    auto& numbers = numbers_[static_cast<std::size_t>(space)];
    for (std::uint32_t chunk = 0; chunk < chunk_count(program, space); ++chunk) {
      const bool here = resolve(program, space, chunk) == Place{space, chunk};
      numbers.push_back(here ? static_cast<int>(cells_.size()) : -1);
      if (here) cells_.push_back({space, chunk, extent_of(program, space, chunk), {}, {}});
    }
  }
  for (const Space space : {Space::input, Space::output})
    for (std::uint32_t chunk = 0; chunk < chunk_count(program, space); ++chunk) {
      Cell& cell = cells_[index(space, chunk)];
      if (holds_at_first(program, space)) cell.start = {program.rank, 1};
      if (space == Space::output) cell.goal = goal_of(program, chunk);
    }
}

std::size_t Cells::index(Space space, std::uint32_t chunk) const {
  const Place place = resolve(*program_, space, chunk);
  const auto& numbers = numbers_[static_cast<std::size_t>(place.space)];
  // A region of no chunks may begin at the end.
  return place.chunk < numbers.size() ? static_cast<std::size_t>(numbers[place.chunk]) : 0;
}

std::uint64_t extents_per_colour(const Program& program) {
  const CollectiveShape& shape = shape_of(program.collective);
  if (shape.has_pairs()) return static_cast<std::uint64_t>(program.size) * program.cut;
  return shape.has_parts() ? program.cut : 1;
}

std::string print_drawing(std::span<const Program> programs) {
  std::vector<Cells> cells(programs.begin(), programs.end());
  std::string text = "[";
  const Out out = std::back_inserter(text);
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    text += rank > 0 ? ",\n{\"cells\":[" : "\n{\"cells\":[";
    const auto& own = cells[rank].all();
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (i > 0) text += ',';
      put_cell(out, own[i]);
    }
    text += "],\"ops\":[";
    const auto& ops = programs[rank].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (i > 0) text += ',';
      put_op(out, ops[i], cells[rank]);
    }
    text += "]}";
  }
  return text + "]";
}

}  // namespace tutti::schedule
