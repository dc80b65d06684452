#include "schedule/schedule.hpp"

#include "tutti/shape.hpp"

namespace tutti::schedule {
namespace {

const CollectiveSide& side_of(const CollectiveShape& shape, Space space) {
  return space == Space::input ? shape.input : shape.output;
}

}  // namespace

std::string_view to_string(OpKind kind) noexcept {
  switch (kind) {
#define TUTTI_OP(name) \
  case OpKind::name:   \
    return #name;
#include "schedule/ops.def"
#undef TUTTI_OP
  }
  return "?";
}

std::string_view to_string(Space space) noexcept {
  switch (space) {
    case Space::input: return "input";
    case Space::output: return "output";
    case Space::scratch: return "scratch";
  }
  return "?";
}

std::uint32_t chunk_count(const Program& program, Space space) {
  if (space == Space::scratch) return static_cast<std::uint32_t>(program.scratch.size());
  if (is_switch(program)) return 0;
  const CollectiveSide& side = side_of(shape_of(program.collective), space);
  if (!side.is_there(program.rank == program.root)) return 0;
  return side.blocks == Blocks::one ? program.cut
                                    : static_cast<std::uint32_t>(program.size) * program.cut;
}

bool is_given(const Program& program, Space space) {
  if (shape_of(program.collective).has_one_buffer())
    return space == Space::output && program.rank == program.root;
  return space == Space::input;
}

std::uint64_t extent_of(const Program& program, Space space, std::uint32_t chunk) {
  if (space == Space::scratch) return program.scratch[chunk];
  const CollectiveShape& shape = shape_of(program.collective);
  const auto n = static_cast<std::uint64_t>(program.size);
  const auto rank = static_cast<std::uint64_t>(program.rank);
  const std::uint64_t cut = program.cut;
  if (shape.is_part(side_of(shape, space))) return rank * cut + chunk;
  if (!shape.has_pairs()) return chunk;
  const std::uint64_t other = chunk / cut, piece = chunk % cut;
  if (space == Space::input) return (rank * n + other) * cut + piece;
  return (other * n + rank) * cut + piece;
}

std::uint64_t extent_count(Collective collective, int size, std::uint32_t cut) {
  const CollectiveShape& shape = shape_of(collective);
  const auto n = static_cast<std::uint64_t>(size);
  if (!shape.has_data()) return 1;
  if (shape.has_pairs()) return n * n * cut;
  return shape.has_parts() ? n * cut : cut;
}

std::uint64_t part_count(const Program& program) {
  const CollectiveShape& shape = shape_of(program.collective);
  if (!shape.has_data()) return 0;
  return shape.has_parts() ? static_cast<std::uint64_t>(program.size) * program.cut : program.cut;
}

Place resolve(const Program& program, Space space, std::uint32_t chunk) {
  if (!program.in_place || space == Space::scratch) return {space, chunk};
  const CollectiveShape& shape = shape_of(program.collective);
  const bool at_root = program.rank == program.root;
  if (!shape.input.is_there(at_root) || !shape.output.is_there(at_root)) return {space, chunk};
  // The side that is not longer than the other lies inside it, at the rank's own block.
  const bool input_in_output = shape.input.blocks <= shape.output.blocks;
  if (space != (input_in_output ? Space::input : Space::output)) return {space, chunk};
  const bool alike = shape.input.blocks == shape.output.blocks;
  const std::uint32_t own = alike ? 0 : static_cast<std::uint32_t>(program.rank) * program.cut;
  return {input_in_output ? Space::output : Space::input, own + chunk};
}

}  // namespace tutti::schedule
